"""The messages between neyman and a host during one step, all of them frozen."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from neyman._checks import integer, real
from neyman.errors import ArgumentError
from neyman.randomness import PromptId


class Status(StrEnum):
    """The end of a rollout; hosts pass the value."""

    OK = "ok"
    FAILED = "failed"
    ABORTED = "aborted"
    TIMEOUT = "timeout"


class Reason(StrEnum):
    """The reason for requesting rollouts or for closing a group, as a sentence for the log."""

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
    UNDECIDED = "fewer than two valid results: their spread is unknown"
    GIVEN_UP = "no valid result within the allowed tries"


class StopReason(StrEnum):
    """Why a step ended; the value is the sentence, with the way out where there is one."""

    COMPLETE = "everything planned was generated"
    FILLED = "the groups to train on are complete"
    BUDGET = "the budget is spent before everything wanted was generated: raise it or lower train_rows"
    POOL = "no further prompt is left to draw: pass a larger pool"
    FAILED = "no rollout gave a valid result: Controller.first_error has the cause of the first failure"
    HOST = "the host ended the step early"
    OPEN = "the step goes on: these groups closed first"


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """The most that may be generated in one step; exactly one of ``rollouts`` and ``tokens`` is given.

    Args:
        rollouts: rollouts per step, an exact bound.
        tokens: completion tokens per step. A rollout's length is known only afterwards, so the bound is kept
            by requesting ``tokens // tokens_per_rollout`` rollouts, fewer once some have run longer than expected.
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

    It reports them all the same, as aborted or with their result: until then they count as out.
    """

    prompt_id: PromptId
    rollout_ids: tuple[int, ...]
    reason: Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result of one rollout.

    Args:
        rollout_id: from the request.
        prompt_id: from the request; a mismatch is an error, so that rows can never slip out of line.
        reward: the reward that trains, a number and no text; None or NaN is a missing result, never 0. A
            `neyman.MissingReward` carries the reason, and counts as failed or as a timeout although the rollout itself
            arrived (status ok).
        success: the verified binary outcome; None takes a reward of exactly 0 or 1 as the outcome.
        n_tokens: completion tokens, up to 2^53.
        status: ok, failed, aborted or timeout; anything but ok is a missing result.
        policy_version: the weights that generated it, in [0, 2^63); None means those of the step.
        trajectory_id: text or a whole number of up to 2,048 bits; fragments of one trajectory share it and count as
            one outcome; their tokens add up. Report them together, or first the one that has the reward: a fragment
            without one, reported alone, is a missing result.
        error: the cause of a failure, for the report.
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
    """The account of one prompt in a step: its rollouts, their outcomes, and the reasons.

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
