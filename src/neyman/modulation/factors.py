"""DynaMO's factor on each token's advantage, from entropies and entropy changes."""

from __future__ import annotations

import math

from neyman import _checks
from neyman.errors import ArgumentError
from neyman.modulation._tensors import float_tensor, per_token, token_mask
from neyman.modulation.change import entropy_change_from_moments, published_entropy_change, update_weight
from neyman.modulation.extremes import Extremes, largest_change, token_extremes
from neyman.modulation.settings import Modulation

import torch  # isort: skip - after _tensors, whose import names the extra where torch is absent
from torch import Tensor  # isort: skip


def beta_comp(
    entropy: Tensor, advantages: Tensor, mask: Tensor, alpha: float, extremes: Extremes | None = None
) -> Tensor:
    """Compute the factor that compensates for the small gradients of confident, correct tokens.

        beta_comp = 1 + alpha (Hmax - H) / (Hmax - Hmin) where A > 0, else 1

    Args:
        entropy: (B, T) H, nats.
        advantages: (B,), (B, 1) or (B, T).
        mask: (B, T), nonzero on valid tokens.
        alpha: the largest boost, >= 0.
        extremes: Hmin and Hmax; default: of the valid tokens given.

    Returns:
        (B, T) in [1, 1 + alpha], detached; 1 on masked tokens, and everywhere if Hmax = Hmin.

    Raises:
        ArgumentError: alpha is negative, or shapes do not match.

    Guarantee: Finite for any entropies. With the extremes of another batch ("lagged") the quotient is clamped to [0,
    1].
    Cost: O(B T).
    Source: Fang et al. (2026), DynaMO, arXiv 2602.19208. Motive: in the logits, E ||grad log pi||^2 = 1 - sum pi^2 <= 1
    - exp(-H).

    >>> entropy = torch.tensor([[0.0, 1.0, 2.0]])
    >>> beta_comp(entropy, torch.tensor([1.0]), torch.ones(1, 3), alpha=0.5).tolist()
    [[1.5, 1.25, 1.0]]
    """
    _checks.real("alpha", alpha, low=0.0)
    entropy = float_tensor("entropy", entropy)
    shape = tuple(entropy.shape)
    valid = token_mask(mask, shape)
    positive = per_token("advantages", advantages, shape) > 0
    if extremes is None:
        extremes = token_extremes(entropy, None, valid)
    span = extremes.entropy_max - extremes.entropy_min
    # Tokens of equal entropy have no order, and an empty set has infinite extremes: no token is boosted.
    if not (math.isfinite(span) and span > 0.0):
        return torch.ones_like(entropy)
    boosted = 1.0 + alpha * ((extremes.entropy_max - entropy) / span).clamp(0.0, 1.0)
    return torch.where(valid & positive & boosted.isfinite(), boosted, entropy.new_ones(()))


def beta_stab(
    change: Tensor, mask: Tensor, lam: float, gain: float, threshold: float, *, max_abs: float | None = None
) -> Tensor:
    """Compute the factor that damps the tokens with the largest entropy change.

        beta_stab = lam + (1 - lam) / (1 + exp(gain (x - threshold))),   x = |dH| / max |dH|

    Args:
        change: (B, T) dH.
        mask: (B, T), nonzero on valid tokens.
        lam: the floor, in [0, 1].
        gain: steepness, > 0.
        threshold: relative change at which half of the damping is reached, in [0, 1].
        max_abs: max |dH|, >= 0; default: of the valid tokens given.

    Returns:
        (B, T) in [lam, 1], detached; 1 on masked tokens, and everywhere if max |dH| = 0.

    Raises:
        ArgumentError: a setting is out of range, or shapes do not match.

    Guarantee: Finite for any changes. With the maximum of another batch ("lagged") x may exceed 1, and the factor nears
    lam.
    Cost: O(B T).
    Source: Fang et al. (2026), DynaMO, arXiv 2602.19208; published gain 50 with threshold .99 or .9.

    >>> change = torch.tensor([[0.0, -1.0]])
    >>> [round(x, 3) for x in beta_stab(change, torch.ones(1, 2), 0.6, 50, 0.99)[0].tolist()]
    [1.0, 0.751]
    """
    _checks.real("lam", lam, low=0.0, high=1.0)
    _checks.real("gain", gain, low=0.0, open_low=True)
    _checks.real("threshold", threshold, low=0.0, high=1.0)
    change = float_tensor("change", change)
    valid = token_mask(mask, tuple(change.shape))
    largest = (
        float(largest_change(change, valid)) if max_abs is None else _checks.real("max_abs", max_abs, low=0.0)
    )
    if largest == 0.0:
        return torch.ones_like(change)
    # A sigmoid in place of the quotient as printed, whose exp overflows for steep gains.
    damped = lam + (1.0 - lam) * torch.sigmoid(-gain * (change.abs() / largest - threshold))
    return torch.where(valid & change.isfinite() & damped.isfinite(), damped, change.new_ones(()))


