"""How a step closes: which groups train, what every rollout's fate is, and what the belief learns."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from neyman import formulas
from neyman.groups import Group, Phase, Slot, SlotState
from neyman.ledger import Fate
from neyman.metrics import step_metrics
from neyman.step import Batch, GroupReport, StopReason

if TYPE_CHECKING:
    from neyman.engine import Engine

Row = tuple[int, Slot]  # a group's place in the batch, and one of its slots


def close_batch(
    engine: Engine, *, fill: str, aggregation: str, drain: bool = False
) -> tuple[Batch, set[int]]:
    """Build the batch of a step and settle its account.

    Args:
        engine: the step's state, with nothing left to decide.
        fill: "copies" fills to ``train_rows`` with rows of weight 0, "none" does not.
        aggregation: how the host's loss averages tokens.
        drain: hand out the groups closed so far and leave the step open.

    Returns:
        The batch, and the ids of rollouts that are still out.
    """
    fresh = [i for i in range(len(engine.groups)) if i not in engine.drained]
    if drain:
        fresh = [i for i in fresh if i not in engine.live]
    trained = _trained(engine, [engine.groups[i] for i in fresh])
    rows = _rows(trained, padded=fill == "copies")
    real_rows = sum(slot.state is SlotState.VALID for _, slot in rows)
    reason = _stop_reason(engine, real_rows)
    if fill == "copies" and engine.train_rows is not None:
        rows += _filler(engine, rows, engine.train_rows - len(rows))
    late = set() if drain else _still_out(engine)
    _learn(engine, [engine.groups[i] for i in fresh])
    report = step_metrics(engine, trained, rows=len(rows), real_rows=real_rows)
    batch = _batch(engine, trained, rows, reason, report, aggregation)
    _settle_fates(engine, fresh, trained)
    engine.drained.update(fresh)
    if not drain:
        report |= engine.ledger.close_step()
    return batch, late


def _trained(engine: Engine, groups: Iterable[Group]) -> list[Group]:
    """Return the groups that train, in the order in which they were opened."""
    strategy = engine.strategy
    chosen = []
    for group in groups:
        valid = group.outcomes()[1]
        short = valid < len(group.slots) or valid < group.size
        if not valid or (short and strategy.incomplete == "drop"):
            continue
        if strategy.close == "fixed_train" and not (group.phase is Phase.COMMITTED and group.is_mixed):
            continue
        chosen.append(group)
    return chosen[: engine.waves.target] if strategy.close == "fixed_train" else chosen


def _rows(trained: list[Group], *, padded: bool) -> list[Row]:
    """Return the rows in order; a delivered rollout without reward keeps its place where rows are filled."""
    return [
        (place, slot)
        for place, group in enumerate(trained)
        for slot in group.slots
        if slot.state is SlotState.VALID or (padded and slot.delivered)
    ]


def _filler(engine: Engine, rows: list[Row], missing: int) -> list[Row]:
    """Return copies to fill the batch: of its own rows, else of anything that was generated."""
    if missing <= 0:
        return []
    source = [slot for _, slot in rows] or [
        slot
        for group in engine.groups
        for slot in group.slots
        if slot.state is SlotState.VALID or slot.delivered
    ]
    return [(-1, source[i % len(source)]) for i in range(missing)] if source else []


def _stop_reason(engine: Engine, real_rows: int) -> StopReason:
    if any(slot.state is SlotState.OUT for i in engine.live for slot in engine.groups[i].slots):
        return StopReason.HOST
    told = any(slot.state is SlotState.VALID for group in engine.groups for slot in group.slots)
    if engine.groups and not told:
        return StopReason.FAILED
    if engine.strategy.close == "fixed_train" and engine.train_rows is not None:
        if real_rows >= engine.train_rows:
            return StopReason.FILLED
        return StopReason.POOL if engine.exhausted else StopReason.BUDGET
    return StopReason.POOL if engine.exhausted and engine.left > 0 else StopReason.COMPLETE


def _settle_fates(engine: Engine, fresh: list[int], trained: list[Group]) -> None:
    in_batch = {id(group) for group in trained}
    keep = engine.strategy.max_age > 0 and engine.strategy.close == "fixed_train"
    for group in (engine.groups[i] for i in fresh):
        valid = [slot for slot in group.slots if slot.state is SlotState.VALID]
        carry = keep and group.is_mixed and id(group) not in in_batch
        if id(group) in in_batch:
            fate = Fate.TRAINED if group.is_mixed else Fate.UNIFORM
        elif group.phase is Phase.ABANDONED:
            fate = Fate.ABANDONED
        elif group.phase is Phase.SURPLUS or engine.strategy.incomplete == "keep":
            fate = Fate.SURPLUS
        else:
            fate = Fate.DROPPED
        engine.reports.append(_report(group, engine.step, "carried" if carry else fate.name.lower()))
        if carry:
            group.slots = valid
            engine.carried.append(group)
            continue
        for slot in valid:
            engine.ledger.settle(fate, slot.n_tokens)


def _report(group: Group, step: int, outcome: str) -> GroupReport:
    successes, trials = group.outcomes()
    return GroupReport(
        prompt_id=group.prompt_id,
        predicted=group.predicted,
        uncertainty=group.uncertainty,
        rollouts=sum(slot.tries for slot in group.slots if slot.step == step),
        successes=successes,
        trials=trials,
        outcome=outcome,
        reason=group.reason.value,
    )


def _learn(engine: Engine, groups: list[Group]) -> None:
    """Update the belief with this step's valid outcomes, trained or not."""
    ids, successes, trials = [], [], []
    for group in groups:
        new = [s for s in group.slots if s.state is SlotState.VALID and s.step == engine.step]
        if new:
            ids.append(group.prompt_id)
            successes.append(sum(slot.success for slot in new))
            trials.append(len(new))
    if ids:
        engine.strategy.belief.update(ids, successes, trials)


