"""How many rollouts each prompt gets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from neyman import formulas
from neyman._checks import IntP, choice, integer
from neyman.errors import InfeasibleError
from neyman.rules._contracts import Allocate, Evidence


def _even(budget: int, floor: IntP) -> IntP:
    """Split a budget as evenly as the floors allow; what does not divide goes to the first prompts."""
    return formulas.water_level(np.ones(len(floor)), budget, floor, np.full(len(floor), max(budget, 1)))


@final
@dataclass(frozen=True, slots=True)
class Each(Allocate):
    """The same number of rollouts for every prompt.

    Args:
        size: rollouts per prompt; None divides the budget by the number of prompts.

    Guarantee: the counts sum to the budget; what does not divide goes to the first prompts.

    Raises:
        InfeasibleError: a size was given, and that many for each prompt are not the budget.
    """

    size: int | None = None

    def __post_init__(self) -> None:
        if self.size is not None:
            integer("size", self.size, low=2)

    def group_size(self, average: int) -> int:
        """Return ``size``, or the average where none was given."""
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
class VarianceOptimal(Allocate):
    """VIP: the counts that minimise the summed gradient variance under the budget, exactly.

    Objective: min sum_q E[p_q(1-p_q)] f(n_q) subject to sum n_q = budget, lower <= n_q <= upper, with f of the
    estimator (docs/methods.md).

    Args:
        lower: fewest rollouts per prompt; RLOO needs 2, Dr. GRPO and GRPO 3 (below, the variance is not convex).
        upper: most rollouts per prompt.
        estimator: "rloo", "dr_grpo" or "grpo".
        variant: "exact", or "published" for the relaxation with the published rounding.
        probe: rollouts that every prompt gets first; the rest is allocated in the light of them.
        plug_in: use m(1-m) of the mean as published, in place of the posterior E[p(1-p)].

    Source: VIP, arXiv 2602.01601 (ICLR 2026), eqs. of sections 3 and 4; exactness is ours.
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
        least = 2 if self.estimator == "rloo" else 3
        integer("lower", self.lower, low=least)
        integer("upper", self.upper, low=self.lower)
        integer("probe", self.probe, low=0, high=self.upper)
        if 0 < self.probe < least:
            integer("probe", self.probe, low=least)

    def group_size(self, average: int) -> int:
        """Return the average, inside the bounds."""
        return min(max(average, self.lower), self.upper)

    def counts(self, evidence: Evidence, budget: int) -> IntP:
        """Return the optimal counts, never below what was asked for already."""
        spread = evidence.mean * (1.0 - evidence.mean) if self.plug_in else evidence.expected_variance
        lower = np.maximum(evidence.issued, self.lower)
        return formulas.allocate(
            spread=spread,
            budget=budget,
            lower=lower,
            upper=np.maximum(lower, self.upper),
            estimator=self.estimator,
            variant=self.variant,
        )


@final
@dataclass(frozen=True, slots=True)
class WaterLevel(Allocate):
    """DynaMO: counts proportional to the standard deviation of the reward, inside a box.

    Objective: n_q proportional to sqrt(E[p(1-p)]) (Neyman allocation), as clip(c w, lower, upper) with the c that
    spends the budget.

    Args:
        lower: fewest rollouts per prompt.
        upper: most rollouts per prompt.
        variant: "sqrt", or "published", which fills proportionally to the unbiased variance of the prompt's
            history, with histories of accuracy >= .85 set to .01 (no gain over uniform without the bounds).

    Source: DynaMO, arXiv 2602.19208 (Findings of ACL 2026), section 3; the square root is its own theory's.
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

    def group_size(self, average: int) -> int:
        """Return the average, inside the bounds."""
        return min(max(average, self.lower), self.upper)

    def counts(self, evidence: Evidence, budget: int) -> IntP:
        """Return the filled counts, never below what was asked for already."""
        lower = np.maximum(evidence.issued, self.lower)
        upper = np.maximum(lower, self.upper)
        if self.variant == "sqrt":
            return formulas.water_level(np.sqrt(evidence.expected_variance), budget, lower, upper)
        return formulas.published_water_level(*_history(evidence), budget, lower, upper)


def _history(evidence: Evidence) -> tuple[IntP, IntP]:
    """Return the whole successes and trials of each prompt, which the published rule is a formula of."""
    successes, trials = evidence.belief.evidence(evidence.ids) or (np.array([0.5]), np.array([0.5]))
    if (successes % 1.0).any() or (trials % 1.0).any():
        raise InfeasibleError(
            "the published water level needs every prompt's whole successes and trials, which "
            f"{type(evidence.belief).__name__} does not keep; use neyman.beliefs.Counts(discount=1, fade=1), or "
            "variant='sqrt'"
        )
    return successes.astype(np.int64), trials.astype(np.int64)
