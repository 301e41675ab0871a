"""From the groups that train to the batch: rows, rows that only fill it, copies of groups, weights and advantages."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from neyman import formulas
from neyman.randomness import keyed_rng
from neyman.step._group import VALID, Group, Slot
from neyman.step._state import StepState
from neyman.step.batch import Batch
from neyman.step.messages import StopReason

Row = tuple[int, Group, Slot]  # a group's place in the batch (-1 for copies), the group, and one of its slots
Int = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The host's wishes for the rows of a batch."""

    fill: str  # "copies": to ``train_rows`` or a multiple of ``divisor``, with rows of weight 0; "none": not at all
    aggregation: str  # how the host's loss averages tokens
    divisor: int


def batch_rows(state: StepState, trained: Sequence[Group], shape: Shape) -> tuple[list[Row], int]:
    """Return the rows of a batch, and how many of them have a valid result and are no copy."""
    filled = shape.fill == "copies"
    rows = [
        (place, group, slot)
        for place, group in enumerate(trained)
        for slot in group.slots
        if not slot.spare and (slot.state is VALID or (filled and slot.delivered))
    ]
    real_rows = sum(slot.state is VALID for _, _, slot in rows)
    if filled:
        wanted = state.train_rows or math.ceil(len(rows) / shape.divisor) * shape.divisor
        rows += _filler(state, rows, wanted - len(rows))
    return rows, real_rows


def _filler(state: StepState, rows: list[Row], missing: int) -> list[Row]:
    """Return copies to fill the batch: of its own rows, else of anything that was generated."""
    source = [(group, slot) for _, group, slot in rows] or [
        (group, slot)
        for group in state.groups
        for slot in group.slots
        if slot.state is VALID or slot.delivered
    ]
    return [(-1, *source[i % len(source)]) for i in range(missing)] if source else []


def spare_slots(trained: Sequence[Group]) -> list[tuple[int, Slot]]:
    """Return the valid results that do not train, each with its group's place in the batch."""
    return [(place, slot) for place, group in enumerate(trained) for slot in group.valid() if slot.spare]


def group_copies(state: StepState, trained: Sequence[Group]) -> Int:
    """Return how often each group of the batch counts, int64 [groups]: POLARIS' replacement, without copied rows.

    A zero-variance group counts 0 times and a group with signal, drawn at random, once more in its place: without
    replacement where there are enough, else with. Twice the weight is the gradient of two copies, under every loss
    that `neyman.formulas.prompt_weights` knows, and no rollout trains twice. Rows that the host protects train
    without signal, so their groups stay. Unless more than ``replace_above`` of the groups carry signal, all count
    once, as they do under the other ways. Groups without any valid result are in no count. The draw is keyed by the
    seed and number of the step, and by the groups handed out before.
    """
    copies = np.ones(len(trained), dtype=np.int64)
    strategy = state.strategy
    if strategy.dead_groups != "replace":
        return copies
    good = [place for place, group in enumerate(trained) if group.is_mixed]
    judged = [place for place, group in enumerate(trained) if group.outcomes()[1]]
    dead = [place for place in judged if not trained[place].is_trainable]
    if not dead or len(good) <= strategy.replace_above * len(judged):
        return copies
    rng = keyed_rng(state.seed, state.step, "replace", len(state.drained))
    drawn = rng.choice(len(good), size=len(dead), replace=len(dead) > len(good))
    copies[dead] = 0
    np.add.at(copies, np.array(good)[drawn], 1)
    return copies


def build_batch(
    state: StepState,
    trained: Sequence[Group],
    rows: Sequence[Row],
    group_copies: Int,
    *,
    reason: StopReason,
    report: Mapping[str, float],
    aggregation: str,
) -> Batch:
    """Return the batch of some rows, copies included; ``group_copies`` has how often each group counts, [groups]."""
    strategy, slots = state.strategy, [slot for _, _, slot in rows]
    counted = np.array([at >= 0 and s.state is VALID for at, _, s in rows], dtype=bool)
    groups = np.array([place for place, _, _ in rows], dtype=np.int64)
    rewards = np.array([slot.reward for slot in slots], dtype=np.float64)
    success = np.where(counted, np.array([slot.success for slot in slots], dtype=np.float64), np.nan)
    live = counted  # rows that are in the mean over prompts
    if strategy.dead_groups == "exclude" and trained:
        live = counted & np.array([group.is_mixed for group in trained], dtype=bool)[groups]
    copies = np.where(groups >= 0, group_copies[groups] if trained else 0, 0)
    spares = spare_slots(trained) if strategy.baseline == "group" else []
    return Batch(
        rollout_ids=np.array([slot.rollout_id for slot in slots], dtype=np.int64),
        prompt_ids=tuple(group.prompt_id for _, group, _ in rows),
        groups=groups,
        rewards=rewards,
        success=success,
        advantages=np.zeros(len(rows)),
        weights=_weights(groups, slots, live & (copies > 0), copies, strategy.prompt_weight, aggregation),
        age=np.array([state.step - slot.step for slot in slots], dtype=np.int64),
        policy_version=np.array([slot.policy_version for slot in slots], dtype=np.int64),
        stop_reason=reason,
        report=report,
        estimator=strategy.estimator,
        counted=counted,
        copies=copies,
        spare_ids=np.array([slot.rollout_id for _, slot in spares], dtype=np.int64),
        spare_groups=np.array([place for place, _ in spares], dtype=np.int64),
        spare_rewards=np.array([slot.reward for _, slot in spares], dtype=np.float64),
    ).with_rewards(rewards)


def _weights(
    groups: Int,
    slots: Sequence[Slot],
    live: NDArray[np.bool_],
    copies: Int,
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
