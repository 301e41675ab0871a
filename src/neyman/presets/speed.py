"""SPEED-RL: a screening of fresh prompts by a few rollouts, and the full group for those with both outcomes.

Source: SPEED-RL, arXiv 2506.09016.
"""

from __future__ import annotations

from neyman import rules
from neyman.presets._preset import Preset
from neyman.strategy import Strategy


def build(*, screen: int = 4, then: int | None = None) -> Strategy:
    """Return `speed`.

    Args:
        screen: rollouts of every fresh prompt (``N_init``). Published: 4.
        then: further rollouts of a prompt that passed (``N_cont``); None completes the average group of the host's
            batch. Published: 20.
    """
    size = None if then is None else screen + then
    return Strategy(
        name="speed", allocate=rules.Each(size), verdict=rules.Screen(screen), close="fixed_train"
    )


PRESET = Preset(
    "speed",
    build,
    "in order | none | full groups, once mixed | the screening is mixed | arXiv 2506.09016",
    place=70,
    small={"screen": 2, "then": 2},
)
