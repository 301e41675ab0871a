"""Our own count: the next rollout goes where it keeps most signal, at prompts in play or at fresh ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from neyman import formulas
from neyman._checks import FloatP, IntP, integer, real
from neyman.rules._contracts import Allocate, Evidence


@final
@dataclass(frozen=True, slots=True)
class MarginalValue(Allocate):
    """The counts that keep most of the prompts' signal, over prompts in play and prompts that may be opened.

    Objective: max sum_q E[p_q(1-p_q)] h(n_q) subject to sum n_q = budget and n_q = 0 or lower <= n_q <= upper, with
    h(n) = (n-1)/(n-1+noise): the share of a prompt's gradient that is left when it is shrunk by its noise, for a
    leave-one-out gradient of n rollouts whose variance is ``noise`` times its squared mean at n = 2. So a prompt's
    second rollout is worth more than another's fourth: breadth has a price, and so has depth. With ``noise`` towards
    0 this is VIP's objective on the prompts that are opened.

    Args:
        noise: the variance of a prompt's gradient from two rollouts, in units of its squared mean. The best group
            size at equal spread is 1 + sqrt(noise).
        lower: fewest rollouts of a prompt that is opened.
        upper: most rollouts per prompt.
        probe: rollouts that every chosen prompt gets first.
        recounts: times that the rest is given out, each in the light of all results so far.
        opens: whether a recount may open further prompts, chosen by the selection rule.

    Guarantee: within the value of one opened prompt of the optimum where spreads differ; prompts of equal spread
    may be left below the best size, each of them. Cost: O(prompts upper).

    Deviation: counts that depend on a prompt's own probe are optional stopping. They multiply its expected gradient by
    a factor below 1 where one outcome is rare (docs/methods/neyman.md has the figures); with the whole budget in
    probes the factor is 1.

    Source: ours.
    """

    noise: float = 1.0
    lower: int = 2
    upper: int = 32
    probe: int = 2
    recounts: int = 1
    opens: bool = True

    def __post_init__(self) -> None:
        real("noise", self.noise, low=0.0, open_low=True)
        integer("lower", self.lower, low=2)
        integer("upper", self.upper, low=self.lower)
        integer("probe", self.probe, low=self.lower, high=self.upper)
        integer("recounts", self.recounts, low=1)

    def group_size(self, average: int) -> int:
        """Return the average, inside the bounds."""
        return min(max(average, self.lower), self.upper)

    def counts(self, evidence: Evidence, budget: int) -> IntP:
        """Return the counts of most value; 0 for prompts that stay closed."""
        issued = evidence.issued
        may_open = issued == 0
        lower = np.where(may_open, 0 if self.opens else self.lower, np.maximum(issued, self.lower))
        upper = np.maximum(issued, self.upper)
        spread, share = evidence.expected_variance, self._share()
        while True:
            counts = formulas.allocate(
                value=lambda n: np.where(may_open, share[0][n], share[1][n]) * spread,
                budget=budget,
                lower=lower,
                upper=upper,
            )
            partial = np.flatnonzero((counts > 0) & (counts < self.lower))
            if not len(partial):
                return counts
            # What would not make a group goes elsewhere: to no other closed prompt, if it makes no group there either.
            is_too_little = counts[partial].sum() < self.lower
            upper[counts < self.lower if is_too_little else partial[-1]] = 0

    def _share(self) -> FloatP:
        """Return h(n) for n = 0 .. upper: its concave hull for prompts to be opened, and itself."""
        n = np.arange(4096, dtype=np.float64)
        kept = np.maximum(n - 1.0, 0.0) / np.maximum(n - 1.0 + self.noise, self.noise)
        rate = kept[self.lower : self.upper + 1] / n[self.lower : self.upper + 1]
        start = self.lower + int(np.argmax(rate))
        hull = np.where(n <= start, n * rate.max(), kept)
        return np.stack([hull, kept])
