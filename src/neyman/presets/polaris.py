"""POLARIS-style replacement: effective groups count once more in place of zero-variance ones.

Source: the rule as SkyRL has it (``dynamic_sampling.type=replace``), after POLARIS.
"""

from __future__ import annotations

from neyman import rules
from neyman.presets._preset import Preset
from neyman.strategy import Strategy


def build(*, group_size: int | None = None, replace_above: float = 0.3) -> Strategy:
    """Return `polaris`.

    Args:
        group_size: rollouts per prompt; None divides the budget by the number of prompts.
        replace_above: least share of effective groups at which they replace the others. Below it the published rule
            draws the batch again; here the budget of a step is fixed, and the batch trains as it is.
    """
    return Strategy(
        name="polaris", allocate=rules.Each(group_size), dead_groups="replace", replace_above=replace_above
    )


PRESET = Preset(
    "polaris",
    build,
    "in order | none | the same; groups with signal stand for those without | none | SkyRL, after POLARIS",
    place=60,
)
