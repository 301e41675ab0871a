"""The removal of old checkpoints: put off until the new one is whole, and then by step, not by the clock."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from neyman._files import checkpoints
from neyman.trl._host import ARGUMENT_WRITERS, replaced


@contextmanager
def held_back(trainer: Any) -> Iterator[None]:
    """Let the trainer keep all checkpoints in the block, whatever ``save_total_limit`` is.

    The ``training_args.bin`` that it writes meanwhile have the limit.
    """
    limit = trainer.args.save_total_limit

    def under_limit(method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            with replaced(trainer.args, "save_total_limit", limit):
                return method(*args, **kwargs)

        return call

    with ExitStack() as after:
        for name in ARGUMENT_WRITERS:
            after.enter_context(replaced(trainer, name, under_limit(getattr(trainer, name))))
        after.enter_context(replaced(trainer.args, "save_total_limit", None))
        yield


def rotate(trainer: Any, sealed: Path) -> None:
    """Remove the oldest checkpoints beyond ``save_total_limit``.

    Kept are the one that was just sealed, the best one, and of the others the newest that are whole, as many as the
    limit leaves room for. Their steps order them, as clocks go back and a removal that was killed makes a folder look
    new. A run's steps only grow, so that checkpoints beyond the one just sealed are of an earlier run in
    the same folder, or of before this one was taken back: those go first.

    Guarantee: only what neyman wrote is removed, in folders named ``checkpoint-N`` in full.
    Cost: a read of ``neyman_state.json`` for each one kept, but for those two.
    """
    limit = trainer.args.save_total_limit
    if limit is None or limit <= 0:
        return
    step, best = checkpoints.step_of(sealed), trainer.state.best_model_checkpoint
    safe = {sealed.resolve(), *([] if best is None else [Path(best).resolve()])}
    found = checkpoints.numbered(sealed.parent)
    others = [folder for folder in found if folder.resolve() not in safe]
    room = limit - (len(found) - len(others))
    # The folders come newest step first, and sorting keeps that order within each half.
    for folder in sorted(others, key=lambda folder: checkpoints.step_of(folder) > step):
        if checkpoints.is_unfinished(folder):
            if checkpoints.step_of(folder) < step:
                checkpoints.remove(folder)
        elif room > 0:
            room -= checkpoints.is_whole(folder)
        elif (folder / checkpoints.STATE_FILE).exists():
            checkpoints.remove(folder)
