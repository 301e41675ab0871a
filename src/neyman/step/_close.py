"""How a step closes: which groups train, what every rollout's fate is, and what the belief learns."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from neyman import formulas
from neyman.step._group import VALID, Group, Phase, Slot
from neyman.step._replacement import group_copies
from neyman.step._report import step_metrics
from neyman.step._spares import mark_spare, rows_needed, spare_slots
from neyman.step.ledger import Fate
from neyman.step.messages import Batch, GroupReport, StopReason, row_advantages

if TYPE_CHECKING:
    from neyman.step._engine import Engine

Row = tuple[int, Group, Slot]  # a group's place in the batch (-1 for copies), the group, and one of its slots


def close_batch(
    engine: Engine, *, fill: str, aggregation: str, divisor: int, ended_early: bool, drain: bool
) -> Batch:
    """Build the batch of a step and settle its account.

    Args:
        engine: the step's state, with nothing left to decide.
        fill: "copies" fills to ``train_rows``, or to a multiple of ``divisor``, with rows of weight 0.
        aggregation: how the host's loss averages tokens.
        divisor: rows come in multiples of it.
        ended_early: the host wants no more of what was planned.
        drain: hand out the groups closed so far and leave the step open.
    """
    fresh = [i for i in range(len(engine.groups)) if i not in engine.drained]
    if drain:
        fresh = [] if engine.recount_pending else [i for i in fresh if _is_closed(engine, i)]
    groups = [engine.groups[i] for i in fresh]
    trained = _trained(engine, groups, padded=fill == "copies")
    for group in trained:
        mark_spare(engine, group)
    rows = [
        (place, group, slot)
        for place, group in enumerate(trained)
        for slot in group.slots
        if not slot.spare and (slot.state is VALID or (fill == "copies" and slot.delivered))
    ]
    real_rows = sum(slot.state is VALID for _, _, slot in rows)
    if fill == "copies":
        rows += _filler(
            engine, rows, (engine.train_rows or math.ceil(len(rows) / divisor) * divisor) - len(rows)
        )
    reason = StopReason.OPEN if drain else _stop_reason(engine, len(trained), ended_early=ended_early)
    finding = None if engine.strategy.verdict is None else engine.waves.audit()
    if not drain and finding is not None:
        engine.waves.observed.add(finding)
        engine.waves.observed.warn(engine.waves.size)
    report = step_metrics(
        engine, groups if drain else engine.groups, trained, finding, rows=len(rows), real_rows=real_rows
    )
    copies = group_copies(engine, trained)
    if engine.strategy.keep is not None:
        report["rollouts_spare"] = float(len(spare_slots(trained)))
    if engine.strategy.dead_groups == "replace":
        report["groups_replaced"] = float((copies == 0).sum())
    batch = _batch(engine, trained, rows, copies, reason, report, aggregation)
    _learn(engine, groups)
    if engine.strategy.verdict is None or len(engine.waves.looks) == 1:
        engine.dead.watch([group for group in groups if not group.carried], engine.strategy.belief)
    if engine.strategy.replay_age:
        report["rows_replayed"] = float(sum(slot.replayed for _, _, slot in rows[:real_rows]))
        engine.memory.learn(groups, engine.step)
    _settle_fates(engine, groups, trained)
    engine.drained.update(fresh)
    if not drain:
        report |= engine.ledger.close_step()
    return batch


def _is_closed(engine: Engine, index: int) -> bool:
    return index not in engine.live and not engine.groups[index].out()


def _trained(engine: Engine, groups: list[Group], *, padded: bool) -> list[Group]:
    """Return the groups that train, in the order in which they were opened.

    Where rows are filled, a delivered group without any reward keeps its rows too: the host holds them.
    """
    strategy, target = engine.strategy, engine.waves.target
    if strategy.close == "fixed_train":
        chosen = [g for g in groups if g.phase is Phase.COMMITTED and g.is_trainable]
    else:
        chosen = [
            g for g in groups if g.outcomes()[1] or (padded and any(slot.delivered for slot in g.slots))
        ]
    if strategy.incomplete == "drop":
        chosen = [group for group in chosen if not group.is_short]
    if strategy.close != "fixed_train" or target is None:
        return chosen
    # Complete groups first: each short one costs rows. Sizes may differ between steps, so rows are counted too.
    room, taken = engine.train_rows or 0, set[int]()
    for place in sorted(range(len(chosen)), key=lambda place: chosen[place].is_short):
        needs = rows_needed(engine, chosen[place])
        if len(taken) < target and needs <= room:
            taken.add(place)
            room -= needs
    return [chosen[place] for place in sorted(taken)]


def _filler(engine: Engine, rows: list[Row], missing: int) -> list[Row]:
    """Return copies to fill the batch: of its own rows, else of anything that was generated."""
    source = [(group, slot) for _, group, slot in rows] or [
        (group, slot)
        for group in engine.groups
        for slot in group.slots
        if slot.state is VALID or slot.delivered
    ]
    return [(-1, *source[i % len(source)]) for i in range(missing)] if source else []


def _stop_reason(engine: Engine, trained: int, *, ended_early: bool) -> StopReason:
    if ended_early:
        return StopReason.HOST
    if engine.groups and not any(group.outcomes()[1] for group in engine.groups):
        return StopReason.FAILED
    target = engine.waves.target if engine.strategy.close == "fixed_train" else None
    if target is not None and trained >= target:
        return StopReason.FILLED
    if engine.was_cut:
        return StopReason.BUDGET
    if engine.exhausted and (engine.left > 0 or target is not None):
        return StopReason.POOL
    return StopReason.COMPLETE if target is None else StopReason.BUDGET


def _settle_fates(engine: Engine, groups: list[Group], trained: list[Group]) -> None:
    in_batch = {id(group) for group in trained}
    keep = engine.strategy.max_age > 0 and engine.strategy.close == "fixed_train"
    for group in groups:
        is_spare = group.phase in (Phase.COMMITTED, Phase.SURPLUS) and id(group) not in in_batch
        fate = _fate(engine, group, in_batch=id(group) in in_batch)
        carried = keep and is_spare and group.is_trainable and engine.waves.is_wanted(group)
        engine.reports.append(_report(group, "carried" if carried else fate.name.lower()))
        if carried:
            engine.carried.append(group)
            continue
        drawn = [slot for slot in group.valid() if not slot.replayed]
        for spare, end in ((False, fate), (True, Fate.SURPLUS)):
            tokens = [slot.n_tokens for slot in drawn if slot.spare is spare]
            if tokens:
                engine.ledger.settle(end, sum(tokens), len(tokens))


def _fate(engine: Engine, group: Group, *, in_batch: bool) -> Fate:
    if in_batch:
        return Fate.TRAINED if group.is_mixed else Fate.UNIFORM
    if group.phase is Phase.ABANDONED:
        return Fate.ABANDONED
    lacking = group.phase in (Phase.OPEN, Phase.UNFINISHED) or not group.outcomes()[1]
    return (
        Fate.DROPPED if lacking or (engine.strategy.incomplete == "drop" and group.is_short) else Fate.SURPLUS
    )


def _report(group: Group, outcome: str) -> GroupReport:
    successes, trials = group.drawn_outcomes()
    return GroupReport(
        prompt_id=group.prompt_id,
        predicted=group.predicted,
        uncertainty=group.uncertainty,
        rollouts=group.draws,
        successes=successes,
        trials=trials,
        outcome=outcome,
        reason=group.reason.value,
        spare=sum([slot.spare for slot in group.valid()]),
    )


def _learn(engine: Engine, groups: list[Group]) -> None:
    """Update the belief with this step's valid outcomes, trained or not."""
    ids, successes, trials = [], [], []
    for group in groups:
        new = [slot.success for slot in group.valid() if slot.step == engine.step]
        if new:
            ids.append(group.prompt_id)
            successes.append(sum(new))
            trials.append(len(new))
    if ids:
        engine.strategy.belief.update(ids, successes, trials)


