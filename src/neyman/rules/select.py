"""Which prompts get rollouts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from neyman._checks import choice, real
from neyman.keyed import PromptId
from neyman.rules._view import StepView


@final
@dataclass(frozen=True, slots=True)
class InOrder:
    """The host's prompts as they come, then the pool's, least recently drawn first.

    Guarantee: every prompt of the pool is drawn once before any is drawn twice.
    """

    def pick(self, view: StepView, count: int) -> list[PromptId]:
        """Return the next ``count`` prompts."""
        brought = list(view.candidates[:count])
        return brought + view.fresh(count - len(brought)) if len(brought) < count else brought


@final
@dataclass(frozen=True, slots=True)
class HighestVariance:
    """The candidates with the largest expected reward variance p(1-p), over the host's prompts and some of the pool.

    Args:
        among: candidates looked at, as a multiple of the prompts to pick; the host's own always are.
        explore: "thompson" ranks by one posterior draw of p per candidate, so that what is uncertain gets its
            chance in proportion; "mean" ranks by E[p(1-p)] and starves prompts that once looked uniform.

    Deviation: which prompts train changes the objective's prompt weights (a curriculum); the ledger reports coverage.
    """

    among: float = 4.0
    explore: str = "thompson"

    def __post_init__(self) -> None:
        real("among", self.among, low=1.0)
        choice("explore", self.explore, ("thompson", "mean"))

    def pick(self, view: StepView, count: int) -> list[PromptId]:
        """Return the best ``count`` of the candidates, best first; ties keep the candidates' order."""
        ids = list(view.candidates)
        ids += view.fresh(max(0, round(self.among * count) - len(ids)))
        if not ids:
            return []
        if self.explore == "thompson":
            rate = view.belief.sample(ids, view.rng("select", len(ids)))
            score = rate * (1.0 - rate)
        else:
            score = view.belief.expected_variance(ids)
        best = np.argsort(-score, kind="stable")[:count]
        return [ids[i] for i in best]
