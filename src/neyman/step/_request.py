"""Turning planned slots into requests: the only place where rollouts get their ids, draws and seeds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neyman.randomness import keyed_seed
from neyman.step._group import OUT, PLANNED, Group, Slot
from neyman.step.messages import Reason, Request

if TYPE_CHECKING:
    from neyman.step._engine import Engine

_URGENT = (Reason.RETRY, Reason.COMMIT, Reason.CONTINUE, Reason.RECOUNT, Reason.CARRIED)


def priority(reason: Reason) -> int:
    """Return 0 for what verdicts wait for, 1 for fresh prompts."""
    return 0 if reason in _URGENT else 1


def ask(engine: Engine, capacity: int | None) -> list[Request]:
    """Hand out planned slots, urgent groups first, within the capacity and the token budget."""
    requests, before = _again(engine, capacity), engine.asked
    if capacity is not None:
        capacity -= sum(len(request.rollout_ids) for request in requests)
    room = _token_room(engine, capacity)
    while (room is None or room > 0) and (index := engine.waiting.first()) is not None:
        asked = _requests(engine, index, room)
        requests += asked
        if room is not None:
            room -= sum(len(request.rollout_ids) for request in asked)
    if engine.asked > before and not engine.awaiting_round:
        engine.rounds += 1
        engine.awaiting_round = True
    return requests


def _again(engine: Engine, capacity: int | None) -> list[Request]:
    """Hand out what was out when the state was saved, under the same ids and seeds; it was paid for then."""
    wanted = [(index, slot) for index, slot in engine.lost if slot.state is OUT and index in engine.live]
    now, engine.lost = wanted[:capacity], wanted[len(wanted[:capacity]) :]
    by_group: dict[int, list[Slot]] = {}
    for index, slot in now:
        by_group.setdefault(index, []).append(slot)
    return [_message(engine, engine.groups[i], run) for i, slots in by_group.items() for run in _runs(slots)]


def _token_room(engine: Engine, capacity: int | None) -> int | None:
    """Return how many rollouts may be asked for now; None where only the plan limits them."""
    budget = engine.budget
    if budget.tokens is None or budget.tokens_per_rollout is None:
        return capacity
    free = int((budget.tokens - engine.tokens_told) // budget.tokens_per_rollout) - engine.out
    if free <= 0 and not engine.awaited:
        engine.close_plans()
    return max(0, free if capacity is None else min(free, capacity))


def _requests(engine: Engine, index: int, room: int | None) -> list[Request]:
    group = engine.groups[index]
    planned = [slot for slot in group.slots if slot.state is PLANNED]
    taken = planned[:room]
    if len(taken) == len(planned):
        engine.waiting.discard(index)
    step, where, retried = engine.step, engine.where, 0
    for rollout_id, slot in enumerate(taken, start=engine.next_rollout):
        slot.state, slot.step, slot.delivered = OUT, step, False
        slot.draw, slot.rollout_id = group.draws, rollout_id
        slot.tries += 1
        retried += slot.tries > 1
        group.draws += 1
        where[rollout_id] = (index, group, slot)
    engine.next_rollout += len(taken)
    engine.ledger.request(len(taken) - retried)
    engine.ledger.request(retried, retry=True)
    engine.out += len(taken)
    engine.asked += len(taken)
    return [_message(engine, group, run) for run in _runs(taken)]


def _message(engine: Engine, group: Group, run: list[Slot]) -> Request:
    return Request(
        prompt_id=group.prompt_id,
        rollout_ids=tuple(slot.rollout_id for slot in run if slot.rollout_id is not None),
        priority=priority(group.reason),
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
