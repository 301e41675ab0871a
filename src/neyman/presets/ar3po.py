"""AR3PO: stages of rollouts until a right answer appears, or an earlier right answer in place of a wrong one.

Source: AR3PO, arXiv 2509.25808.
"""

from __future__ import annotations

from neyman import rules
from neyman.presets._preset import Preset
from neyman.strategy import Strategy


def build(*, stage: int = 4, stages: int = 4, replay_age: int = 64) -> Strategy:
    """Return `ar3po`.

    Args:
        stage: rollouts per stage.
        stages: most stages per prompt.
        replay_age: steps for which a right answer of each prompt is kept; 0 replays none. Choose it larger than the
            number of steps between two visits of a prompt.
    """
    return Strategy(
        name="ar3po", allocate=rules.Each(stage * stages), verdict=rules.Until(stage), replay_age=replay_age
    )


PRESET = Preset(
    "ar3po",
    build,
    "in order | none | stages; an earlier right answer where none appears | one is right | arXiv 2509.25808",
    place=90,
    small={"stage": 2, "stages": 3},
)