def token_change(
    modulation: Modulation,
    *,
    logp: Tensor,
    entropy: Tensor,
    advantages: Tensor,
    mask: Tensor,
    s2: Tensor | None = None,
    ratio: Tensor | None = None,
    passes: Tensor | None = None,
) -> Tensor:
    """Compute the entropy change by the settings' ``variant``.

    Log-probability, entropy and s2, which "exact" requires, are those of :func:`token_moments` for the policy being
    updated; the mask, (B, T), is nonzero on valid tokens; the rest is as for :func:`update_weight`.

    Returns:
        (B, T), detached.

    Raises:
        ArgumentError: "exact" without s2, or shapes do not match.
    """
    rows, columns = float_tensor("logp", logp).shape
    weight = update_weight(advantages, (rows, columns), ratio=ratio, passes=passes)
    if modulation.variant == "published":
        return published_entropy_change(logp, entropy, mask, weight)
    if s2 is None:
        raise ArgumentError(
            "s2 must be given for variant='exact': take it from token_moments(logits, tokens), or use "
            "Modulation(variant='published'), which needs no logits"
        )
    return entropy_change_from_moments(logp, entropy, s2, weight)


def token_factors(
    modulation: Modulation,
    *,
    entropy: Tensor,
    change: Tensor,
    advantages: Tensor,
    mask: Tensor,
    extremes: Extremes | None = None,
) -> Tensor:
    """Compute the factor on each token's advantage.

        A_final = A beta,   beta = beta_comp beta_stab

    Args:
        modulation: the settings.
        entropy: (B, T) H, nats.
        change: (B, T) dH, see :func:`token_change`.
        advantages: (B,), (B, 1) or (B, T), raw.
        mask: (B, T), nonzero on valid tokens.
        extremes: of this batch ("batch") or the previous one ("lagged"); default: of the tokens given, which is the
            "micro_batch" form, or the "batch" form when these are the whole batch.

    Returns:
        (B, T) in [lam, 1 + alpha], detached; exactly 1 on masked tokens, where the advantage is 0, and
        everywhere with alpha = 0 and lam = 1.

    Raises:
        ArgumentError: shapes do not match.

    Guarantee: Always finite. With the extremes of the whole batch a token's factor is the same, bit for bit, for every
    packing of the rows; voided by ``extremes=None`` on a part of the batch.
    Cost: O(B T).
    Source: Fang et al. (2026), DynaMO, arXiv 2602.19208.

    >>> shape = {"entropy": torch.tensor([[0.2, 1.0]]), "change": torch.tensor([[0.0, 0.1]])}
    >>> rows = token_factors(Modulation(), **shape, advantages=torch.tensor([1.0]), mask=torch.ones(1, 2))
    >>> [round(x, 3) for x in rows[0].tolist()]
    [1.2, 0.751]
    """
    entropy = float_tensor("entropy", entropy)
    shape = tuple(entropy.shape)
    change = float_tensor("change", change, shape)
    acting = per_token("advantages", advantages, shape) != 0
    if extremes is None:
        extremes = token_extremes(entropy, change, token_mask(mask, shape))
    boost = beta_comp(entropy, advantages, mask, modulation.alpha, extremes)
    settings = (modulation.lam, modulation.gain, modulation.threshold)
    damp = beta_stab(change, mask, *settings, max_abs=extremes.change_max)
    # Exactly 1 where nothing acts, so that a factor never turns a zero advantage into NaN.
    return torch.where(acting, boost * damp, entropy.new_ones(()))
