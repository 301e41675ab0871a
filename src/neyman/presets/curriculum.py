"""Prompt curriculum: selection of the candidates whose expected success rate is nearest to 1/2.

Source: PCL (prompt curriculum learning), arXiv 2510.01135.
"""

from __future__ import annotations

from neyman import beliefs, rules
from neyman.beliefs import Belief
from neyman.presets._preset import Preset
from neyman.strategy import Strategy


def build(
    *,
    group_size: int | None = None,
    among: float = 4.0,
    target: float = 0.5,
    revisit: float | None = 8.0,
    belief: Belief | None = None,
) -> Strategy:
    """Return `curriculum`.

    Args:
        group_size: rollouts per prompt; None divides the budget by the number of prompts.
        among: candidates per chosen prompt.
        target: success rate to aim at.
        revisit: passes over the pool within which every prompt is drawn again; None, as published, may never return
            to a prompt that looked settled.
        belief: replaces the paper's value model, which is trained with the policy; None takes the default, which
            learns from features and from each prompt's own results.
    """
    nearest = rules.ClosestTo(target, among=among, explore="mean")
    return Strategy(
        name="curriculum",
        select=nearest if revisit is None else rules.Revisit(nearest, passes=revisit),
        allocate=rules.Each(group_size),
        belief=beliefs.default() if belief is None else belief,
    )


PRESET = Preset(
    "curriculum",
    build,
    "expected rate nearest to 1/2 | default | the same | none | arXiv 2510.01135",
    place=130,
)
