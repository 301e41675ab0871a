"""Selection that lets prompts rest after a visit with nearly all right, or all wrong, outcomes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import final

import numpy as np
from numpy.typing import NDArray

from neyman._checks import FloatP, real
from neyman.beliefs import Belief
from neyman.randomness import PromptId
from neyman.rules._contracts import Select, StepView


@final
@dataclass(frozen=True, slots=True)
class Rest:
    """Skip prompts whose last outcomes were nearly all right, or all wrong, until they have rested.

    The success rates are those of the belief's evidence (`neyman.beliefs.Counts`; with ``discount=0`` that of the last
    visit), or its means where it keeps no counts.

    Args:
        inner: the selection among the other prompts.
        solved: least success rate at which a prompt rests.
        failed: largest success rate at which a prompt rests; below 0 none does.
        passes: length of the rest after a prompt's last visit, in passes over the pool (the average group's rollouts
            for every prompt of it). Other prompts return after about one pass, so 2 skips the next epoch.

    Guarantee: resting prompts come last but are not excluded: they are picked once no other is left, or once they
    have rested. Without a pool the time since a prompt's last visit is unknown, and they come last for good.
    Cost: O(pool) a pick.
    Source: Pilot-Commit, arXiv 2605.26606, evicts solved prompts for an epoch; the rest of failed ones is ours.
    """

    inner: Select
    solved: float = 1.0
    failed: float = 0.0
    passes: float = 2.0

    def __post_init__(self) -> None:
        real("solved", self.solved, low=0.0, high=1.0, open_low=True)
        real("failed", self.failed, low=-1.0, high=1.0)
        real("passes", self.passes, low=0.0, open_low=True)

    def pick(self, view: StepView, count: int) -> list[PromptId]:
        """Return the inner rule's picks among prompts that do not rest, then resting ones in their given order."""
        rested = set(view.overdue(self.passes))

        def awake(ids: Sequence[PromptId]) -> list[PromptId]:
            tired = self._tired(view.belief, ids)
            return [i for i, is_tired in zip(ids, tired, strict=True) if i in rested or not is_tired]

        # The inner rule works on a view without resting prompts, so that it needs no notion of rest.
        others = replace(
            view,
            candidates=tuple(awake(view.candidates)),
            fresh=lambda wanted: _enough(view.fresh, awake, wanted),
            browse=lambda wanted: _enough(view.browse, awake, wanted),
        )
        picked = dict.fromkeys(self.inner.pick(others, count))
        if len(picked) < count:
            offered = [*view.candidates, *view.fresh(count + len(picked))]
            picked |= dict.fromkeys(offered)
        return list(picked)[:count]

    def _tired(self, belief: Belief, ids: Sequence[PromptId]) -> NDArray[np.bool_]:
        if not ids:
            return np.zeros(0, dtype=bool)
        rate = _rates(belief, ids)
        tired: NDArray[np.bool_] = (rate >= self.solved - 1e-9) | (rate <= self.failed + 1e-9)
        return tired


def _rates(belief: Belief, ids: Sequence[PromptId]) -> FloatP:
    """Return the observed success rates; NaN, which never rests, without an observation."""
    evidence = belief.evidence(ids)
    if evidence is None:
        return belief.predict(ids)[0]
    successes, trials = evidence
    return np.where(trials > 0.0, successes / np.where(trials > 0.0, trials, 1.0), np.nan)


def _enough(
    offer: Callable[[int], list[PromptId]], awake: Callable[[Sequence[PromptId]], list[PromptId]], wanted: int
) -> list[PromptId]:
    """Request more and more of the pool until ``wanted`` prompts do not rest, or it offers no more."""
    asked = wanted
    while True:
        offered = offer(asked)
        found = awake(offered)
        if len(found) >= wanted or len(offered) < asked:
            return found[: max(wanted, 0)]
        asked *= 2  # most of the pool may rest
