"""VIP's allocation with a ridge regression of success on features in place of the Gaussian process.

Source: baseline "ridge" of VIP, arXiv 2602.01601.
"""

from __future__ import annotations

from neyman import beliefs, rules
from neyman.presets._objective import objective
from neyman.presets._preset import Preset
from neyman.strategy import Strategy


def build(
    *,
    lower: int = 4,
    upper: int = 32,
    penalty: float = 1.0,
    memory: float = 0.99,
    variant: str = "exact",
    estimator: str = "rloo",
) -> Strategy:
    """Return `ridge`.

    Args:
        lower: fewest rollouts per prompt.
        upper: most rollouts per prompt.
        penalty: of the regression's weights, in rollouts.
        memory: share of a rollout's weight in the regression that a step leaves.
        variant: "exact", or "published" for the paper's relaxation with its rounding.
        estimator: of the advantages; the allocation minimises its variance.
    """
    allocate = rules.VarianceOptimal(
        lower, upper, estimator=objective(estimator), variant=variant, plug_in=True
    )
    return Strategy(
        name="ridge",
        allocate=allocate,
        belief=beliefs.Ridge(penalty=penalty, memory=memory),
        estimator=estimator,
    )


PRESET = Preset("ridge", build, "in order | ridge regression | as vip | none | baseline there", place=160)
