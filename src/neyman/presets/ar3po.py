"""AR3PO: rounds until a right answer appears, and an earlier right answer where none does.

Source: AR3PO, arXiv 2509.25808.
"""

from __future__ import annotations

from neyman import rules
from neyman.presets._preset import Preset
from neyman.strategy import Strategy


def build(*, stage: int = 4, stages: int = 4, replay_age: int = 64) -> Strategy:
    """Return `ar3po`.

    Args:
        stage: rollouts of a stage.
        stages: the most of them for a prompt.
        replay_age: steps for which a right answer of each prompt is kept; 0 replays nothing. To be of use it must
            span the steps between two visits of a prompt.
    """
    return Strategy(
        name="ar3po",
        allocate=rules.Each(stage * stages),
        verdict=rules.Until(stage),
        replay_age=replay_age,
    )


PRESET = Preset(
    name="ar3po",
    build=build,
    place=90,
    parts=("in order", "none", "stages; an earlier right answer where none appears", "one is right"),
    source="arXiv 2509.25808",
    small={"stage": 2, "stages": 3},
)
