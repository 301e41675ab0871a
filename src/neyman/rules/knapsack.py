"""Knapsack-RL: allocation by the value of mixed groups, which is largest for hard prompts."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, final

import numpy as np
from numpy.typing import NDArray

from neyman import formulas
from neyman._checks import FloatP, IntP, choice, count_box, integer, real
from neyman.rules._contracts import Bounded, Evidence

Mask = NDArray[np.bool_]
_COSTS: Final = ("probability", "expectation")


@final
@dataclass(frozen=True, slots=True)
class Knapsack(Bounded):
    """Counts that maximise the expected value of mixed groups, by the success rates of each prompt's last visit.

    Objective: max sum_q [1 - p^n - (1-p)^n] p (1-p)^2 subject to sum n_q = budget and lower <= n_q <= upper. The value
    is discretely concave in n from n = 1, so one rollout at a time to the largest gain is exact; the published dynamic
    programme finds the same sum at the cost of prompts x budget x upper.

    Prompts with p of 0 or 1 have no gain by this value. With a belief that keeps counts (`neyman.beliefs.Counts`) the
    budget is therefore given out by class, in this order:

    1. every prompt gets ``lower``; a prompt without visits gets the average;
    2. prompts with 0 < p < 1 get up to their need, by value: the rollouts after which a group is mixed with
       probability ``confidence`` (``cost="probability"``), or 1/(p (1-p)) - 1 (``"expectation"``);
    3. prompts that were never solved share the rest evenly, up to their bounds;
    4. any further rest goes to prompts with 0 < p < 1 by value, then evenly to those without visits, then to those
       that were always solved.

    Other beliefs have no rates of exactly 0 and 1, so that all their prompts are in the second class.

    Args:
        lower: fewest rollouts per prompt.
        upper: most rollouts per prompt; None is the budget.
        cost: estimate of the rollouts that a prompt needs for a mixed group.
        confidence: of "probability", in (0, 1).

    Guarantee: the sum is exact and the bounds hold in every class, or `InfeasibleError`; optimal within the second
    class for the sum that it gets. More budget can take rollouts from some prompts where it raises the average, and
    with it the counts of prompts without visits. Voided, as a forecast, by rates from a single visit.
    Cost: O(prompts upper).
    Source: Knapsack-RL, arXiv 2509.25849; the order of classes follows two independent ports, as no official code is
    known. Deviations: greedy in place of the dynamic programme; the need counts the whole group, with ``lower``.
    """

    lower: int = 2
    upper: int | None = 128
    cost: str = "probability"
    confidence: float = 0.9

    def __post_init__(self) -> None:
        integer("lower", self.lower, low=2)
        if self.upper is not None:
            integer("upper", self.upper, low=self.lower)
        choice("cost", self.cost, _COSTS)
        real("confidence", self.confidence, low=1e-6, high=1.0 - 1e-9)

    def counts(self, evidence: Evidence, budget: int) -> IntP:
        """Return the counts, never below the rollouts already requested."""
        prompts = len(evidence.issued)
        lower, upper = self.box(evidence.issued, budget)
        low, high, total = count_box(lower, upper, budget, prompts)
        if not prompts:
            return low
        rate, unseen = _last_visit(evidence)
        middle = ~unseen & (rate > 0.0) & (rate < 1.0)
        failed, solved = ~unseen & (rate <= 0.0), ~unseen & (rate >= 1.0)
        need = np.where(middle, np.clip(self._need(rate), low, high), low)
        share = np.clip(budget // prompts, low, high)
        # Each class in its order, up to its ceiling; a class may come again with a higher one.
        counts = low.copy()
        for members, ceiling in (
            (unseen, share),
            (middle, need),
            (failed, high),
            (middle, high),
            (unseen, high),
            (solved, high),
        ):
            spare = total - int(counts.sum())
            room = int((ceiling - counts)[members].sum())
            if spare and room > 0:
                amount = int(counts[members].sum()) + min(spare, room)
                ceilings = high if members is middle else ceiling
                counts[members] = self._fill(members, amount, low, ceilings, rate)
        return counts

    def _fill(self, members: Mask, amount: int, low: IntP, high: IntP, rate: FloatP) -> IntP:
        """Allocate ``amount`` within one class: by value where rates are inside (0, 1), else evenly."""
        p = rate[members]
        if not ((p > 0.0) & (p < 1.0)).all():
            return formulas.water_level(np.ones(len(p)), amount, low[members], high[members])
        value = p * (1.0 - p) ** 2
        return formulas.allocate(
            value=lambda n: value * (1.0 - p**n - (1.0 - p) ** n),
            budget=amount,
            lower=low[members],
            upper=high[members],
        )

    def _need(self, rate: FloatP) -> IntP:
        inside = np.clip(rate, 1e-9, 1.0 - 1e-9)
        if self.cost == "probability":
            need = math.log(1.0 - self.confidence) / np.log(np.maximum(inside, 1.0 - inside))
        else:
            need = 1.0 / (inside * (1.0 - inside)) - 1.0
        # Down by 1e-9 first, so that rounding of the logarithms does not add a rollout to a whole number.
        return np.ceil(np.minimum(need, 2.0**31) - 1e-9).astype(np.int64)


def _last_visit(evidence: Evidence) -> tuple[FloatP, Mask]:
    """Return each prompt's success rate and whether it has no visits; such a prompt has the rate 0."""
    known = evidence.belief.evidence(evidence.ids)
    if known is None:
        return evidence.mean, np.zeros(len(evidence.issued), dtype=bool)
    successes, trials = known
    unseen = trials <= 0.0
    return np.where(unseen, 0.0, successes / np.where(unseen, 1.0, trials)), unseen
