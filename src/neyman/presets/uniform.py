"""The same number of rollouts for every prompt, as trainers do without neyman."""

from __future__ import annotations

from neyman import rules
from neyman.presets._preset import Preset
from neyman.strategy import Strategy


def build(*, group_size: int | None = None) -> Strategy:
    """Return `uniform`; without a group size the budget is divided by the number of prompts."""
    return Strategy(name="uniform", allocate=rules.Each(group_size))


PRESET = Preset(
    name="uniform", build=build, place=0, parts=("in order", "none", "the same", "none"), source=""
)
