"""The builder that VIP's two heuristics, "inverse accuracy" and "inverse variance", share."""

from __future__ import annotations

from neyman import beliefs, rules
from neyman.beliefs import Belief
from neyman.strategy import Strategy


def inverse(
    of: str,
    *,
    lower: int = 4,
    upper: int = 32,
    epsilon: float = 0.01,
    belief: Belief | None = None,
    variant: str = "exact",
    estimator: str = "rloo",
) -> Strategy:
    """Return the strategy that allocates in inverse proportion to accuracy or variance.

    Args:
        of: "accuracy", p, or "variance", p (1-p).
        lower: fewest rollouts per prompt.
        upper: most rollouts per prompt.
        epsilon: added to the accuracy or variance, so that the weight of a settled prompt stays finite.
        belief: of each prompt's success rate; None takes the default.
        variant: "exact" takes posterior means, E[p] or E[p(1-p)]; "published" takes the paper's Gaussian process, and
            plugs its mean m into m or m (1-m) (the paper's rows GP + InvAcc and GP + InvVar).
        estimator: of the advantages: "grpo", "dr_grpo", "rloo" or "reinforce++".
    """
    return Strategy(
        name=f"inverse-{of}",
        allocate=rules.Inverse(of, lower, upper, epsilon, plug_in=variant == "published"),
        belief=beliefs.for_variant(variant) if belief is None else belief,
        estimator=estimator,
    )
