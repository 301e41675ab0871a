"""The rollouts of one prompt within a step: slots in order, their outcomes, and where the group stands."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any

from neyman.errors import StateError
from neyman.randomness import PromptId
from neyman.step.messages import Reason


class Phase(StrEnum):
    """Where a group stands."""

    OPEN = "undecided"
    COMMITTED = "trained when its planned slots are resolved"
    ABANDONED = "given up by a verdict"
    SURPLUS = "not needed any more"
    UNFINISHED = "without a verdict when the budget or the tries ended"


class SlotState(StrEnum):
    """Where a slot stands."""

    PLANNED = "not requested"
    OUT = "requested"
    VALID = "a valid result"
    MISSING = "no valid result, and no further try"


# Every rollout is looked at many times a step, and before Python 3.12 a member costs ten times a name to look up.
PLANNED, OUT, VALID, MISSING = SlotState


@dataclass(slots=True)
class Slot:
    """One place in a group: it keeps its position through retries, so that prefixes stay unbiased."""

    state: SlotState = PLANNED
    rollout_id: int | None = None
    draw: int = -1
    tries: int = 0
    reward: float = math.nan
    success: bool = False
    n_tokens: int = 0
    policy_version: int = 0
    step: int = 0
    trajectory_id: str | int | None = None
    delivered: bool = False  # the host holds a row for rollout_id, although it may have no reward
    protected: bool = False
    spare: bool = False  # judged, in a group that trains, but not among its rows
    replayed: bool = False  # an earlier step's rollout: its fate is settled

    @property
    def resolved(self) -> bool:
        """Whether nothing more will come for this slot."""
        return self.state is VALID or self.state is MISSING

    def state_dict(self) -> dict[str, Any]:
        """Return the state, JSON-safe."""
        state = {name: getattr(self, name) for name in _SLOT_FIELDS}
        state["state"], state["reward"] = self.state.name, _known(self.reward)
        return state

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Slot:
        """Restore a slot; a `StateError` names missing or unknown keys, and names that are not known here."""
        with _readable("a rollout"):
            return cls(**{**state, "state": SlotState[state["state"]], "reward": _number(state["reward"])})


@dataclass(slots=True)
class Group:
    """The rollouts of one prompt within a step."""

    prompt_id: PromptId
    size: int  # slots of the complete group
    reason: Reason  # why slots are requested
    looks: tuple[
        int, ...
    ] = ()  # prefix lengths at which a verdict is taken; empty: the group is simply completed
    phase: Phase = Phase.OPEN
    carried: bool = False  # from an earlier step
    looked: int = 0  # verdicts taken
    draws: int = 0  # rollouts requested in this step, retries included; numbers the draws
    predicted: float = math.nan  # success rate expected before the step
    uncertainty: float = math.nan  # standard deviation of that
    prior: tuple[float, float] = (1.0, 1.0)  # the same as Beta parameters, under which verdicts are taken
    committed: bool | None = (
        None  # whether the verdict was for the group; None where none was taken in this step
    )
    stopped_at: int = 0  # slots at the verdict that gave the group up
    settled: int = 0  # resolved slots before the first unresolved one, as far as counted
    slots: list[Slot] = field(default_factory=list)

    def plan(self, length: int) -> None:
        """Extend the group to ``length`` slots."""
        self.slots += [Slot() for _ in range(length - len(self.slots))]

    def move(self, phase: Phase, reason: Reason) -> None:
        """Bring the group into another phase."""
        self.phase, self.reason = phase, reason

    def resize(self, size: int, reason: Reason) -> None:
        """Set the slots of the complete group."""
        self.size, self.reason = size, reason

    def give_up(self, look: int, reason: Reason) -> None:
        """Record a verdict against the group, taken on its first ``look`` slots."""
        self.committed, self.stopped_at = False, look
        self.move(Phase.ABANDONED, reason)

    def commit(self) -> None:
        """Record a verdict for the group."""
        self.committed = True
        self.move(Phase.COMMITTED, Reason.COMMIT)

    def look_further(self) -> int:
        """Go on to the next look, where there is one, and return its length."""
        self.reason = Reason.CONTINUE
        self.looked = min(self.looked + 1, len(self.looks) - 1)
        return self.looks[self.looked]

    def release(self) -> list[Slot]:
        """Remove the planned slots and return them."""
        if planned := [slot for slot in self.slots if slot.state is PLANNED]:
            self.slots = [slot for slot in self.slots if slot.state is not PLANNED]
        return planned

    @property
    def prefix(self) -> int:
        """Resolved slots before the first unresolved one; amortised O(1), as none is ever unresolved again."""
        slots, count = self.slots, self.settled
        while count < len(slots) and ((state := slots[count].state) is VALID or state is MISSING):
            count += 1
        self.settled = count
        return count

    def resolved(self) -> int:
        """Return the resolved slots, wherever they stand."""
        return sum(slot.resolved for slot in self.slots)

    def outcomes(self, length: int | None = None) -> tuple[int, int]:
        """Return (successes, valid outcomes) of the first ``length`` slots, or of all."""
        slots = self.slots if length is None else self.slots[:length]
        valid = [slot.success for slot in slots if slot.state is VALID]
        return valid.count(True), len(valid)

    def drawn_outcomes(self) -> tuple[int, int]:
        """Return (successes, valid outcomes) without those of an earlier visit that were put in."""
        drawn = [slot.success for slot in self.slots if slot.state is VALID and not slot.replayed]
        return drawn.count(True), len(drawn)

    def is_protected(self, length: int | None = None) -> bool:
        """Whether the host wants a valid result of the first ``length`` slots, or of all, trained in any case."""
        return True in [slot.protected for slot in self.slots[:length] if slot.state is VALID]

    @property
    def is_trainable(self) -> bool:
        """Whether the group holds signal, or a row that trains without."""
        return self.is_mixed or self.is_protected()

    def valid(self) -> list[Slot]:
        """Return the slots with a valid result."""
        return [slot for slot in self.slots if slot.state is VALID]

    def out(self) -> list[int]:
        """Return the rollouts that are awaited."""
        return [s.rollout_id for s in self.slots if s.state is OUT and s.rollout_id is not None]

    @property
    def is_mixed(self) -> bool:
        """Whether the valid outcomes differ."""
        successes, trials = self.outcomes()
        return 0 < successes < trials

    @property
    def is_resolved(self) -> bool:
        """Whether every planned slot is resolved."""
        return self.prefix == len(self.slots)

    @property
    def is_live(self) -> bool:
        """Whether the group still asks for rollouts."""
        return self.phase in (Phase.OPEN, Phase.COMMITTED)

    @property
    def is_short(self) -> bool:
        """Whether valid results are missing: up to the whole size, or to where a verdict ended the group."""
        return self.outcomes()[1] < (self.size if self.is_live else len(self.slots))

    def keep(self, kept: Sequence[Slot]) -> None:
        """Mark every slot but the kept ones as spare: judged, and not among the rows of the batch."""
        chosen = {id(slot) for slot in kept}
        for slot in self.slots:
            slot.spare = id(slot) not in chosen

    def carry(self) -> None:
        """Keep the valid results for a later step."""
        self.slots = self.valid()
        self.carried, self.committed, self.stopped_at = True, None, 0
        self.settled = self.draws = 0

    def state_dict(self) -> dict[str, Any]:
        """Return the state, JSON-safe; unknown numbers are None."""
        state = {name: getattr(self, name) for name in _GROUP_FIELDS}
        state |= {"reason": self.reason.name, "phase": self.phase.name}
        state |= {"looks": list(self.looks), "prior": list(self.prior)}
        state |= {name: _known(state[name]) for name in ("predicted", "uncertainty")}
        state["slots"] = [slot.state_dict() for slot in self.slots]
        return state

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Group:
        """Restore a group; a `StateError` names missing or unknown keys, and names that are not known here."""
        with _readable("a group"):
            slots = [Slot.from_state(raw) for raw in state["slots"]]
            restored: dict[str, Any] = {name: _number(state[name]) for name in ("predicted", "uncertainty")}
            restored |= {"reason": Reason[state["reason"]], "phase": Phase[state["phase"]], "slots": slots}
            restored |= {"looks": tuple(state["looks"]), "prior": tuple(state["prior"])}
            return cls(**{**state, **restored})


_SLOT_FIELDS = tuple(item.name for item in fields(Slot))
_GROUP_FIELDS = tuple(item.name for item in fields(Group))


@contextmanager
def _readable(kind: str) -> Iterator[None]:
    try:
        yield
    except (KeyError, TypeError) as error:
        raise StateError(
            f"the state holds {kind} that this neyman cannot read ({type(error).__name__}: {error}); load it "
            "with the neyman that wrote it"
        ) from error


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value


def _number(value: float | None) -> float:
    return math.nan if value is None else value
