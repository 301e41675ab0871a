"""Outcomes as hosts tell them, checked as a whole before anything is taken in."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from neyman.errors import ContractError
from neyman.groups import Group, Slot, SlotState
from neyman.ledger import Fate, Ledger
from neyman.step import Outcome, Status

_TOLERANCE = 1e-6


@dataclass(frozen=True, slots=True)
class Told:
    """One checked outcome and the slot it belongs to.

    Args:
        group_index: the group.
        slot: its slot.
        outcome: as told.
        reward: the number, NaN when missing.
        success: the binary outcome; meaningless when the reward is missing.
    """

    group_index: int
    slot: Slot
    outcome: Outcome
    reward: float
    success: bool

    @property
    def is_missing(self) -> bool:
        """Whether this is no valid result."""
        return math.isnan(self.reward)


def _number(value: Any, outcome: Outcome) -> float:
    if value is None:
        return math.nan
    try:
        reward = float(value)
    except (TypeError, ValueError):
        raise ContractError(
            f"rollout {outcome.rollout_id} of prompt {outcome.prompt_id!r} has the reward {value!r}, which is no "
            "number; tell None for a result that could not be judged"
        ) from None
    if math.isinf(reward):
        raise ContractError(
            f"rollout {outcome.rollout_id} of prompt {outcome.prompt_id!r} has an infinite reward ({reward}), which "
            "would make every advantage of its group NaN; clip it, or tell None for a result that could not be judged"
        )
    return reward


def _success(outcome: Outcome, reward: float) -> bool:
    if math.isnan(reward):
        return False
    if outcome.success is not None:
        return bool(outcome.success)
    if abs(reward - 1.0) <= _TOLERANCE:
        return True
    if min(abs(reward), abs(reward + 1.0)) <= _TOLERANCE:
        return False
    raise ContractError(
        f"rollout {outcome.rollout_id} of prompt {outcome.prompt_id!r} has the reward {reward}, which is not binary "
        "(1 for success, 0 or -1 for failure), and no success was named; either tell success=True/False, the "
        "verified outcome, or name it once at the host: a callable, or one reward function and a threshold"
    )


def parse_outcomes(
    outcomes: Iterable[Outcome], where: dict[int, tuple[int, Group, Slot]], late: set[int], ledger: Ledger
) -> list[Told]:
    """Check outcomes against what was asked for and return those that carry news.

    Results of closed steps and results told twice are counted and left out. Fragments of one trajectory
    (same rollout, same ``trajectory_id``) count as one outcome; their tokens add up.

    Raises:
        ContractError: an unknown rollout, another prompt, a reward that is no number or not binary; the
            first such outcome is named, and nothing was changed.
    """
    listed = list(outcomes)
    news: list[Told] = []
    stale: list[Outcome] = []
    fragments: list[tuple[Slot | Told, Outcome]] = []
    fresh: dict[int, Told] = {}
    for outcome in listed:
        if outcome.rollout_id in late:
            stale.append(outcome)
            continue
        if outcome.rollout_id not in where:
            raise ContractError(
                f"rollout {outcome.rollout_id!r} (prompt {outcome.prompt_id!r}) was never asked for; tell the ids of "
                "the requests, and tell them to the controller that asked"
            )
        index, group, slot = where[outcome.rollout_id]
        if outcome.prompt_id != group.prompt_id:
            raise ContractError(
                f"rollout {outcome.rollout_id} belongs to prompt {group.prompt_id!r}, but was told under "
                f"{outcome.prompt_id!r}: rows are out of line"
            )
        status = Status(outcome.status)
        reward = _number(outcome.reward, outcome) if status is Status.OK else math.nan
        told = Told(index, slot, outcome, reward, _success(outcome, reward))
        earlier = fresh.get(outcome.rollout_id)
        known = (
            earlier is not None or slot.state is not SlotState.OUT or slot.rollout_id != outcome.rollout_id
        )
        if not known:
            fresh[outcome.rollout_id] = told
            news.append(told)
        elif outcome.trajectory_id is not None:
            same = earlier.outcome.trajectory_id if earlier else slot.trajectory_id
            if same == outcome.trajectory_id:
                fragments.append((earlier or slot, outcome))
    for outcome in stale:
        late.discard(outcome.rollout_id)
        ledger.settle(Fate.LATE, outcome.n_tokens)
    for target, outcome in fragments:
        slot = target.slot if isinstance(target, Told) else target
        slot.n_tokens += outcome.n_tokens
    return news
