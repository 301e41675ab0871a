"""The contract with hosts: one step of rollout generation, owned by one class."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, final

from neyman._checks import choice, integer, multiple, prompt_ids, real
from neyman.errors import ArgumentError, CallOrderError, StateError
from neyman.randomness import PromptId
from neyman.step._batch import Shape
from neyman.step._close import close_batch
from neyman.step._engine import Engine
from neyman.step._parse import parse_outcomes, version, whole
from neyman.step._report import calibration
from neyman.step._restore import readable, restored, state_of
from neyman.step._state import StepState
from neyman.step.batch import Batch, advantages
from neyman.step.ledger import Fate, Ledger, Work
from neyman.step.messages import Budget, Cancel, GroupReport, Outcome, Reason, Request, Status, StopReason
from neyman.step.missing import MissingReward
from neyman.step.outcome import binary_outcome
from neyman.step.pool import Pool
from neyman.strategy import Strategy, check_strategy

# The contract with hosts: the class, and everything that passes between it and them.
__all__ = [
    "Batch", "Budget", "Cancel", "Controller", "Fate", "GroupReport", "Ledger", "MissingReward", "Outcome",
    "PromptId", "Reason", "Request", "Status", "StopReason", "Work", "advantages", "binary_outcome",
    "calibration",
]  # fmt: skip

_VERSION = 1
_LAST_STEP = 2**53 - 1  # beliefs compute with the steps that have passed, as floats
_AWAITED = 65_536  # rollouts of closed steps that may still arrive; about 10 MB
_KEYS = {
    "version", "seed", "fingerprint", "step", "clock", "next_rollout", "passes", "belief", "ledger", "pool",
    "carried", "late", "memory", "yield", "open",
}  # fmt: skip


@final
class Controller:
    """Decides which prompts get rollouts, how many, and when to stop; the host generates, verifies and trains.

    One step is ``begin``, then ``ask`` and ``tell`` until ``is_done``, then ``finish``. ``ask`` may be called at any
    time and nothing needs a barrier: an empty answer means that results are awaited, not that the step is done.

    Args:
        strategy: the four parts; its belief is copied, so one strategy may serve several controllers.
        budget: the most that may be generated in a step.
        train_rows: rows the optimiser must get; None trains everything that the budget bought.
        divisor: the budget and ``train_rows`` must be multiples of it (data-parallel ranks).
        pool: all prompt ids, if the strategy may draw prompts that the host did not bring.
        retries: re-draws of failed rollouts per step, as a share of the budget in [0, 1]; they come on top of it.
        seed: keys all randomness, with the step and the prompt.
        fill: "copies" fills the batch to ``train_rows`` with rows of weight 0; "none" leaves it short.
        aggregation: how the host's loss averages tokens: "sequence_mean", "constant" or "token_mean".

    Raises:
        ArgumentError: a number outside its range; budget or ``train_rows`` not a multiple of ``divisor``.

    Guarantee: the same sequence of begin, ask and tell gives the same decisions, bit for bit, on every rank and after
    every resume. Requested rollouts never exceed the budget plus the retry allowance; with fixed spend the budget is
    used exactly. A missing result is re-drawn within the allowance and never becomes reward 0. A step always ends in a
    batch, with the reason why it ended.
    Cost: O(rollouts) a step beside the belief's and the allocation's own cost.

    Examples:
        >>> import neyman
        >>> controller = neyman.Controller(neyman.preset("uniform"), budget=neyman.Budget(rollouts=4))
        >>> controller.begin(["easy", "hard"])
        >>> while not controller.is_done:
        ...     controller.tell(
        ...         neyman.Outcome(rollout_id=r, prompt_id=q.prompt_id, reward=float(r % 2))
        ...         for q in controller.ask() for r in q.rollout_ids
        ...     )
        >>> batch = controller.finish()
        >>> batch.prompt_ids, batch.stop_reason.name
        (('easy', 'easy', 'hard', 'hard'), 'COMPLETE')
    """

    def __init__(
        self,
        strategy: Strategy,
        budget: Budget,
        train_rows: int | None = None,
        divisor: int = 1,
        pool: Sequence[PromptId] | None = None,
        retries: float = 0.1,
        seed: int = 0,
        *,
        fill: str = "copies",
        aggregation: str = "sequence_mean",
    ) -> None:
        check_strategy(strategy)
        self._shape = Shape(
            divisor=integer("divisor", divisor, low=1),
            fill=choice("fill", fill, ("copies", "none")),
            aggregation=choice("aggregation", aggregation, ("sequence_mean", "constant", "token_mean")),
        )
        _check_rows(strategy, budget, train_rows, self._shape.divisor)
        if strategy.prompt_weight == "equal_tokens" and aggregation != "token_mean":
            raise ArgumentError(
                f"prompt_weight='equal_tokens' is for aggregation='token_mean', got {aggregation!r}, whose rows do not "
                "weigh by their tokens; use 'equal'"
            )
        self._engine = Engine(
            StepState(
                strategy.with_options(belief=copy.deepcopy(strategy.belief)),
                budget,
                train_rows=train_rows,
                pool=None if pool is None else Pool(pool, seed=integer("seed", seed)),
                seed=integer("seed", seed),
                retries=_retries(retries),
            )
        )
        self._late: dict[int, PromptId] = {}
        self._is_open = False

    @property
    def ledger(self) -> Ledger:
        """Where every rollout and token went."""
        return self._engine.state.ledger

    @property
    def strategy(self) -> Strategy:
        """The strategy, with the controller's own belief."""
        return self._engine.state.strategy

    @property
    def step(self) -> int:
        """The number of the current or last step; -1 before the first."""
        return self._engine.state.step

    @property
    def is_open(self) -> bool:
        """Whether a step has begun and not finished."""
        return self._is_open

    @property
    def is_done(self) -> bool:
        """Whether nothing is left to request and no result is awaited."""
        self._require(opened=True, call="is_done")
        return self._engine.is_done

    @property
    def held_rollouts(self) -> list[int]:
        """Rollouts of earlier steps that the host must keep; others may be forgotten.

        They were carried to a later step, are carried ones of the open step, or are `replayable`.
        """
        return self._carried_rollouts + self.replayable

    @property
    def replayable(self) -> list[int]:
        """Rollouts that have their fate in the ledger and are kept as right answers (``replay_age``)."""
        carried = set(self._carried_rollouts)
        return [i for i in self._engine.state.right_answers.rollouts if i not in carried]

    @property
    def _carried_rollouts(self) -> list[int]:
        state = self._engine.state
        kept = state.carried + [group for group in state.groups if group.carried and self._is_open]
        slots = [slot for group in kept for slot in group.valid() if not slot.replayed]
        return [slot.rollout_id for slot in slots if slot.rollout_id is not None]

    @property
    def first_error(self) -> str | None:
        """The error that the first failed rollout of the step reported, if any."""
        return self._engine.state.first_error

    @property
    def group_reports(self) -> tuple[GroupReport, ...]:
        """The account of each prompt of the last closed step."""
        return tuple(self._engine.state.reports)

    def begin(
        self, candidates: Sequence[PromptId], step: int | None = None, policy_version: int | None = None
    ) -> None:
        """Start a step.

        Args:
            candidates: prompts that the host brings, in its order; a prompt that stands twice counts once. With
                none, all come from the pool, in groups of 8 unless the strategy sets a size.
            step: its number, increasing, below 2^53; None counts on.
            policy_version: version of the weights that generate, in [0, 2^63); None takes the step's number.

        Raises:
            CallOrderError: a step is open.
            ArgumentError: no candidates and no pool, a step that does not increase, or a version that is no whole
                number.
            InfeasibleError: the budget does not fit the bounds of the allocation. After an error no step is open,
                and the same step may begin again.
        """
        self._require(opened=False, call="begin")
        number = whole("step", self.step + 1 if step is None else step, low=self.step + 1, high=_LAST_STEP)
        weights = version(number if policy_version is None else policy_version)
        unique = list(dict.fromkeys(prompt_ids("candidates", candidates)))
        if not unique and self._engine.state.pool is None:
            raise ArgumentError("begin got no candidates and the controller has no pool: pass prompt ids")
        self._engine.begin(unique, number, weights)
        self._is_open = True

    def ask(self, capacity: int | None = None) -> list[Request]:
        """Return the rollouts to generate next, most urgent first.

        Args:
            capacity: the most rollouts wanted now; None takes all that are planned.

        Returns:
            Requests; empty while only results are awaited, or when the step is done.
        """
        self._require(opened=True, call="ask")
        return self._engine.ask(None if capacity is None else integer("capacity", capacity, low=0))

    def cancellations(self) -> list[Cancel]:
        """Return, once each, the rollouts that are out and no longer wanted; aborting them is optional."""
        self._require(opened=True, call="cancellations")
        return self._engine.state.cancellations()

    def tell(self, outcomes: Iterable[Outcome]) -> None:
        """Report results: any portion, in any order, also those of steps that have closed.

        Raises:
            ContractError: a rollout that was never requested, reported under another prompt, or a reward that is
                no number or not binary with no success named; nothing of the call is taken in then.
        """
        self._require(opened=True, call="tell")
        state = self._engine.state
        arrivals = parse_outcomes(outcomes, state.where, self._late, state.next_rollout)
        for rollout_id, n_tokens in arrivals.late.items():
            del self._late[rollout_id]
            state.ledger.settle(Fate.LATE, n_tokens)
        self._engine.receive(arrivals)

    def record_padding(self, rollouts: int, tokens: int) -> None:
        """Account for rollouts that the host generated only to fill a round, and threw away."""
        integer("rollouts", rollouts, low=0)
        self.ledger.request(rollouts)
        self.ledger.settle(Fate.PADDING, integer("tokens", tokens, low=0), rollouts)

    def record_seconds(self, work: Work | str, seconds: float) -> None:
        """Account for time that the host measured, in a step or between steps.

        Args:
            work: "generation" (with verification) or "update": saved rollouts save time of the first alone.
            seconds: how long it took.

        Raises:
            ArgumentError: other work, or a number below 0.
        """
        kind = Work(choice("work", work, tuple(w.value for w in Work)))
        self.ledger.spend(kind, real("seconds", seconds, low=0.0))

    def finish(self) -> Batch:
        """Close the step and return the rows to train on.

        Results still out are counted as late when they arrive; of more than 65,536 of them those that are out longest
        count as aborted. The belief learns from every valid outcome of the step, trained or not.

        Raises:
            CallOrderError: no step is open.
        """
        self._require(opened=True, call="finish")
        ended_early = not self._engine.is_done
        self._engine.stop()
        batch, state = self._close(ended_early=ended_early), self._engine.state
        self._late |= {i: group.prompt_id for group in state.groups for i in group.out()}
        self._give_up_oldest()
        state.count_passes()
        self._is_open = False
        return batch

    def _give_up_oldest(self) -> None:
        """Wait no more for the rollouts that are out longest, so that a host that loses some does not fill memory."""
        given_up = list(islice(self._late, max(0, len(self._late) - _AWAITED)))
        for rollout_id in given_up:
            del self._late[rollout_id]
        self._engine.state.ledger.settle(Fate.ABORTED, 0, len(given_up))

    def drain(self) -> Batch:
        """Return the groups that closed since the last call, for ``close="streaming"``.

        Raises:
            CallOrderError: no step is open, or the strategy does not stream.
        """
        self._require(opened=True, call="drain")
        if self.strategy.close != "streaming":
            raise CallOrderError(
                f"drain is for close='streaming'; this strategy closes with {self.strategy.close!r}"
            )
        return self._close(drain=True)

    def _close(self, *, ended_early: bool = False, drain: bool = False) -> Batch:
        shape = replace(self._shape, fill="none") if drain else self._shape
        return close_batch(self._engine, shape, ended_early=ended_early, drain=drain)

    def _require(self, *, opened: bool, call: str) -> None:
        if opened and not self._is_open:
            raise CallOrderError(f"{call} was called while no step is open; call begin first")
        if not opened and self._is_open:
            raise CallOrderError(f"{call} was called while step {self.step} is open; call finish first")

    def state_dict(self) -> dict[str, Any]:
        """Return everything needed to continue, JSON-safe, also in the middle of a step.

        Rollouts that are out when the state is taken are requested again, with their ids and seeds, after it
        is restored.
        """
        saved = state_of(self._engine, self._late, is_open=self._is_open)
        return {"version": _VERSION, **saved, "belief": self.strategy.belief.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a state of the same prompt set; an error leaves the controller as it was.

        Raises:
            StateError: another version, other keys, another pool, or damaged; the message names the difference and
                the way out.
            CallOrderError: a step is open here.
        """
        self._require(opened=False, call="load_state_dict")
        if not isinstance(state, Mapping):
            raise StateError(
                f"controller state must be a mapping from state_dict, got {state!r:.80}: load another saved state, or "
                "start a new run"
            )
        if state.get("version") != _VERSION or type(state["version"]) is not int:
            raise StateError(
                f"controller state has version {state.get('version')!r}, this neyman reads version {_VERSION}: "
                "load it with the neyman that wrote it"
            )
        if set(state) != _KEYS:
            raise StateError(
                f"controller state lacks {sorted(_KEYS - set(state))} and has unknown {sorted(set(state) - _KEYS)}: "
                "load another saved state, or start a new run"
            )
        pool = self._engine.state.pool
        ours = None if pool is None else pool.fingerprint
        if state["fingerprint"] != ours:
            raise StateError(
                f"controller state was saved for another prompt set (fingerprint {state['fingerprint']}, here {ours}): "
                "resume with the dataset of the run, or start a new run directory"
            )
        try:
            engine, late = restored(self._engine, state)
            with readable("the belief's state"):
                self.strategy.belief.load_state_dict(state["belief"])
        except StateError as error:
            raise StateError(f"{error} (or load another saved state, or start a new run)") from error
        self._engine, self._late, self._is_open = engine, late, state["open"] is not None


def _retries(share: float) -> float:
    try:
        return real("retries", share, low=0.0, high=1.0)
    except ArgumentError as error:
        raise ArgumentError(
            f"{error}; it is a share of the budget (0.1 allows one re-draw for every ten rollouts), not a number of "
            "tries: that is the strategy's max_tries"
        ) from None


def _check_rows(strategy: Strategy, budget: Budget, train_rows: int | None, divisor: int) -> None:
    """Check that the rows to train on and the budget fit each other, the closing, and the host's ranks."""
    planned = budget.planned_rollouts
    if budget.rollouts is not None:
        multiple("budget", planned, divisor)
    if train_rows is None:
        return
    multiple("train_rows", integer("train_rows", train_rows, low=1), divisor)
    if strategy.close == "fixed_spend" and planned > train_rows:
        raise ArgumentError(
            f"close='fixed_spend' trains everything that was generated, so the budget must be <= train_rows="
            f"{train_rows}, got {planned} rollouts; lower the budget, leave train_rows out, or use close='fixed_train'"
        )
    if strategy.close == "fixed_train" and planned < train_rows:
        raise ArgumentError(
            f"close='fixed_train' fills train_rows={train_rows} from the generated rollouts, so the budget must be >= "
            f"that, got {planned} rollouts; raise the budget (about train_rows over the share of effective groups)"
        )
