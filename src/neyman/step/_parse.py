"""Outcomes from the host, checked as a whole before anything is taken in."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from neyman._checks import MOST_BITS, integer
from neyman.errors import ArgumentError, ContractError
from neyman.randomness import PromptId
from neyman.step._group import OUT, VALID, Group, Slot
from neyman.step.messages import Outcome, Status
from neyman.step.missing import MissingReward
from neyman.step.outcome import binary_outcome

_OK = Status.OK  # looked up for every rollout
_MOST_TOKENS = 2**53  # whole numbers beyond are no floats, which weights are computed in
_LAST_VERSION = 2**63 - 1  # a batch holds versions as int64

Place = tuple[int, Group, Slot]  # a group's index, the group, and the slot that a rollout was drawn for


class Result(NamedTuple):
    """One checked outcome and the slot it belongs to."""

    rollout_id: int
    group_index: int
    slot: Slot
    status: Status
    reward: float  # NaN when missing
    success: bool  # False when the reward is missing
    n_tokens: int  # over all fragments of one call
    policy_version: int | None  # None means the step's
    trajectory_id: str | int | None  # None where the rollout is one piece
    error: str | None
    protected: bool  # the row trains without signal too
    delivered: bool  # the host holds a row, judged or not

    @property
    def is_missing(self) -> bool:
        """Whether this is no valid result."""
        return math.isnan(self.reward)


@dataclass(slots=True)
class Arrivals:
    """The outcomes of one call, in the order of rollout ids whatever the order of arrival."""

    results: list[Result] = field(default_factory=list)  # first results of rollouts of the open step
    # Later pieces of trajectories that have a valid result: only their tokens are new.
    fragments: list[Result] = field(default_factory=list)
    late: dict[int, int] = field(default_factory=dict)  # tokens by rollout, of rollouts whose step has closed


def parse_outcomes(
    outcomes: Iterable[Outcome], where: Mapping[int, Place], late: Mapping[int, PromptId], next_rollout: int
) -> Arrivals:
    """Check outcomes against the requests and return the new ones. Nothing is changed.

    Of a rollout that is reported twice the first valid result counts. Fragments of one trajectory (same rollout, same
    ``trajectory_id``) are one outcome, and their tokens add up. ``where`` has the slots of the open step's rollouts,
    ``late`` the prompts of rollouts of closed steps that are still out; ids from ``next_rollout`` on were never given.

    Raises:
        ContractError: no outcome, an unknown rollout, another prompt, an unknown status, a reward that is no number
            (text that reads as one is none) or not binary; the first such outcome is named.
    """
    arrivals, fresh = Arrivals(), dict[int, Result]()
    pieces: dict[int, str | int | None] = {}  # the trajectory of each late rollout
    if not isinstance(outcomes, Iterable):
        raise ContractError(f"tell takes outcomes, any number of them in a list, got {_brief(outcomes)}")
    for outcome in outcomes:
        if not isinstance(outcome, Outcome):
            raise ContractError(f"tell takes outcomes, each a neyman.Outcome, got {_brief(outcome)}")
        rollout_id = outcome.rollout_id
        # Anything but a number may be no key at all.
        is_id = type(rollout_id) is int or isinstance(rollout_id, int | np.integer)
        if is_id and rollout_id in late:
            _same_prompt(outcome, late[rollout_id])
            n_tokens, name = _tokens(outcome), _trajectory(outcome)
            if rollout_id not in arrivals.late:
                arrivals.late[rollout_id], pieces[rollout_id] = n_tokens, name
            elif name is not None and name == pieces[rollout_id]:
                arrivals.late[rollout_id] += n_tokens
        elif is_id and rollout_id in where:
            result = _check(outcome, where[rollout_id])
            if result.slot.state is OUT and result.slot.rollout_id == rollout_id:
                earlier = fresh.get(result.rollout_id)
                fresh[result.rollout_id] = result if earlier is None else _merge(earlier, result)
            elif _continues(result):
                arrivals.fragments.append(result)
        elif not (is_id and 0 <= rollout_id < next_rollout):
            raise ContractError(
                f"rollout {_brief(rollout_id)} (prompt {_brief(outcome.prompt_id)}) was never requested; report the "
                "ids of the requests, to the controller that returned them"
            )
    arrivals.results = [fresh[rollout_id] for rollout_id in sorted(fresh)]
    return arrivals


def _check(outcome: Outcome, place: Place) -> Result:
    index, group, slot = place
    _same_prompt(outcome, group.prompt_id)
    status = outcome.status
    if status is not _OK:
        try:
            status = Status(status)
        except Exception:  # noqa: BLE001 - a host may pass a value of any kind, with a comparison of its own
            raise _refused(
                outcome, f"has the status {_brief(status)}; use one of {[*map(str, Status)]}"
            ) from None
    delivered, reward, error = status is _OK, math.nan, outcome.error
    if isinstance(outcome.reward, MissingReward):  # the rollout came, and could not be judged
        status = outcome.reward.status if delivered else status
        error = outcome.reward.why if error is None else error
    elif delivered:
        reward = _reward(outcome)
    return Result(
        rollout_id=int(outcome.rollout_id),
        group_index=index,
        slot=slot,
        status=status,
        reward=reward,
        success=_success(outcome, reward),
        n_tokens=_tokens(outcome),
        policy_version=_version(outcome),
        trajectory_id=_trajectory(outcome),
        error=None if error is None else _text_of(error),
        protected=_protected(outcome),
        delivered=delivered,
    )


def _brief(value: object) -> str:
    """Show a value of any kind: a number may have too many digits to be written out, an object no repr."""
    try:
        return f"{value!r:.80}"
    except Exception:  # noqa: BLE001 - the error must be raised whatever the value does
        return f"a value of type {type(value).__name__}"


def _text_of(error: object) -> str:
    """Return an error's text: a reward function may raise one whose ``__str__`` fails."""
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - the result that it came with counts all the same
        return f"an error of type {type(error).__name__}, whose text cannot be had"


