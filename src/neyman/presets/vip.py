"""VIP: predict success rates, then give out rollouts so that the gradient's variance is least.

Source: VIP, arXiv 2602.01601 (ICLR 2026).
"""

from __future__ import annotations

from neyman import beliefs, rules
from neyman.beliefs import Belief
from neyman.presets._objective import objective
from neyman.strategy import Strategy


def build(
    *,
    lower: int = 4,
    upper: int = 32,
    belief: Belief | None = None,
    variant: str = "exact",
    probe: int = 0,
    estimator: str = "rloo",
) -> Strategy:
    """Return `vip`; ``variant="published"`` rounds and plugs in means as the paper does."""
    allocate = rules.VarianceOptimal(
        lower,
        upper,
        estimator=objective(estimator),
        variant=variant,
        probe=probe,
        plug_in=variant == "published",
    )
    return Strategy(
        name="vip",
        allocate=allocate,
        belief=beliefs.default() if belief is None else belief,
        estimator=estimator,
    )
