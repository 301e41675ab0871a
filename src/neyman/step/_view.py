"""A step as rules see it: the prompts to choose from, and the evidence on those that share its budget."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from neyman import beliefs
from neyman._checks import FloatP, IntP
from neyman.randomness import PromptId, keyed_rng
from neyman.rules import Evidence, StepView
from neyman.step._state import Moments, StepState


def step_view(state: StepState) -> StepView:
    """Return the step as a selection rule sees it."""
    pool, taken = state.pool, state.taken

    def rng(*keys: PromptId) -> np.random.Generator:
        return keyed_rng(state.seed, state.step, *keys)

    def browse(count: int) -> list[PromptId]:
        return [] if pool is None else pool.browse(count, taken, rng("browse", len(state.groups)))

    def overdue(passes: float, count: int | None = None) -> list[PromptId]:
        if pool is None:
            return []
        return pool.overdue(state.passes - passes, taken.difference(state.unopened), count)

    return StepView(
        step=state.step,
        candidates=tuple(state.unopened),
        fresh=lambda count: [] if pool is None else pool.peek(count, taken),
        browse=browse,
        overdue=overdue,
        group_size=state.strategy.allocate.group_size(state.average),
        belief=state.strategy.belief,
        rng=rng,
    )


def evidence(state: StepState, ids: Sequence[PromptId], issued: IntP, moments: Moments) -> Evidence:
    """Return the belief's success rates joined with the outcomes of this step, as a Beta per prompt."""
    a, b = beliefs.match_beta(*moments)
    by_id = {group.prompt_id: group for group in state.groups}
    seen = [by_id[i].outcomes() if i in by_id else (0, 0) for i in ids]
    successes: FloatP = np.array([s for s, _ in seen], dtype=np.float64)
    trials: FloatP = np.array([n for _, n in seen], dtype=np.float64)
    return Evidence(
        ids=ids, belief=state.strategy.belief, a=a + successes, b=b + trials - successes, issued=issued
    )
