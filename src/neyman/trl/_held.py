"""The run's folder, held while it trains: two trainings in one would remove each other's checkpoints."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from neyman._files.lock import FolderLock
from neyman.errors import RunFailedError
from neyman.trl._host import output_folder
from neyman.trl._ranks import Ranks

LOCK = "_neyman.lock"  # the trainer pushes nothing to the hub whose name begins with _
# The forks of a killed run's data loader keep its lock, and look every 5 seconds whether it is gone.
SECONDS = 10.0


@contextmanager
def held(trainer: Any, ranks: Ranks, trial: Any) -> Iterator[None]:
    """Hold the folder that the trainer writes its checkpoints into, in the block.

    All processes of a training share it, so the first takes it for all. Nothing is held where no checkpoint is
    written (``save_strategy="no"``), nor where the folder cannot be: then there is a warning.

    Raises:
        RunFailedError: another process trains in it; on all processes.
    """
    if trainer.args.save_strategy == "no":
        yield
        return
    folder = output_folder(trainer, trial)
    lock = FolderLock(folder, LOCK)

    def take() -> None:
        if ranks.index == 0:
            _take(folder, lock)

    try:
        ranks.exchange(f"locking {folder}", take)
        yield
    finally:
        lock.release()


def _take(folder: Path, lock: FolderLock) -> None:
    holder = lock.take(SECONDS)
    if holder is not None:
        raise RunFailedError(
            f"{folder} is in use by another training ({holder}), and each would remove and overwrite the other's "
            "checkpoints: give this one another output_dir, or end the other first"
        )
