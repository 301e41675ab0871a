"""Settings of DynaMO's token factor, without torch, so that strategies and configurations can hold them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, final

from neyman import _checks

VARIANTS = ("exact", "published")
EXTREMES = ("batch", "lagged", "micro_batch")


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Modulation:
    """Settings of DynaMO's token factor, beta = beta_comp * beta_stab.

        beta_comp = 1 + alpha (Hmax - H) / (Hmax - Hmin) where A > 0, else 1
        beta_stab = lam + (1 - lam) / (1 + exp(gain (x - threshold))),  x = |dH| / max |dH|

    With the defaults x = 1 gives .751: the floor ``lam`` is never approached, and only the few tokens within about
    ten percent of the largest change are damped.

    Args:
        alpha: the largest boost of a confident token with positive advantage, >= 0.
        lam: the floor of the damping factor, in [0, 1]; 1 switches damping off.
        gain: steepness of the damping around the threshold, > 0.
        threshold: relative entropy change at which half of the damping is reached, in [0, 1].
        variant: "exact" needs the sum over the vocabulary (one pass over the logits); "published" has the mean over
            the tokens of the sequence in its place, which needs only log-probability and entropy.
        extremes: the set over which Hmin, Hmax and max |dH| are taken. "batch": the whole optimisation batch, so
            that results do not depend on the packing of rows; "lagged": the previous batch; "micro_batch": each
            micro-batch, as in the authors' code, so that a factor depends on the rows that share it.

    Raises:
        ArgumentError: a value is outside the range given above.

    Source: Fang et al. (2026), DynaMO, arXiv 2602.19208, and the authors' public code for the constants. The extremes
    of the whole batch and the exact vocabulary sum deviate; ``published()`` undoes both.

    >>> Modulation().threshold
    0.99
    >>> Modulation.published().extremes
    'micro_batch'
    """

    # The authors' run script; the other mode of their code is published("strong").
    alpha: float = 0.2
    lam: float = 0.6
    gain: float = 50.0
    threshold: float = 0.99
    variant: Literal["exact", "published"] = "exact"
    extremes: Literal["batch", "lagged", "micro_batch"] = "batch"

    def __post_init__(self) -> None:
        _checks.real("alpha", self.alpha, low=0.0)
        _checks.real("lam", self.lam, low=0.0, high=1.0)
        _checks.real("gain", self.gain, low=0.0, open_low=True)
        _checks.real("threshold", self.threshold, low=0.0, high=1.0)
        _checks.choice("variant", self.variant, VARIANTS)
        _checks.choice("extremes", self.extremes, EXTREMES)

    @classmethod
    def published(cls, setting: Literal["script", "strong"] = "script") -> Modulation:
        """Return the authors' settings: the sequence mean for the vocabulary sum, and extremes per micro-batch.

        Args:
            setting: "script", as in the authors' run script (alpha .2, threshold .99); "strong", the other mode of
                their code (alpha .4, threshold .9, where x = 1 gives .603).

        Returns:
            The settings. Their code adds 1e-8 to denominators; here an empty range gives factor 1 instead.

        Raises:
            ArgumentError: another setting is named.
        """
        _checks.choice("setting", setting, ("script", "strong"))
        alpha, threshold = (0.2, 0.99) if setting == "script" else (0.4, 0.9)
        return cls(alpha=alpha, threshold=threshold, variant="published", extremes="micro_batch")

    @property
    def is_neutral(self) -> bool:
        """Whether every factor is 1, so that a host may skip the work."""
        return self.alpha == 0.0 and self.lam == 1.0
