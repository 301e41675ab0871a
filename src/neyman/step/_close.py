"""The end of a step: which groups train, the fate of every rollout, and the outcomes that the belief learns from."""

from __future__ import annotations

from neyman.step._batch import Shape, batch_rows, build_batch, group_copies, spare_slots
from neyman.step._engine import Engine
from neyman.step._group import Group, Phase, Slot
from neyman.step._report import step_metrics
from neyman.step._state import StepState
from neyman.step.batch import Batch
from neyman.step.ledger import Fate
from neyman.step.messages import GroupReport, StopReason


def close_batch(engine: Engine, shape: Shape, *, ended_early: bool, drain: bool) -> Batch:
    """Build the batch of a step that has nothing left to decide, and settle its account.

    With ``drain`` only the groups closed so far are handed out, and the step stays open.
    """
    state, planner = engine.state, engine.planner
    fresh = [i for i in range(len(state.groups)) if i not in state.drained]
    if drain:
        fresh = [] if planner.is_pending else [i for i in fresh if _is_closed(state, i)]
    groups = [state.groups[i] for i in fresh]
    trained = _trained(engine, groups, padded=shape.fill == "copies")
    for group in trained:
        if (kept := _kept(state, group)) is not None:
            group.keep(kept)
    rows, real_rows = batch_rows(state, trained, shape)
    reason = StopReason.OPEN if drain else _stop_reason(engine, len(trained), ended_early=ended_early)
    reported = groups if drain else state.groups
    report = step_metrics(state, reported, trained, rows=len(rows), real_rows=real_rows)
    report |= planner.audit(is_final=not drain)
    copies = group_copies(state, trained)
    if state.strategy.keep is not None:
        report["rollouts_spare"] = float(len(spare_slots(trained)))
    if state.strategy.dead_groups == "replace":
        report["groups_replaced"] = float((copies == 0).sum())
    batch = build_batch(
        state, trained, rows, copies, reason=reason, report=report, aggregation=shape.aggregation
    )
    _learn(state, groups)
    if planner.sees_whole_groups:
        state.dead.watch([group for group in groups if not group.carried], state.strategy.belief)
    if state.strategy.replay_age:
        report["rows_replayed"] = float(sum(slot.replayed for _, _, slot in rows[:real_rows]))
        state.right_answers.learn(groups, state.step)
    _settle_fates(engine, groups, trained)
    state.drain(fresh)
    if not drain:
        report |= state.ledger.close_step()
    return batch


def _is_closed(state: StepState, index: int) -> bool:
    return index not in state.live and not state.groups[index].out()


def _trained(engine: Engine, groups: list[Group], *, padded: bool) -> list[Group]:
    """Return the groups that train, in the order in which they were opened.

    Where rows are filled, a delivered group without any reward keeps its rows too: the host holds them.
    """
    state, strategy, target = engine.state, engine.state.strategy, engine.planner.target
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
    room, taken = state.train_rows or 0, set[int]()
    for place in sorted(range(len(chosen)), key=lambda place: chosen[place].is_short):
        needs = _rows_needed(state, chosen[place])
        if len(taken) < target and needs <= room:
            taken.add(place)
            room -= needs
    return [chosen[place] for place in sorted(taken)]


def _kept(state: StepState, group: Group) -> list[Slot] | None:
    """Return the valid slots that train, protected ones first; None where all do."""
    keep = state.strategy.keep
    if keep is None:
        return None
    must = [slot for slot in group.valid() if slot.protected]
    rest = [slot for slot in group.valid() if not slot.protected]
    rows = max(0, keep.rows(state.average) - len(must))
    return must + [rest[place] for place in keep.choose([slot.success for slot in rest], rows)]


def _rows_needed(state: StepState, group: Group) -> int:
    kept = _kept(state, group)
    return sum(not slot.spare for slot in group.slots) if kept is None else len(kept)


def _stop_reason(engine: Engine, trained: int, *, ended_early: bool) -> StopReason:
    state, target = engine.state, engine.planner.target
    if ended_early:
        return StopReason.HOST
    if state.groups and not any(group.outcomes()[1] for group in state.groups):
        return StopReason.FAILED
    if target is not None and trained >= target:
        return StopReason.FILLED
    if state.was_cut:
        return StopReason.BUDGET
    if state.exhausted and (state.left > 0 or target is not None):
        return StopReason.POOL
    return StopReason.COMPLETE if target is None else StopReason.BUDGET


def _settle_fates(engine: Engine, groups: list[Group], trained: list[Group]) -> None:
    state, in_batch = engine.state, {id(group) for group in trained}
    keeps = state.strategy.max_age > 0 and state.strategy.close == "fixed_train"
    for group in groups:
        is_spare = group.phase in (Phase.COMMITTED, Phase.SURPLUS) and id(group) not in in_batch
        fate = _fate(state, group, in_batch=id(group) in in_batch)
        if keeps and is_spare and group.is_trainable and engine.planner.is_wanted(group):
            state.end_group(_report(group, "carried"), carried=group)
            continue
        state.end_group(_report(group, fate.name.lower()))
        drawn = [slot for slot in group.valid() if not slot.replayed]  # a replayed one has its fate already
        for spare, end in ((False, fate), (True, Fate.SURPLUS)):
            tokens = [slot.n_tokens for slot in drawn if slot.spare is spare]
            if tokens:
                state.ledger.settle(end, sum(tokens), len(tokens))


def _fate(state: StepState, group: Group, *, in_batch: bool) -> Fate:
    if in_batch:
        return Fate.TRAINED if group.is_mixed else Fate.UNIFORM
    if group.phase is Phase.ABANDONED:
        return Fate.ABANDONED
    lacking = group.phase in (Phase.OPEN, Phase.UNFINISHED) or not group.outcomes()[1]
    is_dropped = lacking or (state.strategy.incomplete == "drop" and group.is_short)
    return Fate.DROPPED if is_dropped else Fate.SURPLUS


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


def _learn(state: StepState, groups: list[Group]) -> None:
    """Update the belief with this step's valid outcomes, trained or not."""
    ids, successes, trials = [], [], []
    for group in groups:
        # Carried rollouts taught the belief in the step that drew them.
        new = [slot.success for slot in group.valid() if slot.step == state.step]
        if new:
            ids.append(group.prompt_id)
            successes.append(sum(new))
            trials.append(len(new))
    if ids:
        state.strategy.belief.update(ids, successes, trials)
