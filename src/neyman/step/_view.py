"""What the rules are shown of a step: its prompts, and what is known about them by now."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from neyman import beliefs
from neyman._checks import FloatP, IntP
from neyman.randomness import PromptId, keyed_rng
from neyman.rules import Evidence, StepView

if TYPE_CHECKING:
    from neyman.step._engine import Engine


Moments = tuple[FloatP, FloatP]  # mean and variance of each prompt's success rate, by the belief


def step_view(engine: Engine) -> StepView:
    """Return the step as a selection rule sees it."""
    pool, taken = engine.pool, engine.taken

    def rng(*keys: PromptId) -> np.random.Generator:
        return keyed_rng(engine.seed, engine.step, *keys)

    def browse(count: int) -> list[PromptId]:
        return [] if pool is None else pool.browse(count, taken, rng("browse", len(engine.groups)))

    def overdue(passes: float, count: int | None = None) -> list[PromptId]:
        if pool is None:
            return []
        return pool.overdue(engine.passes - passes, taken.difference(engine.unopened), count)

    return StepView(
        step=engine.step,
        candidates=tuple(engine.unopened),
        fresh=lambda count: [] if pool is None else pool.peek(count, taken),
        browse=browse,
        overdue=overdue,
        group_size=engine.strategy.allocate.group_size(engine.average),
        belief=engine.strategy.belief,
        rng=rng,
    )


def evidence(engine: Engine, ids: Sequence[PromptId], issued: IntP, moments: Moments) -> Evidence:
    """Join what the belief says of each rate with the outcomes of this step, as a Beta per prompt."""
    a, b = beliefs.match_beta(*moments)
    by_id = {group.prompt_id: group for group in engine.groups}
    told = [by_id[i].outcomes() if i in by_id else (0, 0) for i in ids]
    successes: FloatP = np.array([s for s, _ in told], dtype=np.float64)
    trials: FloatP = np.array([n for _, n in told], dtype=np.float64)
    return Evidence(
        ids=ids, belief=engine.strategy.belief, a=a + successes, b=b + trials - successes, issued=issued
    )
