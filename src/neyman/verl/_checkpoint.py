"""Our part of a verl checkpoint: beliefs, ledger and counters in ``global_step_N/neyman``.

It is written before verl's own marker, ``latest_checkpointed_iteration.txt``, so that a checkpoint that verl would
resume has it whole.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from neyman._files import checkpoints
from neyman.controller import Controller
from neyman.errors import StateError
from neyman.hosts.identity import differences

_log = logging.getLogger("neyman")
_FRESH = "++neyman.accept_strategy_change=true"


def folder_of(config: Any, step: int) -> Path:
    """Return where the checkpoint of a step has our part."""
    return Path(config.trainer.default_local_dir) / f"global_step_{step}" / "neyman"


def resumed_folder(config: Any, step: int) -> Path:
    """Return our part of the checkpoint that verl has resumed."""
    if config.trainer.resume_mode == "resume_path":
        return Path(config.trainer.resume_from_path) / "neyman"
    return folder_of(config, step)


def save(folder: Path, controller: Controller, prompts: str, strategy: dict[str, Any]) -> None:
    """Write the controller's state.

    Args:
        folder: the part's folder; it is made.
        controller: between two steps.
        prompts: a hash of the training prompts.
        strategy: its description (`neyman.hosts.identity.describe`).
    """
    checkpoints.begin(folder)
    checkpoints.seal(
        folder, {"prompts": prompts, "strategy": strategy, "controller": controller.state_dict()}
    )


def load(
    folder: Path, controller: Controller, prompts: str, strategy: dict[str, Any], *, accepts_change: bool
) -> None:
    """Restore the controller's state.

    Args:
        folder: the part's folder.
        controller: fresh.
        prompts: a hash of the training prompts.
        strategy: its description.
        accepts_change: begin anew where the checkpoint is of a run without neyman, and let a belief of other
            settings begin anew.

    Raises:
        StateError: none of ours, damaged, of other prompts or another strategy; the message has the way out.
    """
    if not folder.is_dir():
        if not accepts_change:
            raise StateError(
                f"{folder.parent} was written without neyman: give {_FRESH} to begin the strategy anew on its weights, "
                "or go on with trainer.v1.trainer_mode=sync"
            )
        _log.warning("%s was written without neyman: the strategy begins anew on its weights", folder.parent)
        return
    state = _read(folder)
    if state.get("prompts") != prompts:
        raise StateError(
            f"{folder} is of another training set: resume with that of the run (data.train_max_samples with "
            "data.seed=null draws another at every start: set data.seed), or start a new run in another "
            "trainer.default_local_dir"
        )
    saved, changed = state.get("strategy"), differences(state.get("strategy"), strategy)
    if changed and not accepts_change:
        raise StateError(
            f"{folder} was written under another strategy ({'; '.join(changed)}): resume with that one, or give "
            f"{_FRESH} to go on under yours on purpose"
        )
    inner = state.get("controller")
    if changed and isinstance(inner, dict) and not _has_belief(saved, strategy):
        _log.warning("%s: the strategy has another belief now, which starts anew", folder)
        inner = {**inner, "belief": controller.strategy.belief.state_dict()}
    try:
        controller.load_state_dict(inner)  # type: ignore[arg-type]  # what it is no mapping of, it says
    except StateError as error:
        raise StateError(f"{folder}: {error}") from error


def _has_belief(saved: Any, strategy: dict[str, Any]) -> bool:
    return isinstance(saved, dict) and saved.get("belief") == strategy["belief"]


def _read(folder: Path) -> dict[str, Any]:
    try:
        return checkpoints.examine(folder)
    except checkpoints.FaultError as fault:
        raise StateError(
            f"{fault}. Resume from an earlier global_step folder (trainer.resume_mode=resume_path "
            "trainer.resume_from_path=...), put back a copy of this one, or start a new run with "
            "trainer.resume_mode=disable"
        ) from fault
