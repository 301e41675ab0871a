"""The part of a checkpoint that is the same in every trainer: of which prompts and strategy it is, and its state."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from neyman.controller import Controller
from neyman.errors import StateError
from neyman.hosts.identity import differences
from neyman.hosts.terms import Terms


def run_state(controller: Controller, prompts: str, strategy: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a checkpoint keeps of a run, JSON-safe.

    Args:
        controller: of the run.
        prompts: a hash of the training prompts.
        strategy: its description (`neyman.hosts.identity.describe`).
    """
    return {"prompts": prompts, "strategy": strategy, "controller": controller.state_dict()}


def restore_run(
    controller: Controller,
    state: Mapping[str, Any],
    *,
    where: object,
    prompts: str,
    strategy: Mapping[str, Any],
    accepts_change: bool,
    terms: Terms,
    warn: Callable[[str], None],
) -> None:
    """Restore what `run_state` returned, when it is of this run's prompts and strategy.

    Args:
        controller: fresh.
        state: what `run_state` returned.
        where: the file that it was read from, for messages.
        prompts: a hash of the training prompts here.
        strategy: the description of the strategy here.
        accepts_change: goes on under another strategy; a belief of other settings begins anew.
        terms: the trainer's step.
        warn: takes a warning.

    Raises:
        StateError: other prompts, another strategy, or a damaged state; the message has the way out.
    """
    if state.get("prompts") != prompts:
        raise StateError(
            f"{where} has prompts {state.get('prompts')!r}, this run has {prompts!r}: it is of another dataset; resume "
            f"with that of the run, or {terms.new_run}"
        )
    try:
        inner = _under_this_strategy(
            state, strategy, controller, where, accepts_change=accepts_change, terms=terms, warn=warn
        )
        controller.load_state_dict(inner)
    except StateError as error:
        raise StateError(f"{where}: {error}") from error


def _under_this_strategy(
    state: Mapping[str, Any],
    strategy: Mapping[str, Any],
    controller: Controller,
    where: object,
    *,
    accepts_change: bool,
    terms: Terms,
    warn: Callable[[str], None],
) -> Any:
    """Return the saved state of a controller, when it is of this run's strategy or the change is accepted."""
    saved, inner = state.get("strategy"), state.get("controller")
    changed = differences(saved, strategy)
    if not changed or not isinstance(inner, Mapping):
        return inner  # anything but a mapping is refused by the controller
    if not accepts_change:
        raise StateError(
            f"the run was trained under another strategy ({'; '.join(changed)}): resume with that one, or "
            f"{terms.accept_change} to go on under yours on purpose"
        )
    if (carried := inner.get("carried")) and not controller.strategy.max_age:
        zero, one = (terms.with_option("max_age", age) for age in (0, 1))
        raise StateError(
            f"the run carries {len(carried)} groups over to its next step, which {zero} leaves no place for: resume "
            f"under a strategy with {one}, or from another checkpoint"
        )
    if not isinstance(saved, Mapping) or saved.get("belief") != strategy["belief"]:
        warn(f"{where}: the strategy has another belief now, which starts anew")
        return {**inner, "belief": controller.strategy.belief.state_dict()}
    return inner
