"""DAPO's dynamic sampling: full groups, of which those with zero variance are discarded and others drawn.

Source: DAPO, arXiv 2503.14476.
"""

from __future__ import annotations

from neyman import rules
from neyman.presets._preset import Preset
from neyman.strategy import Strategy


def build(*, group_size: int | None = None) -> Strategy:
    """Return `dynamic-sampling`.

    A step that runs out of budget trains the effective groups that it has, and reports that it is short.

    Args:
        group_size: rollouts per prompt; None divides the rows to train on by the number of prompts.
    """
    return Strategy(
        name="dynamic-sampling",
        allocate=rules.Each(group_size),
        verdict=rules.FullGroup(),
        close="fixed_train",
    )


PRESET = Preset(
    "dynamic-sampling", build, "in order | none | full groups | when complete | arXiv 2503.14476", place=40
)
