"""The same number of rollouts for every prompt, as in stock trainers."""

from __future__ import annotations

from neyman import rules
from neyman.presets._preset import Preset
from neyman.strategy import Strategy


def build(*, group_size: int | None = None) -> Strategy:
    """Return `uniform`.

    Args:
        group_size: rollouts per prompt; None divides the budget by the number of prompts.
    """
    return Strategy(name="uniform", allocate=rules.Each(group_size))


PRESET = Preset("uniform", build, "in order | none | the same | none |", place=0)
