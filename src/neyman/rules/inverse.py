"""VIP's two heuristics: allocation in inverse proportion to accuracy, or to variance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from neyman import formulas
from neyman._checks import IntP, choice, integer, real
from neyman.rules._contracts import Bounded, Evidence


@final
@dataclass(frozen=True, slots=True)
class Inverse(Bounded):
    """Counts in proportion to 1 / (w + epsilon), w the success rate p or the variance p (1-p), within bounds.

    Args:
        of: "accuracy" or "variance".
        lower, upper: fewest and most rollouts per prompt.
        epsilon: keeps the weight of w = 0 finite, > 0; .01 is our choice, as the paper gives none.
        plug_in: use m (1-m) of the mean m as published, in place of the posterior E[p(1-p)].
        probe: first rollouts of every prompt.

    Guarantee: the sum is exact. No objective is optimised; "variance" gives most to prompts without signal.
    Source: baselines of VIP, arXiv 2602.01601.
    """

    of: str = "accuracy"
    lower: int = 4
    upper: int = 32
    epsilon: float = 0.01
    plug_in: bool = False
    probe: int = 0

    def __post_init__(self) -> None:
        choice("of", self.of, ("accuracy", "variance"))
        integer("lower", self.lower, low=2)
        integer("upper", self.upper, low=self.lower)
        real("epsilon", self.epsilon, low=0.0, open_low=True)
        integer("probe", self.probe, low=0, high=self.upper)

    def counts(self, evidence: Evidence, budget: int) -> IntP:
        """Return the counts in inverse proportion, never below the rollouts already requested."""
        lower, upper = self.box(evidence.issued, budget)
        if self.of == "accuracy":
            return formulas.inverse_accuracy(evidence.mean, budget, lower, upper, self.epsilon)
        if self.plug_in:
            return formulas.inverse_variance(evidence.mean, budget, lower, upper, self.epsilon)
        # No plain formula: the posterior E[p(1-p)] is not the p(1-p) of any rate where p is uncertain.
        weight = 1.0 / (evidence.expected_variance + self.epsilon)
        return formulas.water_level(weight, budget, lower, upper)
