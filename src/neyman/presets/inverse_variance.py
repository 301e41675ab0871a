"""VIP's heuristic: rollouts in proportion to 1 / (p (1-p) + epsilon), so that settled prompts get most.

Source: baseline "inverse variance" of VIP, arXiv 2602.01601.
"""

from __future__ import annotations

from neyman.beliefs import Belief
from neyman.presets._inverse import inverse
from neyman.strategy import Strategy


def build(
    *,
    lower: int = 4,
    upper: int = 32,
    epsilon: float = 0.01,
    belief: Belief | None = None,
    variant: str = "exact",
    estimator: str = "rloo",
) -> Strategy:
    """Return `inverse-variance`.

    Args:
        lower: fewest rollouts per prompt.
        upper: most rollouts per prompt.
        epsilon: keeps the weight of a settled prompt finite.
        belief: what is thought of each prompt; None takes the default.
        variant: "exact" weighs by the posterior E[p(1-p)]; "published" by m (1-m) of the paper's Gaussian process
            (its row GP + InvVar).
        estimator: how advantages are computed.
    """
    return inverse(
        "variance",
        lower=lower,
        upper=upper,
        epsilon=epsilon,
        belief=belief,
        variant=variant,
        estimator=estimator,
    )
