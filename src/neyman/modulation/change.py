"""Entropy change of the policy at a token by the update of that token, to first order."""

from __future__ import annotations

from neyman import _checks
from neyman.modulation._tensors import float_tensor, per_token, token_mask, working
from neyman.modulation.moments import token_moments

import torch  # isort: skip - after _tensors, whose import names the extra where torch is absent
from torch import Tensor  # isort: skip


def unclipped(advantages: Tensor, ratio: Tensor, *, low: float, high: float) -> Tensor:
    """Mark the tokens at which a clipped surrogate passes the gradient: I_clip.

        I_clip = 1 where (A > 0 and r <= 1 + high) or (A < 0 and r >= 1 - low) or A = 0

    Args:
        advantages: (B,), (B, 1) or (B, T).
        ratio: (B, T), or (B, 1) for a ratio per sequence; pi / pi_old.
        low: the lower clip range, >= 0.
        high: the upper clip range, >= 0.

    Returns:
        Bool, of the shape that advantages and ratio broadcast to.

    Raises:
        ArgumentError: a range is negative, or shapes do not match.

    >>> unclipped(torch.tensor([1.0, -1.0]), torch.tensor([[1.3], [1.3]]), low=0.2, high=0.2).tolist()
    [[False], [True]]
    """
    _checks.real("low", low, low=0.0)
    _checks.real("high", high, low=0.0)
    ratio = float_tensor("ratio", ratio)
    columns = max(ratio.shape[1], 1 if advantages.ndim < 2 else advantages.shape[1])
    shape = (ratio.shape[0], columns)
    ratio, spread = per_token("ratio", ratio, shape), per_token("advantages", advantages, shape)
    # By exclusion, so that a zero advantage, and a NaN ratio, count as passing.
    return ~(((spread > 0) & (ratio > 1.0 + high)) | ((spread < 0) & (ratio < 1.0 - low)))


def update_weight(
    advantages: Tensor, shape: tuple[int, int], *, ratio: Tensor | None = None, passes: Tensor | None = None
) -> Tensor:
    """Compute xi = I_clip r A, the weight of each token's score in the update.

    Args:
        advantages: (B,), (B, 1) or (B, T), as the loss receives them: with the prompt's weight, before any factor
            on tokens.
        shape: (B, T).
        ratio: r = pi / pi_old, (B,), (B, 1) or (B, T); default 1 (on-policy).
        passes: I_clip, same shapes, nonzero where the gradient passes (:func:`unclipped`); default all.

    Returns:
        (B, T), detached; exactly 0 where the advantage is 0 or the gradient is clipped away.

    Raises:
        ArgumentError: shapes do not match.

    >>> update_weight(torch.tensor([2.0]), (1, 2), ratio=torch.tensor([[1.0, 1.5]])).tolist()
    [[2.0, 3.0]]
    """
    weight = working(per_token("advantages", advantages, shape))
    zero = weight.new_zeros(())
    if ratio is not None:
        # Not r * A alone, since an infinite ratio times an advantage of 0 would be NaN.
        weight = torch.where(weight == 0, zero, weight * working(per_token("ratio", ratio, shape)))
    if passes is not None:
        weight = torch.where(per_token("passes", passes, shape).bool(), weight, zero)
    return weight


def _own_term(logp: Tensor, entropy: Tensor) -> Tensor:
    """Return pi L of the sampled token; 0 where pi is 0."""
    pi = logp.exp()
    return torch.where(pi == 0, pi.new_zeros(()), pi * (logp + entropy))


