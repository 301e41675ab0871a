"""VIP's allocation over a moving average of each prompt's success rate, in place of its Gaussian process.

Source: baseline "moving average" of VIP, arXiv 2602.01601.
"""

from __future__ import annotations

from neyman import beliefs, rules
from neyman._checks import real
from neyman.presets._objective import objective
from neyman.presets._preset import Preset
from neyman.strategy import Strategy

_NOTHING = 1e-6  # pseudo-rollouts behind the mean of a prompt that was seen


def build(
    *,
    lower: int = 4,
    upper: int = 32,
    rate: float = 0.5,
    variant: str = "exact",
    estimator: str = "rloo",
) -> Strategy:
    """Return `moving-average`.

    The average is ``m <- (1 - rate) m + rate s/n`` at each visit, without the bias of its start: the first visit's m
    is its rate, as in Adam's bias correction. That is `neyman.beliefs.Counts` with ``discount = 1 - rate``, nothing
    lost between visits and next to no prior, for visits of equal size; visits of unequal size weigh by their
    rollouts. A prompt never seen gets the pool's mean.

    Args:
        lower: fewest rollouts per prompt.
        upper: most rollouts per prompt.
        rate: weight of the newest visit, in (0, 1]; 1 is the last visit alone. The paper states none.
        variant: "exact" counts, or "published" ones: the relaxation with the paper's rounding.
        estimator: how advantages are computed.
    """
    keep = 1.0 - real("rate", rate, low=0.0, high=1.0, open_low=True)
    allocate = rules.VarianceOptimal(
        lower, upper, estimator=objective(estimator), variant=variant, plug_in=True
    )
    return Strategy(
        name="moving-average",
        allocate=allocate,
        belief=beliefs.Counts(discount=keep, fade=1.0, prior="pool", strength=_NOTHING),
        estimator=estimator,
    )


PRESET = Preset(
    name="moving-average",
    build=build,
    place=170,
    parts=("in order", "moving average", "as vip", "none"),
    source="baseline there",
    small={"lower": 2, "upper": 64},
)
