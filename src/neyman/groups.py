"""The rollouts of one prompt within a step: slots in order, their outcomes, and where the group stands."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from neyman.keyed import PromptId
from neyman.step import Outcome, Reason


class Phase(StrEnum):
    """Where a group stands."""

    OPEN = "undecided"
    COMMITTED = "trained when its planned slots are resolved"
    ABANDONED = "given up by a verdict"
    SURPLUS = "not needed any more"


class SlotState(StrEnum):
    """Where a slot stands."""

    PLANNED = "not asked for"
    OUT = "asked for"
    VALID = "a valid result"
    MISSING = "no valid result, and no further try"


@dataclass(slots=True)
class Slot:
    """One place in a group: it keeps its position through retries, so that prefixes stay unbiased."""

    state: SlotState = SlotState.PLANNED
    rollout_id: int | None = None
    draw: int = -1
    tries: int = 0
    reissue: bool = False  # was out when the state was saved: asked for again under its own id
    reward: float = math.nan
    success: bool = False
    n_tokens: int = 0
    policy_version: int = 0
    step: int = 0
    trajectory_id: str | int | None = None
    delivered: bool = False  # the host holds a row for rollout_id, although it may have no reward

    @property
    def resolved(self) -> bool:
        """Whether nothing more will come for this slot."""
        return self.state in (SlotState.VALID, SlotState.MISSING)


@dataclass(slots=True)
class Group:
    """The rollouts of one prompt within a step.

    Args:
        prompt_id: the prompt.
        size: slots of the complete group.
        reason: why slots are being asked for.
        looks: prefix lengths at which a verdict is taken; empty when the group is simply completed.
        phase: where the group stands.
        carried: whether it comes from an earlier step.
        looked: verdicts taken.
        draws: rollouts asked for, retries included; numbers the draws.
        predicted: success rate expected before the step.
        uncertainty: standard deviation of that.
        slots: its places, in order.
    """

    prompt_id: PromptId
    size: int
    reason: Reason
    looks: tuple[int, ...] = ()
    phase: Phase = Phase.OPEN
    carried: bool = False
    looked: int = 0
    draws: int = 0
    predicted: float = math.nan
    uncertainty: float = math.nan
    slots: list[Slot] = field(default_factory=list)

    def plan(self, length: int) -> int:
        """Extend the group to ``length`` slots and return how many were added."""
        added = max(0, length - len(self.slots))
        self.slots.extend(Slot() for _ in range(added))
        return added

    @property
    def prefix(self) -> int:
        """Resolved slots before the first unresolved one."""
        for i, slot in enumerate(self.slots):
            if not slot.resolved:
                return i
        return len(self.slots)

    def resolved(self) -> int:
        """Return the resolved slots, wherever they stand."""
        return sum(slot.resolved for slot in self.slots)

    def outcomes(self, length: int | None = None, *, arrival: bool = False) -> tuple[int, int]:
        """Return (successes, valid outcomes) of the first ``length`` slots, or of all that arrived."""
        slots = self.slots if arrival or length is None else self.slots[:length]
        valid = [slot for slot in slots if slot.state is SlotState.VALID]
        return sum(slot.success for slot in valid), len(valid)

    @property
    def is_mixed(self) -> bool:
        """Whether the valid outcomes differ."""
        successes, trials = self.outcomes()
        return 0 < successes < trials

    @property
    def is_resolved(self) -> bool:
        """Whether every planned slot is resolved."""
        return all(slot.resolved for slot in self.slots)

    @property
    def is_live(self) -> bool:
        """Whether the group still asks for rollouts."""
        return self.phase in (Phase.OPEN, Phase.COMMITTED)

    def record(self, slot: Slot, outcome: Outcome, reward: float, success: bool, version: int) -> None:
        """Write a valid outcome into a slot."""
        slot.state, slot.reward, slot.success = SlotState.VALID, reward, success
        slot.n_tokens, slot.policy_version = outcome.n_tokens, version
        slot.trajectory_id, slot.delivered = outcome.trajectory_id, True

    def state_dict(self) -> dict[str, Any]:
        """Return the state, JSON-safe (a missing reward is None)."""
        state = asdict(self)
        state["reason"], state["phase"] = self.reason.name, self.phase.name
        if math.isnan(self.predicted):
            state["predicted"] = state["uncertainty"] = None
        for slot, raw in zip(self.slots, state["slots"], strict=True):
            raw["state"] = slot.state.name
            raw["reward"] = None if math.isnan(slot.reward) else slot.reward
        return state

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Group:
        """Restore a group."""
        slots = [
            Slot(
                **{
                    **raw,
                    "state": SlotState[raw["state"]],
                    "reward": math.nan if raw["reward"] is None else raw["reward"],
                }
            )
            for raw in state["slots"]
        ]
        fields = {**state, "reason": Reason[state["reason"]], "phase": Phase[state["phase"]], "slots": slots}
        return cls(**{**fields, "looks": tuple(state["looks"]), **_prediction(state)})


def _prediction(state: dict[str, Any]) -> dict[str, float]:
    return {name: math.nan if state[name] is None else state[name] for name in ("predicted", "uncertainty")}
