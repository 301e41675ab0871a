"""Allocation of a step's rollouts over its prompts: evenly, by gradient variance (VIP), by deviation (DynaMO)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from neyman import formulas
from neyman._checks import IntP, choice, integer
from neyman.errors import InfeasibleError
from neyman.rules._contracts import Allocate, Bounded, Evidence


def _even(budget: int, floor: IntP) -> IntP:
    """Split a budget as evenly as the floors allow; the remainder goes to the first prompts."""
    return formulas.water_level(np.ones(len(floor)), budget, floor, np.full(len(floor), max(budget, 1)))


@final
@dataclass(frozen=True, slots=True)
class Each(Allocate):
    """The same number of rollouts for every prompt.

    Args:
        size: rollouts per prompt; None divides the budget by the number of prompts.

    Guarantee: the counts sum to the budget; the remainder of the division goes to the first prompts.

    Raises:
        InfeasibleError: ``size`` for each prompt does not add up to the budget.
    """

    size: int | None = None

    def __post_init__(self) -> None:
        if self.size is not None:
            integer("size", self.size, low=2)

    def group_size(self, average: int) -> int:
        """Return ``size``, or the average without one."""
        return self.size or average

    def counts(self, evidence: Evidence, budget: int) -> IntP:
        """Return the budget split evenly."""
        prompts = len(evidence.issued)
        if self.size is not None and self.size * prompts != budget:
            raise InfeasibleError(
                f"size={self.size} for {prompts} prompts takes {self.size * prompts} rollouts, but the budget is "
                f"{budget}; leave size out, set the budget to {self.size * prompts}, or bring "
                f"{budget // self.size} prompts"
            )
        return _even(budget, evidence.issued)


@final
@dataclass(frozen=True, slots=True)
class VarianceOptimal(Bounded):
    """VIP: the exact integer counts of least summed gradient variance under the budget.

    Objective: min sum_q E[p_q(1-p_q)] f(n_q) subject to sum n_q = budget, lower <= n_q <= upper, with f of the
    estimator (docs/methods.md).

    Args:
        lower: fewest rollouts per prompt; RLOO needs 2, Dr. GRPO and GRPO 3 (below, the variance is not convex).
        upper: most rollouts per prompt.
        estimator: "rloo", "dr_grpo" or "grpo".
        variant: "exact", or "published" for the relaxation with the published rounding.
        probe: first rollouts of every prompt, after which the rest is allocated by their results.
        plug_in: use m(1-m) of the mean m as published, in place of the posterior E[p(1-p)].

    Source: VIP, arXiv 2602.01601 (ICLR 2026), sections 3 and 4; the exact integer optimum is ours.
    """

    lower: int = 4
    upper: int = 32
    estimator: str = "rloo"
    variant: str = "exact"
    probe: int = 0
    plug_in: bool = False

    def __post_init__(self) -> None:
        choice("estimator", self.estimator, ("rloo", "dr_grpo", "grpo"))
        choice("variant", self.variant, ("exact", "published"))
        least = formulas.MINIMUM_GROUP_SIZE[self.estimator]
        integer("lower", self.lower, low=least)
        integer("upper", self.upper, low=self.lower)
        integer("probe", self.probe, low=0, high=self.upper)
        if 0 < self.probe < least:
            integer("probe", self.probe, low=least)

    def counts(self, evidence: Evidence, budget: int) -> IntP:
        """Return the optimal counts, never below the rollouts already requested."""
        # The variance of a rollout is E[p(1-p)], not m(1-m): the difference is Var(p), large for new prompts.
        spread = evidence.mean * (1.0 - evidence.mean) if self.plug_in else evidence.expected_variance
        lower, upper = self.box(evidence.issued, budget)
        return formulas.allocate(
            spread=spread,
            budget=budget,
            lower=lower,
            upper=upper,
            estimator=self.estimator,
            variant=self.variant,
        )


@final
@dataclass(frozen=True, slots=True)
class WaterLevel(Bounded):
    """DynaMO: counts in proportion to the standard deviation of the reward, within bounds.

    Objective: n_q proportional to sqrt(E[p(1-p)]) (Neyman allocation), as clip(c w, lower, upper) with the c that
    spends the budget.

    Args:
        lower, upper: fewest and most rollouts per prompt.
        variant: "sqrt", or "published": counts in proportion to the unbiased variance of the prompt's history, set
            to .01 for an accuracy of at least .85 (without the bounds no better than uniform).

    Source: DynaMO, arXiv 2602.19208 (Findings of ACL 2026), section 3, whose theory has the square root.
    """

    lower: int = 4
    upper: int = 32
    variant: str = "sqrt"
    probe: int = 0

    def __post_init__(self) -> None:
        integer("probe", self.probe, low=0, high=self.upper)
        choice("variant", self.variant, ("sqrt", "published"))
        integer("lower", self.lower, low=2)
        integer("upper", self.upper, low=self.lower)

    def counts(self, evidence: Evidence, budget: int) -> IntP:
        """Return the counts at the water level, never below the rollouts already requested."""
        lower, upper = self.box(evidence.issued, budget)
        if self.variant == "sqrt":
            return formulas.water_level(np.sqrt(evidence.expected_variance), budget, lower, upper)
        return formulas.published_water_level(*_history(evidence), budget, lower, upper)


def _history(evidence: Evidence) -> tuple[IntP, IntP]:
    """Return each prompt's whole successes and trials, from which the published rule computes its weights."""
    successes, trials = evidence.belief.evidence(evidence.ids) or (np.array([0.5]), np.array([0.5]))
    if (successes % 1.0).any() or (trials % 1.0).any():
        raise InfeasibleError(
            "the published water level needs every prompt's whole successes and trials, which "
            f"{type(evidence.belief).__name__} does not keep; use neyman.beliefs.Counts(discount=1, fade=1), or "
            "variant='sqrt'"
        )
    return successes.astype(np.int64), trials.astype(np.int64)
