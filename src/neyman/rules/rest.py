"""Let prompts that looked solved, or hopeless, rest for a while."""

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
    """Pass over prompts whose last outcomes were nearly all right, or all wrong, until they have rested.

    The rates are those that the belief holds as evidence (`neyman.beliefs.Counts`; ``discount=0`` makes them the last
    visit's), or its means where it tells no evidence.

    Args:
        inner: chooses among the others.
        solved: success rate from which a prompt rests.
        failed: success rate up to which a prompt rests; below 0 none does.
        passes: how long after its last visit, in passes over the pool (as many rollouts as the average group has, for
            every prompt of it). Prompts that do not rest are back after about one, so 2 leaves out the next epoch.

    Guarantee: prompts that rest come last, never never: they are picked where no other is left, and as soon as they
    have rested. Without a pool neyman cannot tell for how long a prompt was not brought, and they only come last.

    Cost: O(pool) a pick.

    Source: Pilot-Commit, arXiv 2605.26606, evicts what looks solved for an epoch; resting what looks hopeless is ours.
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
        """Return the inner rule's picks among prompts that do not rest, then those that do, in the order offered."""
        rested = set(view.overdue(self.passes))

        def awake(ids: Sequence[PromptId]) -> list[PromptId]:
            tired = self._tired(view.belief, ids)
            return [i for i, is_tired in zip(ids, tired, strict=True) if i in rested or not is_tired]

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
    """Return the observed success rates, NaN where nothing was observed."""
    evidence = belief.evidence(ids)
    if evidence is None:
        return belief.predict(ids)[0]
    successes, trials = evidence
    return np.where(trials > 0.0, successes / np.where(trials > 0.0, trials, 1.0), np.nan)


def _enough(
    offer: Callable[[int], list[PromptId]],
    awake: Callable[[Sequence[PromptId]], list[PromptId]],
    wanted: int,
) -> list[PromptId]:
    """Look at ever more of the pool until enough of what it offers does not rest."""
    asked = wanted
    while True:
        offered = offer(asked)
        found = awake(offered)
        if len(found) >= wanted or len(offered) < asked:
            return found[: max(wanted, 0)]
        asked *= 2
