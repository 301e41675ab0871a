"""Requests from slots that are handed out: their ids, draws and seeds, and the room that the token budget leaves."""

from __future__ import annotations

from collections.abc import Sequence

from neyman.randomness import keyed_seed
from neyman.step._group import Slot
from neyman.step._queue import priority
from neyman.step._state import StepState
from neyman.step.messages import Request


def requests(state: StepState, slots: Sequence[tuple[int, Slot]]) -> list[Request]:
    """Return the requests for slots that were handed out, given with the index of their group."""
    by_group: dict[int, list[Slot]] = {}
    for index, slot in slots:
        by_group.setdefault(index, []).append(slot)
    return [_request(state, index, run) for index, handed in by_group.items() for run in _runs(handed)]


def token_room(state: StepState) -> int | None:
    """Return the rollouts that the token budget allows beside those that are out; None where no tokens are bounded."""
    budget = state.budget
    if budget.tokens is None or budget.tokens_per_rollout is None:
        return None
    return int((budget.tokens - state.tokens_received) // budget.tokens_per_rollout) - state.out


def _request(state: StepState, index: int, run: list[Slot]) -> Request:
    group = state.groups[index]
    return Request(
        prompt_id=group.prompt_id,
        rollout_ids=tuple(slot.rollout_id for slot in run if slot.rollout_id is not None),
        priority=priority(group.reason),
        seed=keyed_seed(state.seed, state.step, group.prompt_id) + run[0].draw,
        reason=group.reason,
    )


def _runs(slots: list[Slot]) -> list[list[Slot]]:
    """Split slots where their draws are not consecutive, so that the j-th of a request has seed + j."""
    runs: list[list[Slot]] = []
    for slot in slots:
        if runs and runs[-1][-1].draw + 1 == slot.draw:
            runs[-1].append(slot)
        else:
            runs.append([slot])
    return runs
