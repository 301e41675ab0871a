"""VIP: predicted success rates, and the allocation with the least gradient variance under them.

Source: VIP, arXiv 2602.01601 (ICLR 2026).
"""

from __future__ import annotations

from neyman import beliefs, rules
from neyman.beliefs import Belief
from neyman.presets._objective import objective
from neyman.presets._preset import Preset
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
    """Return `vip`.

    Args:
        lower: fewest rollouts per prompt.
        upper: most rollouts per prompt.
        belief: predicts each prompt's success rate; None takes the default.
        variant: "exact", or "published" for the paper's rounding, plugged-in means and Gaussian process.
        probe: first rollouts of every prompt, after which the rest is allocated with their results.
        estimator: of the advantages; the allocation minimises its variance.
    """
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
        belief=beliefs.for_variant(variant) if belief is None else belief,
        estimator=estimator,
    )


PRESET = Preset(
    "vip", build, "in order | default | least gradient variance | none | arXiv 2602.01601", place=10
)
