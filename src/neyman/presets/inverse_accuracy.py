"""VIP's heuristic: rollouts in proportion to 1 / (p + epsilon), so that hard prompts get most.

Source: baseline "inverse accuracy" of VIP, arXiv 2602.01601.
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
    """Return `inverse-accuracy`.

    Args:
        lower: fewest rollouts per prompt.
        upper: most rollouts per prompt.
        epsilon: keeps the weight of a prompt never solved finite.
        belief: what is thought of each prompt; None takes the default.
        variant: "exact", or "published" for the paper's Gaussian process (its row GP + InvAcc).
        estimator: how advantages are computed.
    """
    return inverse(
        "accuracy",
        lower=lower,
        upper=upper,
        epsilon=epsilon,
        belief=belief,
        variant=variant,
        estimator=estimator,
    )
