"""Moments of every token's distribution: three scalars from one pass over the logits, for the entropy change."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from neyman import _checks
from neyman.errors import ArgumentError
from neyman.modulation._tensors import float_tensor, vocabulary_tokens, working

import torch  # isort: skip - after _tensors, whose import names the extra where torch is absent
from torch import Tensor  # isort: skip

# Elements of one float32 working buffer, about five of which live at a time: 64 MiB keeps an accelerator busy,
# while on a CPU buffers that fit the cache are three times faster (measured, vocabulary 151,936).
_CHUNK_ELEMENTS, _CHUNK_ELEMENTS_CPU = 1 << 24, 1 << 20


class TokenMoments(NamedTuple):
    """Scalars of the policy's distribution at each token, each (B, T), float32 (float64 for float64 logits)."""

    logp: Tensor
    """log pi of the sampled token, nats; -inf where its logit is -inf."""
    entropy: Tensor
    """H = -sum_v pi_v log pi_v, nats."""
    s2: Tensor
    """sum_v pi_v^2 L_v with L = log pi + H."""


def _distributions(
    logits: Tensor, temperature: float, chunk_tokens: int | None
) -> Iterator[tuple[slice, Tensor, Tensor]]:
    """Yield (tokens, pi, log pi) over chunks of the (N, V) logits, log pi being 0 where pi is 0.

    Only one chunk at a time is in working precision, since a float32 softmax over all of (B, T, V) takes gigabytes.
    """
    size = logits.shape[-1]
    elements = _CHUNK_ELEMENTS_CPU if logits.device.type == "cpu" else _CHUNK_ELEMENTS
    step = max(1, elements // size) if chunk_tokens is None else chunk_tokens
    for start in range(0, logits.shape[0], step):
        where = slice(start, start + step)
        log_pi = torch.log_softmax(working(logits[where]) / temperature, dim=-1)
        pi = log_pi.exp()
        # 0 log 0 = 0: covers logits of -inf (top-k) and probabilities that underflow.
        yield where, pi, log_pi.masked_fill_(pi == 0, 0.0)


def _flat_logits(logits: Tensor, temperature: float, chunk_tokens: int | None) -> Tensor:
    if (
        not isinstance(logits, Tensor)
        or not logits.is_floating_point()
        or logits.ndim != 3
        or not logits.shape[-1]
    ):
        got = f"{tuple(logits.shape)} {logits.dtype}" if isinstance(logits, Tensor) else type(logits).__name__
        raise ArgumentError(f"logits must be floats of shape (B, T, V) with V >= 1, got {got}")
    _checks.real("temperature", temperature, low=0.0, open_low=True)
    if chunk_tokens is not None:
        _checks.integer("chunk_tokens", chunk_tokens, low=1)
    return logits.detach().reshape(-1, logits.shape[-1])


def entropy(logits: Tensor, *, temperature: float = 1.0, chunk_tokens: int | None = None) -> Tensor:
    """Compute the entropy of every token's distribution.

        H = -sum_v pi_v log pi_v,  pi = softmax(logits / temperature)

    Arguments and errors are those of :func:`token_moments`.

    Returns:
        (B, T) in nats, detached.

    Guarantee: Within [0, log V] up to rounding. A token without a finite logit has no distribution and gives NaN.
    Cost: O(B T V) time, O(chunk) memory beside the logits.

    >>> entropy(torch.zeros(1, 1, 4)).item() == torch.tensor(4.0).log().item()
    True
    """
    flat = _flat_logits(logits, temperature, chunk_tokens)
    out = torch.empty(flat.shape[0], dtype=working(flat[:0]).dtype, device=flat.device)
    with torch.no_grad():
        for where, pi, log_pi in _distributions(flat, temperature, chunk_tokens):
            out[where] = -(pi * log_pi).sum(-1)
    return out.reshape(logits.shape[:2])


def token_moments(
    logits: Tensor, tokens: Tensor, *, temperature: float = 1.0, chunk_tokens: int | None = None
) -> TokenMoments:
    """Reduce the logits to the moments of the exact entropy change: log pi, H and s2 of every token.

        s2 = sum_v pi_v^2 (log pi_v + H)

    Args:
        logits: (B, T, V), any float type, of the positions that predict ``tokens``; -inf entries have
            probability 0; each token needs a finite one.
        tokens: (B, T) ids of the sampled tokens, in [0, V); padding may hold any legal id.
        temperature: divisor of the logits, > 0; that of the loss.
        chunk_tokens: tokens handled at a time; default: as many as fit buffers of 64 MiB (CPU: 4).

    Returns:
        The moments, detached.

    Raises:
        ArgumentError: wrong shape or type, a token outside the vocabulary, temperature not positive.

    Guarantee: Equal for every chunk size up to the rounding of a sum. Tokens whose logits hold NaN or +inf, or are all
    -inf, have no distribution: their moments are NaN, and extremes and factors leave them out.
    Cost: O(B T V) time, O(chunk) memory beside the logits, whose type is not changed as a whole.
    Source: Fang et al. (2026), DynaMO, arXiv 2602.19208, the entropy change of a softmax policy.

    >>> token_moments(torch.zeros(1, 1, 2), torch.tensor([[0]])).s2.abs().item() < 1e-7
    True
    """
    flat = _flat_logits(logits, temperature, chunk_tokens)
    ids = vocabulary_tokens(tokens, tuple(logits.shape[:2]), logits.shape[-1]).reshape(-1, 1).to(flat.device)
    out = torch.empty(3, flat.shape[0], dtype=working(flat[:0]).dtype, device=flat.device)
    with torch.no_grad():
        for where, pi, log_pi in _distributions(flat, temperature, chunk_tokens):
            weighted = pi * log_pi
            spread = -weighted.sum(-1)
            impossible = pi.gather(-1, ids[where]).squeeze(-1) == 0
            chosen = log_pi.gather(-1, ids[where]).squeeze(-1)
            out[0, where] = torch.where(impossible, chosen.new_full((), -torch.inf), chosen)
            out[1, where] = spread
            # pi (pi log pi + pi H), in place because the chunk's buffers are the peak of memory.
            out[2, where] = weighted.addcmul_(pi, spread.unsqueeze(-1)).mul_(pi).sum(-1)
    return TokenMoments(*(x.reshape(logits.shape[:2]) for x in out))


def s2_from_sharpened(logp: Tensor, entropy: Tensor, logp_sharp: Tensor, entropy_sharp: Tensor) -> Tensor:
    """Compute s2 exactly from two calls of a fused head that does not expose its logits.

    At half the temperature the distribution is q_v = pi_v^2 / Z with Z = sum_v pi_v^2, hence

        log Z = 2 log pi_y - log q_y,    s2 = Z ((log Z - H_q) / 2 + H)

    Args:
        logp: (B, T) log pi of the sampled tokens at the policy's temperature t; finite.
        entropy: (B, T) H at t, nats.
        logp_sharp: (B, T) log q of the same tokens, at t / 2; finite.
        entropy_sharp: (B, T) H_q, at t / 2, nats.

    Returns:
        (B, T) s2, detached.

    Raises:
        ArgumentError: shapes differ.

    Guarantee:
        Exact in real numbers. In float32 the error of log Z is about 1e-7 |log pi|; voided where the head
        works in half precision, or alters the logits after dividing them by the temperature.

    Cost:
        O(B T).

    Source:
        Derived here; checked against the sum over the vocabulary.

    Example:
        >>> logits = torch.tensor([[[1.0, 0.0, -1.0]]]); tokens = torch.tensor([[0]])
        >>> plain, sharp = token_moments(logits, tokens), token_moments(logits, tokens, temperature=0.5)
        >>> s2 = s2_from_sharpened(plain.logp, plain.entropy, sharp.logp, sharp.entropy)
        >>> bool((s2 - plain.s2).abs() < 1e-6)
        True
    """
    logp = float_tensor("logp", logp)
    shape = tuple(logp.shape)
    entropy = float_tensor("entropy", entropy, shape)
    log_z = 2.0 * logp - float_tensor("logp_sharp", logp_sharp, shape)
    spread = float_tensor("entropy_sharp", entropy_sharp, shape)
    return log_z.exp() * (0.5 * (log_z - spread) + entropy)
