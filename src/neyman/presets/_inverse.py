"""What VIP's two heuristics share."""

from __future__ import annotations

from neyman import beliefs, rules
from neyman.beliefs import Belief
from neyman.strategy import Strategy


def inverse(
    of: str,
    *,
    lower: int,
    upper: int,
    epsilon: float,
    belief: Belief | None,
    variant: str,
    estimator: str,
) -> Strategy:
    """Return the heuristic that gives most rollouts to prompts of low accuracy, or of low variance."""
    return Strategy(
        name=f"inverse-{of}",
        allocate=rules.Inverse(of, lower, upper, epsilon, plug_in=variant == "published"),
        belief=beliefs.for_variant(variant) if belief is None else belief,
        estimator=estimator,
    )
