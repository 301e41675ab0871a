"""Selection of the prompts that get rollouts: in order, by variance, by a target rate, by cost, with a floor."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import numpy as np

from neyman import formulas
from neyman._checks import FloatP, choice, real
from neyman.beliefs import beta_parameters
from neyman.randomness import PromptId
from neyman.rules._contracts import Select, StepView


@final
@dataclass(frozen=True, slots=True)
class InOrder:
    """The prompts of the host's batch in their order, then the pool's, least recently drawn first.

    Guarantee: every prompt of the pool is drawn once before any is drawn twice.
    """

    def pick(self, view: StepView, count: int) -> list[PromptId]:
        """Return the next ``count`` prompts."""
        brought = list(view.candidates[:count])
        return brought + view.fresh(count - len(brought)) if len(brought) < count else brought


def candidates(view: StepView, among: float, count: int) -> list[PromptId]:
    """Return the prompts of the host's batch, filled up from the pool to ``among`` times ``count``."""
    ids = list(view.candidates)
    return ids + view.browse(max(0, round(among * count) - len(ids)))


def _rates(view: StepView, ids: list[PromptId], explore: str) -> FloatP:
    """Return one posterior draw per prompt, or the posterior means."""
    if explore == "thompson":
        # Keyed by the number of candidates too: a wave over other candidates draws anew.
        return view.belief.sample(ids, view.rng("select", len(ids)))
    return view.belief.predict(ids)[0]


def best(ids: list[PromptId], score: FloatP, count: int) -> list[PromptId]:
    """Return the ``count`` prompts of the highest score, best first; ties keep the candidates' order."""
    return [ids[i] for i in np.argsort(-score, kind="stable")[:count]]


@final
@dataclass(frozen=True, slots=True)
class HighestVariance:
    """The candidates with the largest expected variance p(1-p), over the host's batch and a part of the pool.

    Args:
        among: candidates to rank, as a multiple of the prompts to pick; those of the host's batch always are.
        explore: "thompson" ranks by one posterior draw of p per candidate, so that uncertain prompts are drawn in
            proportion to their chance to be best; "mean" ranks by E[p(1-p)] and starves prompts that once looked
            settled.

    Deviation: selection changes the prompts' weights in the objective (a curriculum); the ledger reports coverage.
    """

    among: float = 4.0
    explore: str = "thompson"

    def __post_init__(self) -> None:
        real("among", self.among, low=1.0)
        choice("explore", self.explore, ("thompson", "mean"))

    def pick(self, view: StepView, count: int) -> list[PromptId]:
        """Return the best ``count`` of the candidates, best first; ties keep the candidates' order."""
        ids = candidates(view, self.among, count)
        if not ids:
            return []
        if self.explore == "mean":
            return best(ids, view.belief.expected_variance(ids), count)
        rate = _rates(view, ids, self.explore)
        return best(ids, rate * (1.0 - rate), count)


@final
@dataclass(frozen=True, slots=True)
class ClosestTo:
    """The candidates whose success rate is nearest to a target, over the host's batch and a part of the pool.

    Args:
        target: success rate to aim at.
        among: candidates to rank, as a multiple of the prompts to pick; those of the host's batch always are.
        explore: "thompson" takes one posterior draw per candidate, "mean" the posterior mean.
        band: (low, high): candidates with a rate inside come first, in their order; the others by their distance.

    Source: MoPPS, arXiv 2507.04632 (posterior draws; its "threshold" mode is the band (.3, .7)); PCL, arXiv
    2510.01135 (means of a value model).
    """

    target: float = 0.5
    among: float = 8.0
    explore: str = "thompson"
    band: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        real("target", self.target, low=0.0, high=1.0)
        real("among", self.among, low=1.0)
        choice("explore", self.explore, ("thompson", "mean"))
        if self.band is not None:
            low, high = self.band
            real("band", low, low=0.0, high=real("band", high, low=0.0, high=1.0))

    def pick(self, view: StepView, count: int) -> list[PromptId]:
        """Return the nearest ``count`` of the candidates, nearest first; ties keep the candidates' order."""
        ids = candidates(view, self.among, count)
        if not ids:
            return []
        rate = _rates(view, ids, self.explore)
        # A stable sort keeps candidates within the band, all at -1, in the order of the host and the pool.
        distance = np.abs(rate - self.target)
        if self.band is not None:
            distance[(rate >= self.band[0]) & (rate <= self.band[1])] = -1.0
        return best(ids, -distance, count)


@final
@dataclass(frozen=True, slots=True)
class LeastWaste:
    """The candidates whose effective group is expected to cost the fewest rollouts, under optimal stopping.

    Args:
        among: candidates to rank, as a multiple of the prompts to pick; those of the host's batch always are.
        looks: prefix lengths at which the group may be given up, those of the verdict.

    Deviation: a curriculum, as with every selection. Wrap it in `Revisit`, because a belief that is wrong about a
    prompt which is not drawn is never corrected. Source: ours (`neyman.formulas.group_waste`).
    """

    among: float = 8.0
    looks: tuple[int, ...] = (1, 2, 4)

    def __post_init__(self) -> None:
        real("among", self.among, low=1.0)

    def pick(self, view: StepView, count: int) -> list[PromptId]:
        """Return the ``count`` cheapest candidates, cheapest first; ties keep the candidates' order."""
        ids = candidates(view, self.among, count)
        return best(ids, -waste_of(view, ids, self.looks), count) if ids else []


def waste_of(view: StepView, ids: list[PromptId], looks: tuple[int, ...]) -> FloatP:
    """Return the price of a rollout in an effective group at each prompt (`neyman.formulas.group_waste`)."""
    # A look at or beyond the group's size is its end.
    size = view.group_size
    steps = (*(look for look in looks if look < size), size)
    return formulas.group_waste(beta_parameters(view.belief, ids), size, looks=steps)


@final
@dataclass(frozen=True, slots=True)
class Revisit:
    """A floor under any selection: prompts that were not opened for long come first, so that none is lost.

    Args:
        inner: the selection of the other prompts.
        passes: longest time between two visits of a prompt, in passes over the pool.
        share: largest share of the picks that go to such prompts.

    Guarantee: a prompt waits at most ``passes`` and one step, unless more than ``share`` of the picks were due.
    """

    inner: Select
    passes: float = 2.0
    share: float = 0.5

    def __post_init__(self) -> None:
        real("passes", self.passes, low=0.0, open_low=True)
        real("share", self.share, low=0.0, high=1.0)

    def pick(self, view: StepView, count: int) -> list[PromptId]:
        """Return the prompts that are due, longest ago first, then the inner rule's."""
        due = view.overdue(self.passes, math.ceil(self.share * count))
        if not due:
            return self.inner.pick(view, count)
        chosen = dict.fromkeys(due)
        # The full count, because the inner rule may pick prompts that are due, too.
        return [*chosen, *(i for i in self.inner.pick(view, count) if i not in chosen)][:count]
