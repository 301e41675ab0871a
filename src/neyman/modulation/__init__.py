"""Token factors of DynaMO: compensate confident correct tokens, damp tokens that move the entropy most.

Factors of other methods stand beside them: entropy advantages, Clip-Cov, KL-Cov, fork tokens, W-REINFORCE. The
settings (:class:`Modulation`, :class:`EntropyAdvantage`, :class:`ClipCov`, :class:`KLCov`, :class:`ForkTokens`,
:class:`WReinforce`) need the standard library alone, so that strategies can carry them; the functions need torch and
are loaded on first use.

Symbols: pi the policy's distribution over the vocabulary at a token, H its entropy, L = log pi + H,
s2 = sum_v pi_v^2 L_v, xi = I_clip r A the weight of the token in the update, dH the entropy change that the update
causes.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from neyman.modulation.rivals import ClipCov, EntropyAdvantage, ForkTokens, KLCov, WReinforce
from neyman.modulation.settings import Modulation

if TYPE_CHECKING:
    from neyman.modulation.change import (
        entropy_change,
        entropy_change_from_moments,
        published_entropy_change,
        unclipped,
        update_weight,
    )
    from neyman.modulation.extremes import Extremes, batch_extremes
    from neyman.modulation.factors import beta_comp, beta_stab, token_change, token_factors
    from neyman.modulation.moments import TokenMoments, entropy, s2_from_sharpened, token_moments
    from neyman.modulation.shaping import (
        clip_cov_factor,
        entropy_advantage_factor,
        fork_tokens_factor,
        kl_cov_advantages,
        shaping_factors,
        token_covariance,
    )

_HOME = {
    "TokenMoments": "moments",
    "entropy": "moments",
    "s2_from_sharpened": "moments",
    "token_moments": "moments",
    "entropy_change": "change",
    "entropy_change_from_moments": "change",
    "published_entropy_change": "change",
    "unclipped": "change",
    "update_weight": "change",
    "Extremes": "extremes",
    "batch_extremes": "extremes",
    "beta_comp": "factors",
    "beta_stab": "factors",
    "token_change": "factors",
    "token_factors": "factors",
    "clip_cov_factor": "shaping",
    "entropy_advantage_factor": "shaping",
    "fork_tokens_factor": "shaping",
    "kl_cov_advantages": "shaping",
    "shaping_factors": "shaping",
    "token_covariance": "shaping",
}

__all__ = [
    "ClipCov",
    "EntropyAdvantage",
    "Extremes",
    "ForkTokens",
    "KLCov",
    "Modulation",
    "TokenMoments",
    "WReinforce",
    "batch_extremes",
    "beta_comp",
    "beta_stab",
    "clip_cov_factor",
    "entropy",
    "entropy_advantage_factor",
    "entropy_change",
    "entropy_change_from_moments",
    "fork_tokens_factor",
    "kl_cov_advantages",
    "published_entropy_change",
    "s2_from_sharpened",
    "shaping_factors",
    "token_change",
    "token_covariance",
    "token_factors",
    "token_moments",
    "unclipped",
    "update_weight",
]


def __getattr__(name: str) -> Any:
    """Load the torch half on first use, so that reading the settings costs nothing."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
