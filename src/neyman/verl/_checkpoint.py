"""Our part of a verl checkpoint: beliefs, ledger and counters in ``global_step_N/neyman``.

It is written before verl's own marker, ``latest_checkpointed_iteration.txt``, so that a checkpoint that verl would
resume has it whole.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from neyman._files import checkpoints
from neyman.errors import StateError
from neyman.hosts.run import HostRun


def folder_of(config: Any, step: int) -> Path:
    """Return where the checkpoint of a step has our part."""
    return Path(config.trainer.default_local_dir) / f"global_step_{step}" / "neyman"


def resumed_folder(config: Any, step: int) -> Path:
    """Return our part of the checkpoint that verl has resumed."""
    if config.trainer.resume_mode == "resume_path":
        return Path(config.trainer.resume_from_path) / "neyman"
    return folder_of(config, step)


def save(folder: Path, run: HostRun) -> None:
    """Write a run's state into a folder, which is made."""
    checkpoints.begin(folder)
    checkpoints.seal(folder, run.state())


def load(folder: Path, run: HostRun, *, accepts_stock: bool) -> None:
    """Restore a run's state, or begin it anew on a checkpoint of a run without neyman, where that is accepted.

    Raises:
        StateError: none of ours, damaged, of other prompts or another strategy; the message has the way out.
    """
    if folder.is_dir():  # also one that was never finished, which must not pass for verl's alone
        run.restore(_read(folder), folder)
        return
    if not accepts_stock:
        raise StateError(
            f"{folder.parent} was written without neyman: {run.terms.accept_change} to begin the strategy anew on its "
            "weights, or go on with trainer.v1.trainer_mode=sync"
        )
    run.warn(f"{folder.parent} was written without neyman: the strategy begins anew on its weights")


def _read(folder: Path) -> dict[str, Any]:
    try:
        return checkpoints.examine(folder)
    except checkpoints.FaultError as fault:
        raise StateError(
            f"{fault}. Resume from an earlier global_step folder (trainer.resume_mode=resume_path "
            "trainer.resume_from_path=...), put back a copy of this one, or start a new run with "
            "trainer.resume_mode=disable"
        ) from fault
