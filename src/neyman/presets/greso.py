"""GRESO: over dynamic sampling, prompts whose last groups were all uniform are passed over by chance.

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
        target: share of uniform groups that is aimed at, a third of it easy and two thirds hard.
        rate: by how much the two probabilities of another try move per step.
        floor: least probability of another try, for easy and for hard runs.
        easy: success rate from which a group counts as all right.
        hard: success rate up to which it counts as all wrong.
        fade: what a run of uniform groups keeps of its length per step; 1, as published, trusts it for ever.
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
    name="greso",
    build=build,
    place=120,
    parts=("in order, runs of uniform groups passed over", "streaks", "full groups", "when complete"),
    source="arXiv 2506.02177",
    small={"group_size": 4},
)
