"""Settings of other methods at the level of tokens and rows, without torch.

Prefer a host's own option where it has one: TRL's GRPO has clip-higher (``epsilon_high``), fork tokens
(``top_entropy_quantile``) and an entropy bonus (``entropy_coef``); see docs/methods/tokens.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from neyman import _checks
from neyman.errors import ArgumentError


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class EntropyAdvantage:
    """Raise the advantage of uncertain tokens: A + min(alpha H, |A| / kappa), without a gradient through H.

    Args:
        alpha: advantage per nat, >= 0.
        kappa: bounds the raise by |A| / kappa, so that no advantage changes its sign; > 1.

    Source: Cheng et al. (2025), arXiv 2506.14758, with its settings for GRPO.
    """

    alpha: float = 0.4
    kappa: float = 2.0

    def __post_init__(self) -> None:
        _checks.real("alpha", self.alpha, low=0.0)
        _checks.real("kappa", self.kappa, low=1.0, open_low=True)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ClipCov:
    """Drop the gradient of random tokens with a large covariance of log-probability and advantage.

    They are drawn among the tokens with low < (A - mean A)(log pi - mean log pi) < high. As in the authors' code,
    means are over the rows of a micro-batch, so that the choice depends on the packing of rows.

    Args:
        share: number of dropped tokens, as a share of the valid tokens, > 0; at least one token.
        low: covariance above which a token may be dropped.
        high: covariance below which a token may be dropped.

    Source: Cui et al. (2025), arXiv 2505.22617, and the authors' public code for the settings.
    """

    share: float = 2e-4
    low: float = 1.0
    high: float = 5.0

    def __post_init__(self) -> None:
        _checks.real("share", self.share, low=0.0, high=1.0, open_low=True)
        _checks.real("low", self.low)
        _checks.real("high", self.high)
        if self.low >= self.high:
            raise ArgumentError(f"low must be below high, got {self.low} and {self.high}")


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class KLCov:
    """Penalise the change of the tokens with the largest covariance of log-probability and advantage.

    The tokens of the largest (A - mean A)(log pi - mean log pi) pay coefficient |log pi - log pi_old|. That has no
    gradient while the policy equals the one that generated, so it acts from the second update on the same rollouts.

    Args:
        share: of the valid tokens, at least one token, > 0.
        coefficient: of the penalty, >= 0.

    Source: Cui et al. (2025), arXiv 2505.22617; the settings are verl's defaults.
    """

    share: float = 2e-4
    coefficient: float = 1.0

    def __post_init__(self) -> None:
        _checks.real("share", self.share, low=0.0, high=1.0, open_low=True)
        _checks.real("coefficient", self.coefficient, low=0.0)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class WReinforce:
    """REINFORCE on outcomes of +1 and -1 without a baseline, with less weight on right answers.

    The advantage of a row is ``positive`` if it is right and -1 if it is wrong, independent of its group, so that
    zero-variance groups train too.

    Args:
        positive: weight of right answers, in [0, 1]; 0 learns from failures alone, 1 is plain REINFORCE.

    Source: Zhu et al. (2025), arXiv 2506.01347.
    """

    positive: float = 0.1

    def __post_init__(self) -> None:
        _checks.real("positive", self.positive, low=0.0, high=1.0)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ForkTokens:
    """Train only the tokens of the largest entropy; the others have no gradient.

    For losses without an option of their own (TRL's GRPO has ``top_entropy_quantile``). The threshold is a quantile
    over the rows of a micro-batch.

    Args:
        share: share of the valid tokens that train, in (0, 1]; ties with the threshold train too.

    Source: Wang et al. (2025), arXiv 2506.01939, with its share.
    """

    share: float = 0.2

    def __post_init__(self) -> None:
        _checks.real("share", self.share, low=0.0, high=1.0, open_low=True)


# Methods that act on tokens; W-REINFORCE acts on rows and is no part of it.
Shaping = EntropyAdvantage | ClipCov | KLCov | ForkTokens