def _still_out(engine: Engine) -> set[int]:
    return {
        slot.rollout_id
        for group in engine.groups
        for slot in group.slots
        if slot.state is SlotState.OUT and slot.rollout_id is not None
    }


def _batch(
    engine: Engine,
    trained: list[Group],
    rows: list[Row],
    reason: StopReason,
    report: dict[str, float],
    aggregation: str,
) -> Batch:
    strategy = engine.strategy
    counts = np.array([place >= 0 and slot.state is SlotState.VALID for place, slot in rows], dtype=bool)
    groups = np.array([place for place, _ in rows], dtype=np.int64)
    rewards = np.array([slot.reward if ok else math.nan for (_, slot), ok in zip(rows, counts, strict=True)])
    success = np.array(
        [float(s.success) if ok else math.nan for (_, s), ok in zip(rows, counts, strict=True)]
    )
    tokens = np.array([slot.n_tokens for _, slot in rows], dtype=np.float64)
    mixed = np.array([group.is_mixed for group in trained], dtype=bool)
    live = counts & mixed[groups] if strategy.dead_groups == "exclude" and len(trained) else counts

    def advantage(values: NDArray[np.float64], labels: NDArray[np.int64]) -> NDArray[np.float64]:
        if not len(values):
            return np.zeros(0)
        return formulas.group_advantages(
            np.where(counts, values, np.nan), labels, estimator=strategy.estimator
        )

    return Batch(
        rollout_ids=np.array([slot.rollout_id for _, slot in rows], dtype=np.int64),
        prompt_ids=tuple(_owner(engine, slot) for _, slot in rows),
        groups=groups,
        rewards=rewards.astype(np.float64),
        success=success.astype(np.float64),
        advantages=advantage(rewards.astype(np.float64), groups),
        weights=_weights(groups, tokens, live, strategy.prompt_weight, aggregation),
        age=np.array([engine.step - slot.step for _, slot in rows], dtype=np.int64),
        policy_version=np.array([slot.policy_version for _, slot in rows], dtype=np.int64),
        stop_reason=reason,
        report=report,
        _advantage=advantage,
    )


def _owner(engine: Engine, slot: Slot) -> str | int:
    assert slot.rollout_id is not None
    return engine.where[slot.rollout_id][1].prompt_id


def _weights(
    groups: NDArray[np.int64],
    tokens: NDArray[np.float64],
    trained: NDArray[np.bool_],
    prompt_weight: str,
    aggregation: str,
) -> NDArray[np.float64]:
    if not trained.any():
        return np.zeros(len(groups))
    return formulas.prompt_weights(
        groups, tokens, prompt_weight=prompt_weight, aggregation=aggregation, trained=trained
    )
