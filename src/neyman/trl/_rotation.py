"""The trainer's own removal of old checkpoints, put off until the new one is whole."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from transformers import trainer_utils


@contextmanager
def held_back(trainer: Any) -> Iterator[None]:
    """Let the trainer keep all checkpoints in the block, whatever ``save_total_limit`` says."""
    limit = trainer.args.save_total_limit
    trainer.args.save_total_limit = None
    try:
        yield
    finally:
        trainer.args.save_total_limit = limit


def rotate(trainer: Any, output_dir: Path) -> None:
    """Remove the oldest checkpoints beyond ``save_total_limit``, in the trainer's own way.

    Args:
        trainer: the trainer; it has just finished a checkpoint.
        output_dir: the folder of its checkpoints.
    """
    if hasattr(trainer, "_rotate_checkpoints"):  # transformers 4
        trainer._rotate_checkpoints(use_mtime=True, output_dir=str(output_dir))  # noqa: SLF001
        return
    trainer_utils.rotate_checkpoints(
        output_dir=str(output_dir),
        save_total_limit=trainer.args.save_total_limit,
        best_model_checkpoint=trainer.state.best_model_checkpoint,
        use_mtime=True,
    )
