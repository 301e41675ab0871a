"""VIP's two heuristics: more rollouts for prompts of low accuracy, or of low variance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from neyman import formulas
from neyman._checks import IntP, choice, integer, real
from neyman.rules._contracts import Allocate, Evidence


@final
@dataclass(frozen=True, slots=True)
class Inverse(Allocate):
    """Counts in proportion to 1 / (w + epsilon), w the success rate p or the variance p (1-p), inside a box.

    Args:
        of: "accuracy" or "variance".
        lower: fewest rollouts per prompt.
        upper: most rollouts per prompt.
        epsilon: keeps the weight of w = 0 finite, > 0. The paper states none: .01 is our choice.
        plug_in: use m (1-m) of the mean as published, in place of the posterior E[p(1-p)].
        probe: rollouts that every prompt gets first.

    Guarantee: the sum is exact. No objective is optimised: the second gives most to prompts without signal.

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

    def group_size(self, average: int) -> int:
        """Return the average, inside the bounds."""
        return min(max(average, self.lower), self.upper)

    def counts(self, evidence: Evidence, budget: int) -> IntP:
        """Return the filled counts, never below what was asked for already."""
        lower = np.maximum(evidence.issued, self.lower)
        upper = np.maximum(lower, self.upper)
        if self.of == "accuracy":
            return formulas.inverse_accuracy(evidence.mean, budget, lower, upper, self.epsilon)
        if self.plug_in:
            return formulas.inverse_variance(evidence.mean, budget, lower, upper, self.epsilon)
        weight = 1.0 / (evidence.expected_variance + self.epsilon)
        return formulas.water_level(weight, budget, lower, upper)
