"""DynaMO: rollouts in proportion to the reward's standard deviation, and a factor on each token's advantage.

Source: DynaMO, arXiv 2602.19208 (Findings of ACL 2026).
"""

from __future__ import annotations

from typing import Any

from neyman import beliefs, rules
from neyman.modulation import Modulation
from neyman.presets._preset import Preset
from neyman.strategy import Strategy


def build(*, lower: int = 4, upper: int = 32, variant: str = "sqrt", modulation: Any = "default") -> Strategy:
    """Return `dynamo`.

    Args:
        lower: fewest rollouts per prompt; the published script has 8.
        upper: most rollouts per prompt; the published script has 24.
        variant: "sqrt", or "published" for the authors' water level and token factor.
        modulation: settings of the token factor; None applies none.
    """
    if modulation == "default":
        modulation = Modulation.published() if variant == "published" else Modulation()
    return Strategy(
        name="dynamo",
        allocate=rules.WaterLevel(lower, upper, variant=variant),
        belief=beliefs.Counts(discount=1.0, fade=1.0),
        modulation=modulation,
    )


PRESET = Preset(
    "dynamo", build, "in order | counts | by standard deviation | none | arXiv 2602.19208", place=30
)
