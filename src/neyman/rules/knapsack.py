"""Knapsack-RL: the counts of most value, where a hard prompt's mixed group is worth most."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, final

import numpy as np
from numpy.typing import NDArray

from neyman import formulas
from neyman._checks import FloatP, IntP, choice, count_box, integer, real
from neyman.rules._contracts import Allocate, Evidence

Mask = NDArray[np.bool_]
_COSTS: Final = ("probability", "expectation")


@final
@dataclass(frozen=True, slots=True)
class Knapsack(Allocate):
    """Counts that maximise the expected value of mixed groups, by the rates of each prompt's last visit.

    Objective: max sum_q [1 - p^n - (1-p)^n] p (1-p)^2 subject to sum n_q = budget and lower <= n_q <= upper. The value
    is discretely concave in n from n = 1, so one rollout at a time to the largest gain is exact; the published dynamic
    programme finds the same sum at the cost of prompts x budget x upper.

    What has no gain by this value is served by class, where the belief keeps counts (`neyman.beliefs.Counts`):

    1. every prompt gets ``lower``; a prompt never seen gets the average;
    2. prompts with 0 < p < 1 get, by value, what they need in all: the rollouts after which a group is mixed with
       probability ``confidence`` (``cost="probability"``), or 1/(p (1-p)) - 1 (``"expectation"``);
    3. what they do not need is shared evenly by prompts that were never solved;
    4. what is left goes to prompts with 0 < p < 1 by value, then evenly to those never seen, then to solved ones.

    Other beliefs have no rates of exactly 0 and 1: all their prompts are in the second class.

    Args:
        lower: fewest rollouts per prompt.
        upper: most rollouts per prompt; None is the budget.
        cost: what a prompt is taken to need.
        confidence: of "probability", in (0, 1).

    Guarantee: the sum is exact and the bounds hold in every class, or `InfeasibleError`; optimal among prompts of the
    second class for what they get together. More budget can take rollouts from others where it raises the average,
    and with it every prompt never seen. Voided, as a forecast, by rates from a single visit.

    Cost: O(prompts upper).

    Source: Knapsack-RL, arXiv 2509.25849; fallbacks after two independent ports, no official code being known.
    Deviations: greedy in place of the programme; the need is of the whole group, not of what exceeds ``lower``.
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

    def group_size(self, average: int) -> int:
        """Return the average, inside the bounds."""
        return min(max(average, self.lower), self.upper or max(average, self.lower))

    def counts(self, evidence: Evidence, budget: int) -> IntP:
        """Return the counts, never below what was asked for already."""
        prompts = len(evidence.issued)
        lower = np.maximum(evidence.issued, self.lower)
        upper = np.maximum(lower, max(budget, 1) if self.upper is None else self.upper)
        low, high, total = count_box(lower, upper, budget, prompts)
        if not prompts:
            return low
        rate, unseen = _last_visit(evidence)
        middle = ~unseen & (rate > 0.0) & (rate < 1.0)
        failed, solved = ~unseen & (rate <= 0.0), ~unseen & (rate >= 1.0)
        need = np.where(middle, np.clip(self._need(rate), low, high), low)
        share = np.clip(budget // prompts, low, high)
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
        """Return what members of one class get together: by value with rates inside (0, 1), evenly without."""
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
        return np.ceil(np.minimum(need, 2.0**31) - 1e-9).astype(np.int64)


def _last_visit(evidence: Evidence) -> tuple[FloatP, Mask]:
    """Return each prompt's success rate and whether it was never seen; a prompt never seen has the rate 0."""
    known = evidence.belief.evidence(evidence.ids)
    if known is None:
        return evidence.mean, np.zeros(len(evidence.issued), dtype=bool)
    successes, trials = known
    unseen = trials <= 0.0
    return np.where(unseen, 0.0, successes / np.where(unseen, 1.0, trials)), unseen
