"""A controller's state beside its belief: how it is saved, how it becomes a step again, and when it is damaged."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from neyman._checks import integer
from neyman.errors import NeymanError, StateError
from neyman.randomness import PromptId
from neyman.step._engine import Engine
from neyman.step._group import Group, Phase, Slot, SlotState
from neyman.step._state import COUNTERS, FLAGS, StepState
from neyman.step.pool import Pool

_WHOLE = {
    Slot: ("draw", "tries", "n_tokens", "policy_version", "step"),
    Group: ("size", "looked", "draws", "stopped_at", "settled"),
}
_FLAGS = {Slot: ("success", "delivered", "protected", "spare", "replayed"), Group: ("carried",)}
_INT64 = 2**63 - 1  # the largest number of a batch
_MOST = {"n_tokens": 2**1000, "step": 2**53}  # tokens of fragments add up, and are computed with as floats


def state_of(engine: Engine, late: Mapping[int, PromptId], *, is_open: bool) -> dict[str, Any]:
    """Return the state, JSON-safe; ``late`` are rollouts of closed steps that are still out, with their prompts."""
    pool = engine.state.pool
    return {
        "seed": engine.state.seed,
        "fingerprint": None if pool is None else pool.fingerprint,
        "pool": None if pool is None else pool.state_dict(),
        "late": [[rollout_id, prompt_id] for rollout_id, prompt_id in late.items()],
        "open": engine.open_state() if is_open else None,
        **engine.state.state_dict(),
    }


def restored(old: Engine, state: Mapping[str, Any]) -> tuple[Engine, dict[int, PromptId]]:
    """Return the step and the late rollouts of a saved state, under the strategy and the limits of ``old``.

    ``old`` is a step of the same controller, which is left alone.

    Raises:
        StateError: a part that cannot be read, does not read back as it was saved, or does not fit the others.
    """
    with readable("the controller state"):
        seed = integer("seed", state["seed"])
        before = old.state
        pool = None if before.pool is None else Pool(before.pool.ids, seed=seed)
        if pool is not None:
            pool.load_state_dict(state["pool"])
        engine = Engine(
            StepState(
                before.strategy,
                before.budget,
                train_rows=before.train_rows,
                pool=pool,
                seed=seed,
                retries=before.retry_share,
            )
        )
        engine.state.load_state_dict(state)
        is_open = state["open"] is not None
        if is_open:
            engine.load_open(state["open"])
        late: dict[int, PromptId] = dict(state["late"])
        check_sound(engine.state, late, is_open=is_open)
        check_reread(state, state_of(engine, late, is_open=is_open))
    return engine, late


@contextmanager
def readable(part: str) -> Iterator[None]:
    """Turn any error that a damaged state causes into a `StateError` that names the part."""
    try:
        yield
    except StateError:
        raise
    except (NeymanError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise StateError(
            f"{part} is damaged, or was written by another neyman ({type(error).__name__}: {error})"
        ) from error


def check_reread(saved: Mapping[str, Any], reread: Mapping[str, Any]) -> None:
    """Refuse a state that does not read back as it was saved; the `StateError` names the part that differs."""
    for key, value in reread.items():
        if json.dumps(saved[key], sort_keys=True) != json.dumps(value, sort_keys=True):
            raise StateError(
                f"the {key!r} of the controller state does not read back as it was saved, so it is damaged"
            )


def check_sound(state: StepState, late: Mapping[int, PromptId], *, is_open: bool) -> None:
    """Refuse a restored step whose account does not balance, or that cannot go on.

    The `StateError` names the first thing that does not fit. Cost: O(rollouts held).
    """
    groups = [*state.groups, *state.carried]
    slots = [slot for group in groups for slot in group.slots]
    _types(groups, [*slots, *state.right_answers.slots])
    ids = [slot.rollout_id for slot in slots if slot.rollout_id is not None and not slot.replayed]
    prompts = [group.prompt_id for group in state.groups]
    whole = (state.step, state.clock, state.next_rollout)
    _expect(all(_is_count(n, _INT64) for n in whole), "a counter is no whole number")
    _expect(state.step <= _MOST["step"], "the step is beyond the last")
    _expect(state.clock >= state.step, "the belief's clock is behind the step")
    _expect(math.isfinite(state.passes) and state.passes >= 0.0, "the passes are no number >= 0")
    _expect(len(set(prompts)) == len(prompts), "a prompt is open twice")
    _expect(len({*ids, *late}) == len(ids) + len(late), "a rollout stands in two places")
    _expect(all(0 <= i < state.next_rollout for i in (*ids, *late)), "a rollout was never given out")
    _expect(all(type(p) in (str, int) for p in late.values()), "a late rollout has no prompt")
    kept = [group for i, group in enumerate(state.groups) if i not in state.drained] + state.carried
    held = sum(not slot.replayed for group in kept for slot in group.valid())
    out = sum(slot.state is SlotState.OUT for slot in slots)
    ledger = state.ledger
    _expect(ledger.requested == out + len(late) + held + ledger.rollouts(), "the account does not balance")
    _expect(ledger.is_whole, "the account holds an entry that is no count")
    if is_open:
        _open(state)


def _types(groups: list[Group], slots: list[Slot]) -> None:
    for kind, items in ((Slot, slots), (Group, groups)):
        for item in items:
            _expect(
                all(_is_count(getattr(item, name), _MOST.get(name, _INT64)) for name in _WHOLE[kind])
                and all(type(getattr(item, name)) is bool for name in _FLAGS[kind]),
                f"a {kind.__name__.lower()} holds an entry that is no count or no flag",
            )
    for slot in slots:
        _expect(
            slot.rollout_id is None or (type(slot.rollout_id) is int and slot.rollout_id >= 0),
            "a rollout's id is no whole number",
        )
        is_asked = slot.state in (SlotState.OUT, SlotState.VALID)
        _expect(slot.rollout_id is not None or not is_asked, "a result belongs to no rollout")
        is_scored = isinstance(slot.reward, float) and math.isfinite(slot.reward)
        _expect(is_scored or slot.state is not SlotState.VALID, "a valid result has no reward")
        _expect(
            type(slot.trajectory_id) in (str, int, type(None)),
            "a trajectory's name is neither text nor number",
        )
    for group in groups:
        a, b = group.prior
        numbers = (group.predicted, group.uncertainty, a, b)
        _expect(all(type(n) is float for n in numbers) and min(a, b) > 0.0, "a prior is none")
        _expect(type(group.prompt_id) in (str, int), "a prompt's id is neither text nor number")
        _expect(all(type(n) is int and n >= 1 for n in group.looks), "a look is no length")
        _expect(
            group.committed in (None, True, False) and type(group.committed) is not int, "a verdict is none"
        )
        _expect(0 <= group.settled <= len(group.slots), "more is settled than a group holds")
        _expect(all(slot.resolved for slot in group.slots[: group.settled]), "an open slot counts as settled")
        _expect(0 <= group.looked < max(1, len(group.looks)), "more looks were taken than there are")


def _open(state: StepState) -> None:
    groups, live = state.groups, state.live
    counters = [getattr(state, name) for name in COUNTERS]
    _expect(all(type(n) is int and n >= 0 for n in counters), "a counter of the open step is none")
    _expect(all(type(getattr(state, name)) is bool for name in FLAGS), "a flag of the open step is none")
    _expect(_is_count(state.policy_version, _INT64), "the policy's version is no whole number")
    _expect(type(state.first_error) in (str, type(None)), "the first error is no text")
    _expect(all(type(i) in (str, int) for i in state.candidates), "a candidate is neither text nor number")
    indices = {*live, *state.drained}
    _expect(
        all(type(i) is int and 0 <= i < len(groups) for i in indices), "a group is in play that is not there"
    )
    planned = sum(slot.state is SlotState.PLANNED for group in groups for slot in group.slots)
    whole = state.asked + planned + state.left + state.retries_left
    spent = state.budget.planned_rollouts + state.allowance
    adds_up = whole == spent or (state.was_cut and whole <= spent)
    _expect(adds_up, "its budget does not add up (or it was saved under another one)")
    for index, group in enumerate(groups):
        is_planned = any(slot.state is SlotState.PLANNED for slot in group.slots)
        _expect(index in live or not is_planned, "a group out of play still asks for rollouts")
        _expect(index not in live or group.prefix < len(group.slots), "a group in play awaits nothing")
        _expect(
            index not in live or group.phase in (Phase.OPEN, Phase.COMMITTED), "a group in play has ended"
        )


def _is_count(value: object, most: int) -> bool:
    return type(value) is int and -1 <= value <= most


def _expect(is_so: bool, otherwise: str) -> None:
    if not is_so:
        raise StateError(f"the controller state is damaged, as {otherwise}")
