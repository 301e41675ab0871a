"""Turning planned slots into requests: the only place where rollouts get their ids, draws and seeds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neyman.groups import Group, Slot, SlotState
from neyman.keyed import keyed_seed
from neyman.step import Reason, Request

if TYPE_CHECKING:
    from neyman.engine import Engine

_URGENT = (Reason.RETRY, Reason.COMMIT, Reason.CONTINUE, Reason.CARRIED)


def ask(engine: Engine, capacity: int | None) -> list[Request]:
    """Hand out planned slots, urgent groups first, within the capacity and the token budget."""
    room = _token_room(engine, capacity)
    order = sorted(engine.queue, key=lambda index: engine.groups[index].reason not in _URGENT)
    requests: list[Request] = []
    for index in order:
        if room is not None and room <= 0:
            break
        asked = _requests(engine, index, room)
        requests += asked
        if room is not None:
            room -= sum(len(request.rollout_ids) for request in asked)
    if requests and not engine.awaiting_round:
        engine.rounds += 1
        engine.awaiting_round = True
    return requests


def _token_room(engine: Engine, capacity: int | None) -> int | None:
    """Return how many rollouts may be asked for now; None where only the plan limits them."""
    budget = engine.budget
    if budget.tokens is None or budget.tokens_per_rollout is None:
        return capacity
    out = sum(slot.state is SlotState.OUT for group in engine.groups for slot in group.slots)
    free = int((budget.tokens - engine.tokens_told) // budget.tokens_per_rollout) - out
    if free <= 0 and not out:
        engine.close_plans()
    return max(0, free if capacity is None else min(free, capacity))


def _requests(engine: Engine, index: int, room: int | None) -> list[Request]:
    group = engine.groups[index]
    planned = [slot for slot in group.slots if slot.state is SlotState.PLANNED]
    taken = planned if room is None else planned[:room]
    if len(taken) == len(planned):
        engine.queue.pop(index, None)
    for slot in taken:
        if slot.reissue:
            slot.reissue = False
        else:
            engine.ledger.request(1, retry=slot.tries > 0)
            slot.draw, slot.rollout_id = group.draws, engine.next_rollout
            group.draws += 1
            engine.next_rollout += 1
            slot.tries += 1
        slot.state, slot.step, slot.delivered = SlotState.OUT, engine.step, False
        assert slot.rollout_id is not None
        engine.where[slot.rollout_id] = (index, group, slot)
    return [_message(engine, group, run) for run in _runs(taken)]


def _message(engine: Engine, group: Group, run: list[Slot]) -> Request:
    return Request(
        prompt_id=group.prompt_id,
        rollout_ids=tuple(slot.rollout_id for slot in run if slot.rollout_id is not None),
        priority=0 if group.reason in _URGENT else 1,
        seed=keyed_seed(engine.seed, engine.step, group.prompt_id) + run[0].draw,
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
