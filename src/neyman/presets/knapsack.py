"""Knapsack-RL: allocation by the value of mixed groups, which is largest for hard prompts.

Source: Knapsack-RL, arXiv 2509.25849 (ICML 2026).
"""

from __future__ import annotations

from neyman import beliefs, rules
from neyman.presets._preset import Preset
from neyman.strategy import Strategy


def build(
    *, lower: int = 2, upper: int | None = 128, cost: str = "probability", confidence: float = 0.9
) -> Strategy:
    """Return `knapsack`.

    Args:
        lower: fewest rollouts per prompt.
        upper: most rollouts per prompt; None is the budget.
        cost: estimate of the rollouts that a mixed group needs: "probability" or "expectation"
            (`neyman.rules.Knapsack`).
        confidence: chance of a mixed group to aim at, for "probability".
    """
    return Strategy(
        name="knapsack",
        allocate=rules.Knapsack(lower, upper, cost, confidence),
        belief=beliefs.Counts(discount=0.0, fade=1.0),  # the rate of the last visit, as published
    )


PRESET = Preset(
    "knapsack",
    build,
    "in order | last visit | by value of a mixed group | none | arXiv 2509.25849",
    place=180,
)
