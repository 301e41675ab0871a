"""VIP's allocation with a moving average of each prompt's success rate in place of the Gaussian process.

Source: baseline "moving average" of VIP, arXiv 2602.01601.
"""

from __future__ import annotations

from neyman import beliefs, rules
from neyman._checks import real
from neyman.presets._objective import objective
from neyman.presets._preset import Preset
from neyman.strategy import Strategy

_NO_PRIOR = 1e-6  # pseudo-rollouts of the prior, which must be positive


def build(
    *, lower: int = 4, upper: int = 32, rate: float = 0.5, variant: str = "exact", estimator: str = "rloo"
) -> Strategy:
    """Return `moving-average`.

    The average is ``m <- (1 - rate) m + rate s/n`` at each visit, with a bias correction as in Adam, so that it equals
    the rate of the first visit after that. For visits of equal size that is `neyman.beliefs.Counts` with ``discount =
    1 - rate``, no loss between visits and next to no prior; visits of unequal size are weighted by their rollouts.
    Prompts without visits get the pool's mean.

    Args:
        lower: fewest rollouts per prompt.
        upper: most rollouts per prompt.
        rate: weight of the newest visit, in (0, 1]; 1 is the last visit alone. The paper gives no value.
        variant: "exact", or "published" for the paper's relaxation with its rounding.
        estimator: of the advantages; the allocation minimises its variance.
    """
    keep = 1.0 - real("rate", rate, low=0.0, high=1.0, open_low=True)
    allocate = rules.VarianceOptimal(
        lower, upper, estimator=objective(estimator), variant=variant, plug_in=True
    )
    return Strategy(
        name="moving-average",
        allocate=allocate,
        belief=beliefs.Counts(discount=keep, fade=1.0, prior="pool", strength=_NO_PRIOR),
        estimator=estimator,
    )


PRESET = Preset(
    "moving-average", build, "in order | moving average | as vip | none | baseline there", place=170
)