def entropy_change_from_moments(logp: Tensor, entropy: Tensor, s2: Tensor, weight: Tensor) -> Tensor:
    """Compute the exact first-order entropy change from three scalars per token.

        dH = -xi [pi L - s2],   L = log pi + H,   s2 = sum_v pi_v^2 L_v

    Per unit of learning rate, for a step on this token's logits along xi grad log pi.

    Args:
        logp: (B, T) log pi of the sampled token.
        entropy: (B, T) H, nats.
        s2: (B, T), see :func:`token_moments`.
        weight: (B, T) xi, see :func:`update_weight`.

    Returns:
        (B, T), detached; exactly 0 where the weight is 0.

    Raises:
        ArgumentError: shapes differ.

    Guarantee: The error against a step of size eta is O(eta^2), for logits as free parameters. In a network, whose
    tokens share weights, steps on other tokens change this distribution too; no per-token formula includes that.
    Cost: O(B T).
    Source: Fang et al. (2026), DynaMO, arXiv 2602.19208; verified numerically here.

    >>> moments = token_moments(torch.tensor([[[2.0, 0.0]]]), torch.tensor([[0]]))
    >>> entropy_change_from_moments(*moments, torch.ones(1, 1)).item() < 0  # more of the likely
    True
    """
    logp = float_tensor("logp", logp)
    shape = tuple(logp.shape)
    entropy = float_tensor("entropy", entropy, shape)
    s2 = float_tensor("s2", s2, shape)
    weight = float_tensor("weight", weight, shape)
    return torch.where(weight == 0, weight.new_zeros(()), -weight * (_own_term(logp, entropy) - s2))


def entropy_change(
    logits: Tensor,
    tokens: Tensor,
    advantages: Tensor,
    *,
    ratio: Tensor | None = None,
    passes: Tensor | None = None,
    temperature: float = 1.0,
    chunk_tokens: int | None = None,
) -> Tensor:
    """Compute the exact first-order entropy change of every token's update, from the logits.

        dH = -xi [pi L - sum_v pi_v^2 L_v],   L = log pi + H,   xi = I_clip r A

    Arguments are those of :func:`token_moments` and :func:`update_weight`, with raw advantages.

    Returns:
        (B, T), detached.

    Raises:
        ArgumentError: shapes do not match, a token outside the vocabulary, temperature not positive.

    Guarantee: As :func:`entropy_change_from_moments`, in the scaled logits z / temperature.
    Cost: O(B T V) time, O(chunk) memory beside the logits.
    Source: Fang et al. (2026), DynaMO, arXiv 2602.19208.

    >>> entropy_change(torch.zeros(1, 1, 4), torch.tensor([[2]]), torch.tensor([1.0])).abs().item() < 1e-6
    True
    """
    moments = token_moments(logits, tokens, temperature=temperature, chunk_tokens=chunk_tokens)
    rows, columns = moments.logp.shape
    weight = update_weight(advantages, (rows, columns), ratio=ratio, passes=passes)
    return entropy_change_from_moments(*moments, weight)


def published_entropy_change(logp: Tensor, entropy: Tensor, mask: Tensor, weight: Tensor) -> Tensor:
    """Compute the authors' approximation of the entropy change, without logits.

        dH = -xi [pi L - mean over the valid tokens of the sequence of pi L]

    The vocabulary sum s2 belongs to one token's distribution; the mean over a sequence is another quantity. Use it
    to reproduce published runs, and under hosts that do not expose their logits. The mask, (B, T), is nonzero on valid
    tokens; the other arguments are those of :func:`entropy_change_from_moments`.

    Returns:
        (B, T), detached; 0 on masked tokens and where the weight is 0.

    Raises:
        ArgumentError: shapes differ.

    Guarantee: None about the true change, whose sign may differ. Independent of other sequences.
    Cost: O(B T), no extra forward pass.
    Source: Fang et al. (2026), DynaMO, arXiv 2602.19208, authors' public code.

    >>> logp = torch.tensor([[-0.1, -2.0]]); entropy = torch.tensor([[0.3, 1.5]])
    >>> change = published_entropy_change(logp, entropy, torch.ones(1, 2), torch.ones(1, 2))
    >>> abs(change.sum().item()) < 1e-6  # equal weights: deviations from a mean
    True
    """
    logp = float_tensor("logp", logp)
    shape = tuple(logp.shape)
    entropy = float_tensor("entropy", entropy, shape)
    weight = float_tensor("weight", weight, shape)
    valid = token_mask(mask, shape)
    # torch.where in place of a product with the mask, because padding may hold NaN.
    own = torch.where(valid, _own_term(logp, entropy), logp.new_zeros(()))
    mean = own.sum(-1, keepdim=True) / valid.sum(-1, keepdim=True).clamp(min=1)
    return torch.where(valid & (weight != 0), -weight * (own - mean), logp.new_zeros(()))