def _batch(
    engine: Engine,
    trained: list[Group],
    rows: list[Row],
    group_copies: NDArray[np.int64],
    reason: StopReason,
    report: dict[str, float],
    aggregation: str,
) -> Batch:
    strategy, slots = engine.strategy, [slot for _, _, slot in rows]
    counted = np.array([at >= 0 and s.state is VALID for at, _, s in rows], dtype=bool)
    groups = np.array([place for place, _, _ in rows], dtype=np.int64)
    rewards = np.where(counted, np.array([slot.reward for slot in slots], dtype=np.float64), np.nan)
    success = np.where(counted, np.array([slot.success for slot in slots], dtype=np.float64), np.nan)
    live = counted
    if strategy.dead_groups == "exclude" and trained:
        live = counted & np.array([group.is_mixed for group in trained], dtype=bool)[groups]
    copies = np.where(groups >= 0, group_copies[groups] if trained else 0, 0)
    spares = spare_slots(trained) if strategy.baseline == "group" else []
    spare_rewards = np.array([slot.reward for _, slot in spares], dtype=np.float64)
    spare_groups = np.array([place for place, _ in spares], dtype=np.int64)
    return Batch(
        rollout_ids=np.array([slot.rollout_id for slot in slots], dtype=np.int64),
        prompt_ids=tuple(group.prompt_id for _, group, _ in rows),
        groups=groups,
        rewards=rewards,
        success=success,
        advantages=row_advantages(rewards, groups, strategy.estimator, spare_rewards, spare_groups),
        weights=_weights(groups, slots, live & (copies > 0), copies, strategy.prompt_weight, aggregation),
        age=np.array([engine.step - slot.step for slot in slots], dtype=np.int64),
        policy_version=np.array([slot.policy_version for slot in slots], dtype=np.int64),
        stop_reason=reason,
        report=report,
        estimator=strategy.estimator,
        counted=counted,
        copies=copies,
        spare_ids=np.array([slot.rollout_id for _, slot in spares], dtype=np.int64),
        spare_groups=spare_groups,
        spare_rewards=spare_rewards,
    )


def _weights(
    groups: NDArray[np.int64],
    slots: list[Slot],
    live: NDArray[np.bool_],
    copies: NDArray[np.int64],
    prompt_weight: str,
    aggregation: str,
) -> NDArray[np.float64]:
    if not live.any():
        return np.zeros(len(groups))
    tokens = np.array([slot.n_tokens for slot in slots], dtype=np.float64)
    if not tokens.any():  # a host that does not count them: rows are taken to be equally long
        tokens[:] = 1.0
    return formulas.prompt_weights(
        groups,
        tokens,
        prompt_weight=prompt_weight,
        aggregation=aggregation,
        trained=live,
        copies=copies if (copies > 1).any() else None,
    )
