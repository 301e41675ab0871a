"""What passes between neyman and a host during one step: frozen messages, nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from neyman import formulas
from neyman._checks import float_array, integer, real
from neyman.errors import ArgumentError
from neyman.randomness import PromptId


class Status(StrEnum):
    """How a rollout ended; the value is what hosts write."""

    OK = "ok"
    FAILED = "failed"
    ABORTED = "aborted"
    TIMEOUT = "timeout"


class Reason(StrEnum):
    """Why rollouts are asked for or a group was closed, as a sentence for the log."""

    PLANNED = "the plan of the step gives this prompt these rollouts"
    PROBE = "a first look, before more is spent on this prompt"
    COMMIT = "the outcomes are mixed: the group is completed"
    CONTINUE = "no verdict yet: the next look"
    RECOUNT = "the rest of the budget, counted again in the light of the probes"
    EXTEND = "budget that opens no further group goes to one at hand, with signal where there is any"
    RETRY = "an earlier rollout of this group gave no valid result"
    CARRIED = "effective rollouts kept from an earlier step"
    ABANDON = "the verdict expects the group to stay uniform"
    SURPLUS = "enough effective groups exist without this one"
    UNFINISHED = "the budget ended before a verdict on this group"
    UNIFORM = "all outcomes of the complete group are equal"
    UNDECIDED = "fewer than two valid results: nothing can be said of their spread"
    GIVEN_UP = "no valid result within the allowed tries"


class StopReason(StrEnum):
    """Why a step ended; the value is the sentence, with the way out where there is one."""

    COMPLETE = "everything planned was generated"
    FILLED = "the groups to train on are complete"
    BUDGET = "the budget is spent before everything wanted was generated: raise it or lower train_rows"
    POOL = "no further prompt is left to draw: pass a larger pool"
    FAILED = "no rollout gave a valid result: Controller.first_error has what the first one reported"
    HOST = "the host ended the step early"
    OPEN = "the step goes on: these groups closed first"


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """The most that may be generated in one step; exactly one of ``rollouts`` and ``tokens`` is given.

    Args:
        rollouts: rollouts per step, an exact bound.
        tokens: completion tokens per step. A rollout's length is known only afterwards, so the bound is kept
            by asking for ``tokens // tokens_per_rollout`` rollouts, less what has run longer than expected.
        tokens_per_rollout: the length assumed for a rollout that is out. The engine's maximum completion
            length makes the token bound hard; a mean makes it hold on average.

    Raises:
        ArgumentError: when neither or both are given, or a number is not positive.
    """

    rollouts: int | None = None
    tokens: int | None = None
    tokens_per_rollout: float | None = None

    def __post_init__(self) -> None:
        if (self.rollouts is None) == (self.tokens is None):
            raise ArgumentError(
                f"Budget takes exactly one of rollouts and tokens, got rollouts={self.rollouts}, tokens={self.tokens}; "
                "for example Budget(rollouts=512) or Budget(tokens=400_000, tokens_per_rollout=1024)"
            )
        if self.rollouts is not None:
            integer("rollouts", self.rollouts, low=1)
        if self.tokens is not None:
            integer("tokens", self.tokens, low=1)
            if self.tokens_per_rollout is None:
                raise ArgumentError(
                    "Budget(tokens=...) needs tokens_per_rollout: the engine's maximum completion length for a hard "
                    "bound, or the expected length for one that holds on average"
                )
            real("tokens_per_rollout", self.tokens_per_rollout, low=1.0, high=float(self.tokens))

    @property
    def planned_rollouts(self) -> int:
        """Rollouts that a step is planned with."""
        if self.rollouts is not None:
            return int(self.rollouts)
        return int(self.tokens // self.tokens_per_rollout)  # type: ignore[operator]


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Rollouts that the host is to generate for one prompt.

    Args:
        prompt_id: the prompt.
        rollout_ids: one id per rollout, unique over the run.
        priority: lower runs earlier, so that verdicts come while fresh prompts still generate.
        seed: for the first rollout; the j-th of the request takes ``seed + j``. Fits in 31 bits, and differs
            between the rollouts of a prompt in a step.
        reason: why, as a sentence.
    """

    prompt_id: PromptId
    rollout_ids: tuple[int, ...]
    priority: int
    seed: int
    reason: Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancel:
    """Rollouts of a prompt that are still out are no longer wanted; a host that can abort them should.

    It tells them all the same, as aborted or with their result: until then they count as out.
    """

    prompt_id: PromptId
    rollout_ids: tuple[int, ...]
    reason: Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of one rollout.

    Args:
        rollout_id: from the request.
        prompt_id: from the request; a mismatch is an error, so that rows can never slip out of line.
        reward: what trains, a number and no text; None or NaN is a missing result, never 0. A `neyman.MissingReward`
            says why, and counts as failed or as a timeout while the rollout itself came (status ok).
        success: the verified binary outcome; None takes a reward of exactly 0 or 1 as the outcome.
        n_tokens: completion tokens, up to 2^53.
        status: ok, failed, aborted or timeout; anything but ok is a missing result.
        policy_version: the weights that generated it, in [0, 2^63); None means those of the step.
        trajectory_id: text or a whole number of up to 2,048 bits; fragments of one trajectory share it and count as
            one outcome; their tokens add up. Tell them together, or first the one that has the reward: told alone,
            one without is a missing result.
        error: what went wrong, for the report.
        protected: the row trains even where its group has no signal, because the host's loss has another term for
            it; a verdict that sees it completes the group and keeps it.
    """

    rollout_id: int
    prompt_id: PromptId
    reward: float | None
    success: bool | None = None
    n_tokens: int = 0
    status: Status | str = Status.OK
    policy_version: int | None = None
    trajectory_id: str | int | None = None
    error: str | None = None
    protected: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupReport:
    """Why one prompt got the rollouts it got, and what came of them.

    Args:
        prompt_id: the prompt.
        predicted: the success rate expected before the step.
        uncertainty: the standard deviation of that expectation.
        rollouts: rollouts drawn in this step, retries included.
        successes: verified successes among the valid ones.
        trials: valid results.
        outcome: "trained", "uniform", "abandoned", "surplus", "dropped" or "carried".
        reason: the last decision about the group, as a sentence.
        spare: valid results of a group in the batch that do not train: more than its rows; surplus in the ledger.
    """

    prompt_id: PromptId
    predicted: float
    uncertainty: float
    rollouts: int
    successes: int
    trials: int
    outcome: str
    reason: str
    spare: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """The rows to train on, aligned by index, each with its prompt and rollout.

    Args:
        rollout_ids: int64 [rows]; the same id may stand in several rows when rows are filled with copies.
        prompt_ids: one per row.
        groups: int64 [rows], 0, 1, ... in the order in which prompts were opened; -1 for copies that only fill.
        rewards: float64 [rows], NaN where the result is missing.
        success: float64 [rows], 1, 0 or NaN.
        advantages: float64 [rows], finite, 0 where there is no signal; not multiplied by ``weights``.
        weights: float64 [rows], the factor for the advantages that makes the host's flat loss the mean over
            prompts of each group's mean; 0 for rows that only fill the batch.
        age: int64 [rows], steps since the rollout was generated.
        policy_version: int64 [rows].
        stop_reason: why the step ended.
        report: flat metrics of the step.
        estimator: how advantages follow from rewards.
        counted: bool [rows], rows with a valid result that are no copy; only they are in any statistic.
        copies: int64 [rows], how often the row's group counts in the mean over prompts: 1, or more where it stands
            in for groups without signal, whose rows have 0.
        spare_ids: int64 [spares], rollouts that do not train but are in the baseline of their group
            (``baseline="group"``); empty otherwise.
        spare_groups: int64 [spares], their groups.
        spare_rewards: float64 [spares].
    """

    rollout_ids: NDArray[np.int64]
    prompt_ids: tuple[PromptId, ...]
    groups: NDArray[np.int64]
    rewards: NDArray[np.float64]
    success: NDArray[np.float64]
    advantages: NDArray[np.float64]
    weights: NDArray[np.float64]
    age: NDArray[np.int64]
    policy_version: NDArray[np.int64]
    stop_reason: StopReason
    report: Mapping[str, float] = field(repr=False)
    estimator: str
    counted: NDArray[np.bool_] = field(repr=False)
    copies: NDArray[np.int64] = field(repr=False)
    spare_ids: NDArray[np.int64] = field(repr=False)
    spare_groups: NDArray[np.int64] = field(repr=False)
    spare_rewards: NDArray[np.float64] = field(repr=False)

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.rollout_ids)

    def with_rewards(self, rewards: ArrayLike) -> Batch:
        """Return the batch with the host's final rewards and the advantages that follow from them.

        For hosts that add terms after ``tell``, such as RLOO's KL penalty.

        Args:
            rewards: float [rows], aligned with ``rollout_ids``; NaN for rows without a result.

        Raises:
            ArgumentError: another number of rows.
        """
        array = float_array("rewards", rewards, ndim=1)
        if len(array) != len(self):
            raise ArgumentError(
                f"rewards must have one entry per row of the batch ({len(self)}), got {len(array)}"
            )
        array = np.where(self.counted, array, np.nan)
        spares = (self.spare_rewards, self.spare_groups)
        advantages = row_advantages(array, self.groups, self.estimator, *spares)
        return replace(self, rewards=array, advantages=advantages)

    def summary(self) -> dict[str, Any]:
        """Return the report with the stop reason, JSON-safe."""
        return {**self.report, "stop_reason": self.stop_reason.name.lower()}


def row_advantages(
    rewards: NDArray[np.float64],
    groups: NDArray[np.int64],
    estimator: str,
    spare_rewards: NDArray[np.float64],
    spare_groups: NDArray[np.int64],
) -> NDArray[np.float64]:
    """Return the advantage of every row, 0 where the reward is missing; spares count in the statistics alone."""
    if not len(rewards):
        return np.zeros(0)
    everything = np.concatenate([rewards, spare_rewards]), np.concatenate([groups, spare_groups])
    return formulas.group_advantages(*everything, estimator=estimator)[: len(rewards)]
