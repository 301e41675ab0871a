"""Contracts of rules, and their read-only view of a step: its prompts, its outcomes so far, and the belief."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from neyman._checks import FloatP, IntP
from neyman._defaults import default
from neyman.beliefs import Belief
from neyman.errors import ArgumentError
from neyman.randomness import PromptId


@dataclass(frozen=True, slots=True, kw_only=True)
class StepView:
    """The step as a selection rule sees it.

    Args:
        step: the step's number.
        candidates: prompts of the host's batch that are not opened yet, in the host's order.
        fresh: ``fresh(count)`` peeks at up to ``count`` further prompts of the pool, neither opened nor in the host's
            batch in this step, least recently drawn first; nothing is consumed.
        browse: ``browse(count)`` draws up to ``count`` such prompts evenly from the whole pool, so that a rule that
            ranks prompts is not offered the same rejected ones again and again.
        overdue: ``overdue(passes, count=None)`` returns prompts of the host's batch and the pool, at most ``count``,
            that were not opened for so many passes over the pool, longest ago first. A pass is the average group's
            rollouts for every prompt of the pool.
        group_size: rollouts of a complete group.
        belief: the predicted success rate of each prompt.
        rng: ``rng(*keys)`` gives a generator keyed by seed, step and the keys.
    """

    step: int
    candidates: tuple[PromptId, ...]
    fresh: Callable[[int], list[PromptId]]
    browse: Callable[[int], list[PromptId]]
    overdue: Callable[..., list[PromptId]]
    group_size: int
    belief: Belief
    rng: Callable[..., np.random.Generator]


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """The evidence on the prompts that share a budget: the belief and this step's outcomes, as a Beta each.

    Args:
        ids: the prompts.
        belief: the belief before the step, for rules that need more than a Beta.
        a: Beta parameter of successes, float64 [prompts].
        b: Beta parameter of failures, float64 [prompts].
        issued: rollouts already requested in this step, int64 [prompts]; no count can fall below it.
    """

    ids: Sequence[PromptId]
    belief: Belief
    a: FloatP
    b: FloatP
    issued: IntP

    @property
    def mean(self) -> FloatP:
        """The expected success rate."""
        return self.a / (self.a + self.b)

    @property
    def expected_variance(self) -> FloatP:
        """The expectation of p(1-p), which is below the plug-in value by the variance of p."""
        total = self.a + self.b
        return self.a * self.b / (total * (total + 1.0))


class Select(Protocol):
    """Choose which prompts get rollouts."""

    def pick(self, view: StepView, count: int) -> list[PromptId]:
        """Return up to ``count`` distinct prompts in the order in which they are to be opened."""
        ...


class Allocate(Protocol):
    """Decide how many rollouts each prompt gets.

    Rules inherit from it, and with it the defaults of everything but ``counts``.
    """

    @default
    def probe(self) -> int:
        """First rollouts of every prompt, before the rest is allocated by their results; 0 allocates all at once."""
        return 0

    @default
    def recounts(self) -> int:
        """Portions in which the rest is allocated after a probe, each by all results so far."""
        return 1

    @default
    def opens(self) -> bool:
        """Whether a recount may open further prompts, chosen by the selection rule."""
        return False

    def group_size(self, average: int) -> int:
        """Return the size of a complete group when the budget allows ``average`` rollouts per prompt."""
        return average

    @abstractmethod
    def counts(self, evidence: Evidence, budget: int) -> IntP:
        """Return int64 [prompts] that sum to ``budget`` and are at least ``evidence.issued``."""
        ...


class Verdict(Protocol):
    """Decide when a group is finished.

    Rules inherit from it, and with it the defaults of everything but ``looks`` and ``decide``.
    """

    @default
    def after_commit(self) -> str:
        """Whether a committed group is drawn to its full size ("complete") or ends where it is ("stop")."""
        return "complete"

    @default
    def at_looks(self) -> bool:
        """Whether a mixed prefix waits for its look instead of being committed at once."""
        return False

    @default
    def holds_surplus(self) -> bool:
        """Whether groups beyond those that a step needs are left incomplete."""
        return False

    @default
    def speculate(self) -> bool:
        """Whether a whole group is requested at once, and cancelled where a verdict ends it early."""
        return False

    def price(self, view: StepView, groups: int) -> float | None:
        """Return the price of a rollout elsewhere in a step that needs ``groups`` groups; None without a price."""
        del view, groups
        return None

    def priced(self, price: float | None) -> Verdict:
        """Return the verdict at a step's `price`.

        Raises:
            ArgumentError: a price that this verdict cannot have.
        """
        if price is not None:
            raise ArgumentError(f"{type(self).__name__} has no price, got {price!r:.80}: leave it None")
        return self

    @abstractmethod
    def looks(self, group_size: int) -> tuple[int, ...]:
        """Return the increasing prefix lengths at which a verdict is taken; the last is ``group_size``."""
        ...

    @abstractmethod
    def decide(self, successes: int, trials: int, group_size: int, prior: tuple[float, float]) -> str:
        """Return "commit", "abandon" or "continue" for a prefix of the group's valid outcomes."""
        ...


class Bounded(Allocate):
    """An allocation with a lower and an upper bound per prompt; None as upper bound is the budget."""

    lower: int
    upper: int | None

    def group_size(self, average: int) -> int:
        """Return the average, within the bounds."""
        size = max(average, self.lower)
        return size if self.upper is None else min(size, self.upper)

    def box(self, issued: IntP, budget: int) -> tuple[IntP, IntP]:
        """Return the bounds per prompt, raised to the rollouts that are requested already."""
        lower = np.maximum(issued, self.lower)
        return lower, np.maximum(lower, max(budget, 1) if self.upper is None else self.upper)


class Keep(Protocol):
    """Choose which rollouts of a finished group train; the others are surplus."""

    def rows(self, average: int) -> int:
        """Return the rows of a group when the host's batch has ``average`` for each prompt."""
        ...

    def choose(self, success: Sequence[bool], rows: int) -> list[int]:
        """Return the increasing places of up to ``rows`` of a group's valid outcomes."""
        ...
