"""SPEED-RL: screen fresh prompts with a few rollouts, and complete the groups of those with both outcomes.

Source: SPEED-RL, arXiv 2506.09016.
"""

from __future__ import annotations

from neyman import rules
from neyman.presets._preset import Preset
from neyman.strategy import Strategy


def build(*, screen: int = 4, then: int | None = None) -> Strategy:
    """Return `speed`.

    Args:
        screen: rollouts that every fresh prompt gets (``N_init``).
        then: rollouts that a prompt which passed gets on top (``N_cont``), any number; None takes what is left of
            the group that the host's batch has for each prompt. Published: 4 and 20.
    """
    size = None if then is None else screen + then
    return Strategy(
        name="speed", allocate=rules.Each(size), verdict=rules.Screen(screen), close="fixed_train"
    )


PRESET = Preset(
    name="speed",
    build=build,
    place=70,
    parts=("in order", "none", "full groups, once mixed", "the screening is mixed"),
    source="arXiv 2506.09016",
    small={"screen": 2, "then": 2},
)
