"""Knapsack-RL: the counts of most value under the budget, where a hard prompt's mixed group is worth most.

Source: Knapsack-RL, arXiv 2509.25849 (ICML 2026).
"""

from __future__ import annotations

from neyman import beliefs, rules
from neyman.presets._preset import Preset
from neyman.strategy import Strategy


def build(
    *,
    lower: int = 2,
    upper: int | None = 128,
    cost: str = "probability",
    confidence: float = 0.9,
) -> Strategy:
    """Return `knapsack`.

    Args:
        lower: fewest rollouts per prompt.
        upper: most rollouts per prompt; None is the budget.
        cost: what a prompt with both outcomes is taken to need: "probability" or "expectation"
            (`neyman.rules.Knapsack`).
        confidence: of "probability": the chance of a mixed group that is aimed at.
    """
    return Strategy(
        name="knapsack",
        allocate=rules.Knapsack(lower, upper, cost, confidence),
        belief=beliefs.Counts(discount=0.0, fade=1.0),
    )


PRESET = Preset(
    name="knapsack",
    build=build,
    place=180,
    parts=("in order", "last visit", "by value of a mixed group", "none"),
    source="arXiv 2509.25849",
    small={"upper": 64},
)
