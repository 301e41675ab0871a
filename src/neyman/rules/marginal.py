"""Our own allocation: each rollout goes where it keeps most signal, at probed prompts or at further ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from neyman import formulas
from neyman._checks import FloatP, IntP, integer, real
from neyman.rules._contracts import Bounded, Evidence


@final
@dataclass(frozen=True, slots=True)
class MarginalValue(Bounded):
    """Counts that keep most of the prompts' signal, over opened prompts and prompts that may be opened.

    Objective: max sum_q E[p_q(1-p_q)] h(n_q) subject to sum n_q = budget and n_q = 0 or lower <= n_q <= upper, with
    h(n) = (n-1)/(n-1+noise): the share of a prompt's gradient that remains when it is shrunk by its noise, for a
    leave-one-out gradient of n rollouts whose variance is ``noise`` times its squared mean at n = 2. So a second
    rollout of one prompt gains more than a fourth of another, and the rule trades breadth against depth. As
    ``noise`` goes to 0 this is VIP's objective on the opened prompts.

    Args:
        noise: variance of a prompt's gradient from two rollouts, in units of its squared mean. The best group size
            at equal spread is 1 + sqrt(noise).
        lower: fewest rollouts of an opened prompt.
        upper: most rollouts per prompt.
        probe: first rollouts of every chosen prompt.
        recounts: portions in which the rest is allocated, each by all results so far.
        opens: whether a recount may open further prompts, chosen by the selection rule.

    Guarantee: the value is within that of one opened prompt of the optimum where spreads differ; prompts of equal
    spread may all stay below the best size. Cost: O(prompts upper).

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

    def counts(self, evidence: Evidence, budget: int) -> IntP:
        """Return the counts of most value; 0 for prompts that stay unopened."""
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
            # Counts below ``lower`` make no group, so their rollouts go elsewhere: not to other unopened prompts, if
            # all of them together are too few for one group.
            is_too_little = counts[partial].sum() < self.lower
            upper[counts < self.lower if is_too_little else partial[-1]] = 0

    def _share(self) -> FloatP:
        """Return h(n) for n = 0 .. upper: its concave hull for prompts to be opened, and itself."""
        n = np.arange(4096, dtype=np.float64)
        kept = np.maximum(n - 1.0, 0.0) / np.maximum(n - 1.0 + self.noise, self.noise)
        # h is convex below the best size, and the allocation needs a concave value: its hull up to there is the line
        # of the best value per rollout.
        rate = kept[self.lower : self.upper + 1] / n[self.lower : self.upper + 1]
        start = self.lower + int(np.argmax(rate))
        hull = np.where(n <= start, n * rate.max(), kept)
        return np.stack([hull, kept])
