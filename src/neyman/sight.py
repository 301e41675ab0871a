"""What the rules are shown of a step: its prompts, and what is known about them by now."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from neyman import beliefs
from neyman._checks import FloatP, IntP
from neyman.keyed import PromptId, keyed_rng
from neyman.rules import Evidence, StepView

if TYPE_CHECKING:
    from neyman.engine import Engine


Moments = tuple[FloatP, FloatP]  # mean and variance of each prompt's success rate, by the belief


def step_view(engine: Engine, *, at_start: bool = False) -> StepView:
    """Return the step as a selection rule sees it: now, or before its first group was opened.

    What is settled once for a step must be asked of its start, so that a restored step settles the same.
    """
    pool, taken, unopened, opened = engine.pool, engine.taken, engine.unopened, len(engine.groups)
    if at_start:
        unopened = dict.fromkeys(engine.candidates)
        taken, opened = set(unopened), 0

    def rng(*keys: PromptId) -> np.random.Generator:
        return keyed_rng(engine.seed, engine.step, *keys)

    def browse(count: int) -> list[PromptId]:
        return [] if pool is None else pool.browse(count, taken, rng("browse", opened))

    def overdue(passes: float, count: int | None = None) -> list[PromptId]:
        if pool is None:
            return []
        return pool.overdue(engine.passes - passes, taken.difference(unopened), count)

    return StepView(
        step=engine.step,
        candidates=tuple(unopened),
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