def version(value: object) -> int:
    """Return a version of the weights, a whole number that a batch can hold, or raise `ArgumentError`."""
    return whole("policy_version", value, low=0, high=_LAST_VERSION)


def whole(name: str, value: object, *, low: int, high: int) -> int:
    """Return a whole number within [low, high], or raise `ArgumentError`, also where its digits cannot be shown."""
    try:
        return integer(name, value, low=low, high=high)
    except Exception:  # noqa: BLE001 - a value of any kind: to compare or to show it may fail in any way
        raise ArgumentError(
            f"{name} must be a whole number in [{low}, {high}], got {_brief(value)}"
        ) from None


def _is_real(value: object) -> bool:
    """Whether a value is a real number or converts to one; text does not, though ``float`` would read it."""
    if type(value) in (float, int, bool):
        return True
    if isinstance(value, np.generic | np.ndarray):
        return value.dtype.kind in "biuf"
    is_complex = "complex" in str(getattr(value, "dtype", ""))  # tensors of other libraries
    return not is_complex and (hasattr(type(value), "__float__") or hasattr(type(value), "__index__"))


def _refused(outcome: Outcome, why: str) -> ContractError:
    return ContractError(f"rollout {outcome.rollout_id} of prompt {_brief(outcome.prompt_id)} {why}")


def _same_prompt(outcome: Outcome, prompt_id: PromptId) -> None:
    reported = outcome.prompt_id
    if type(reported) is type(prompt_id) and reported == prompt_id:  # nearly every call
        return
    if not isinstance(reported, str | int | np.integer) or reported != prompt_id:
        raise ContractError(
            f"rollout {outcome.rollout_id} belongs to prompt {_brief(prompt_id)}, but was reported under "
            f"{_brief(reported)}: rows are out of line"
        )


def _tokens(outcome: Outcome) -> int:
    if type(outcome.n_tokens) is int and 0 <= outcome.n_tokens <= _MOST_TOKENS:  # nearly every call
        return outcome.n_tokens
    try:
        return whole("n_tokens", outcome.n_tokens, low=0, high=_MOST_TOKENS)
    except ArgumentError as error:
        raise _refused(outcome, f"cannot be counted: {error}") from None


def _reward(outcome: Outcome) -> float:
    if outcome.reward is None:
        return math.nan
    if type(outcome.reward) is float and not math.isinf(outcome.reward):  # nearly every call
        return outcome.reward
    try:
        reward = float(outcome.reward) if _is_real(outcome.reward) else None
    except Exception:  # noqa: BLE001 - a tensor of several values, or on no device; a number beyond floats
        reward = None
    if reward is None:
        raise _refused(
            outcome,
            f"has the reward {_brief(outcome.reward)}, which is no number; pass None for a result that could not be "
            "judged",
        )
    if math.isinf(reward):
        raise _refused(
            outcome,
            f"has an infinite reward ({reward}), which would make every advantage of its group NaN; clip it, or pass "
            "None for a result that could not be judged",
        )
    return reward


def _protected(outcome: Outcome) -> bool:
    value = outcome.protected
    if value is True or value is False:
        return value
    if not _is_flag(value):
        raise _refused(outcome, f"has protected={_brief(value)}; pass True or False")
    return bool(value)


def _is_flag(value: object) -> bool:
    return (
        isinstance(value, bool | int | float | np.bool_ | np.number) and _is_real(value) and value in (0, 1)
    )


def _success(outcome: Outcome, reward: float) -> bool:
    if math.isnan(reward):
        return False
    if outcome.success is not None:
        if not _is_flag(outcome.success):
            raise _refused(
                outcome,
                f"has the success {_brief(outcome.success)}; pass True, False, or None where the reward is binary",
            )
        return bool(outcome.success)
    if (success := binary_outcome(reward)) is not None:
        return success
    raise _refused(
        outcome,
        f"has the reward {reward}, which is not binary (1 for success, 0 or -1 for failure), and no success was named; "
        "either pass success=True/False, the verified outcome, or name it once at the host: a callable, or one reward "
        "function and a threshold",
    )


def _version(outcome: Outcome) -> int | None:
    if outcome.policy_version is None:
        return None
    try:
        return version(outcome.policy_version)
    except ArgumentError as error:
        raise _refused(outcome, f"has no known weights: {error}") from None


def _trajectory(outcome: Outcome) -> str | int | None:
    name = outcome.trajectory_id
    if name is None or type(name) is str:
        return name
    if isinstance(name, str):
        return str(name)
    if isinstance(name, int | np.integer) and int(name).bit_length() <= MOST_BITS:
        return int(name)
    raise _refused(
        outcome,
        f"has the trajectory_id {_brief(name)}; pass text or a whole number of up to {MOST_BITS} bits, which can be "
        "saved",
    )


def _merge(earlier: Result, result: Result) -> Result:
    kept = result if earlier.is_missing and not result.is_missing else earlier
    if result.trajectory_id is None or result.trajectory_id != earlier.trajectory_id:
        return kept
    protected = earlier.protected or result.protected
    return kept._replace(n_tokens=earlier.n_tokens + result.n_tokens, protected=protected)


def _continues(result: Result) -> bool:
    slot = result.slot
    return (
        slot.rollout_id == result.rollout_id
        and slot.state is VALID
        and result.trajectory_id is not None
        and slot.trajectory_id == result.trajectory_id
    )
