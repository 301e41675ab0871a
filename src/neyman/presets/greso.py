"""GRESO: dynamic sampling that skips prompts at random after runs of zero-variance groups.

Source: GRESO, arXiv 2506.02177.
"""

from __future__ import annotations

from neyman import beliefs, rules
from neyman.presets._preset import Preset
from neyman.strategy import Strategy


def build(
    *,
    group_size: int | None = None,
    target: float = 0.25,
    rate: float = 0.01,
    floor: float = 0.01,
    easy: float = 1.0,
    hard: float = 0.0,
    fade: float = 0.99,
) -> Strategy:
    """Return `greso`.

    Args:
        group_size: rollouts per prompt; None divides the rows to train on by the number of prompts.
        target: share of zero-variance groups to aim at, a third of it easy and two thirds hard.
        rate: change per step of the two probabilities to draw such a prompt again.
        floor: least probability to draw a prompt again, after easy and after hard runs.
        easy: least success rate of a group that counts as all right.
        hard: largest success rate of a group that counts as all wrong.
        fade: share of a run's length that a step leaves; 1, as published, never forgets it.
    """
    return Strategy(
        name="greso",
        select=rules.SkipUniform(),
        allocate=rules.Each(group_size),
        verdict=rules.FullGroup(),
        belief=beliefs.Streaks(target=target, rate=rate, floor=floor, easy=easy, hard=hard, fade=fade),
        close="fixed_train",
    )


PRESET = Preset(
    "greso",
    build,
    "in order, runs of uniform groups passed over | streaks | full groups | when complete | arXiv 2506.02177",
    place=120,
)
