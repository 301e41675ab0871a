"""DAPO's dynamic sampling: draw full groups, discard those whose outcomes are all equal, draw more.

Source: DAPO, arXiv 2503.14476.
"""

from __future__ import annotations

from neyman import rules
from neyman.presets._preset import Preset
from neyman.strategy import Strategy


def build(*, group_size: int | None = None) -> Strategy:
    """Return `dynamic-sampling`; a step that runs out of budget trains what it has, and says so."""
    return Strategy(
        name="dynamic-sampling",
        allocate=rules.Each(group_size),
        verdict=rules.FullGroup(),
        close="fixed_train",
    )


PRESET = Preset(
    name="dynamic-sampling",
    build=build,
    place=40,
    parts=("in order", "none", "full groups", "when complete"),
    source="arXiv 2503.14476",
    small={"group_size": 4},
)
