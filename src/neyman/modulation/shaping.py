"""Factors on each token's advantage by methods other than DynaMO."""

from __future__ import annotations

from neyman import _checks
from neyman.modulation._tensors import float_tensor, per_token, token_mask
from neyman.modulation.rivals import ClipCov, EntropyAdvantage, ForkTokens, KLCov

import torch  # isort: skip - after _tensors, whose import names the extra where torch is absent
from torch import Tensor  # isort: skip


def entropy_advantage_factor(
    entropy: Tensor, advantages: Tensor, mask: Tensor, alpha: float, kappa: float
) -> Tensor:
    """Compute (A + min(alpha H, |A| / kappa)) / A, the factor of an advantage raised by entropy.

    Args:
        entropy: (B, T) H, nats.
        advantages: (B,), (B, 1) or (B, T).
        mask: (B, T), nonzero on valid tokens.
        alpha: advantage per nat, >= 0.
        kappa: > 1.

    Returns:
        (B, T) in [1 - 1/kappa, 1 + 1/kappa], detached; 1 on masked tokens and where the advantage is 0, which stays 0.

    Raises:
        ArgumentError: a setting is out of range, or shapes do not match.

    Source: Cheng et al. (2025), arXiv 2506.14758.

    >>> entropy_advantage_factor(torch.tensor([[0.5, 9.0]]), torch.tensor([-1.0]), torch.ones(1, 2), 0.4, 2.0)
    tensor([[0.8000, 0.5000]])
    """
    _checks.real("alpha", alpha, low=0.0)
    _checks.real("kappa", kappa, low=1.0, open_low=True)
    entropy = float_tensor("entropy", entropy)
    shape = tuple(entropy.shape)
    spread = per_token("advantages", advantages, shape).to(entropy.dtype)
    # A factor (A + raise) / A, since hosts multiply advantages and do not add to them.
    raised = torch.minimum(alpha * entropy, spread.abs() / kappa)
    acting = token_mask(mask, shape) & (spread != 0) & raised.isfinite()
    one = entropy.new_ones(())
    return torch.where(acting, 1.0 + raised / torch.where(spread == 0, one, spread), one)


def token_covariance(advantages: Tensor, logp: Tensor, mask: Tensor) -> Tensor:
    """Compute (A - mean A)(log pi - mean log pi) of every token, with means over the valid tokens.

    Args:
        advantages: (B,), (B, 1) or (B, T).
        logp: (B, T) log pi of the sampled tokens.
        mask: (B, T), nonzero on valid tokens.

    Returns:
        (B, T), detached; 0 on masked tokens.

    Raises:
        ArgumentError: shapes do not match.

    Source: Cui et al. (2025), arXiv 2505.22617.

    >>> token_covariance(torch.tensor([1.0, -1.0]), torch.tensor([[-1.0], [-3.0]]), torch.ones(2, 1)).tolist()
    [[1.0], [1.0]]
    """
    logp = float_tensor("logp", logp)
    shape = tuple(logp.shape)
    valid = token_mask(mask, shape)
    zero = logp.new_zeros(())
    count = valid.sum().clamp(min=1)
    parts = []
    for value in (per_token("advantages", advantages, shape).to(logp.dtype), logp):
        live = torch.where(valid, value, zero)  # in place of a product, because padding may hold NaN
        parts.append(torch.where(valid, live - live.sum() / count, zero))
    return parts[0] * parts[1]


def clip_cov_factor(
    advantages: Tensor,
    logp: Tensor,
    mask: Tensor,
    settings: ClipCov,
    generator: torch.Generator,
    passes: Tensor | None = None,
) -> Tensor:
    """Compute Clip-Cov's factor, (B, T), detached: 0 on the tokens whose gradient it drops, 1 on the others.

    The generator, of the CPU, draws among the tokens whose gradient passes: I_clip nonzero in ``passes``, by default
    all. The other arguments and the errors are those of :func:`token_covariance`.

    Source: Cui et al. (2025), arXiv 2505.22617.
    """
    covariance = token_covariance(advantages, logp, mask)
    shape = tuple(covariance.shape)
    valid = token_mask(mask, shape)
    eligible = valid & (covariance > settings.low) & (covariance < settings.high)
    if passes is not None:
        eligible &= per_token("passes", passes, shape).bool()
    places = eligible.flatten().nonzero().flatten()
    wanted = max(1, int(settings.share * int(valid.sum())))
    # Drawn on the CPU, so that the choice is the same on every device.
    order = torch.randperm(len(places), generator=generator).to(places.device)
    factor = torch.ones_like(covariance).flatten()
    factor[places[order[:wanted]]] = 0.0
    return factor.reshape(shape)


def kl_cov_advantages(
    advantages: Tensor, logp: Tensor, ratio: Tensor, mask: Tensor, settings: KLCov
) -> Tensor:
    """Compute the advantages under which a loss of -ratio A has the gradient of KL-Cov's loss.

    The penalty c |log ratio| adds c sign(log ratio) to the gradient by log pi, where the policy term has -ratio A. So
    A - c sign(log ratio) / ratio on the chosen tokens has the same gradient, for every divisor of the loss. The ratio
    is pi / pi_old > 0 of the sampled tokens, (B, T); other arguments and errors are those of :func:`token_covariance`.

    Returns:
        (B, T), detached.

    Source: Cui et al. (2025), arXiv 2505.22617; as a change of the advantage it is ours.

    >>> logp = torch.tensor([[-1.0], [-3.0]])
    >>> pair = torch.tensor([1.0, -1.0]), logp, torch.tensor([[2.0], [0.5]]), torch.ones(2, 1)
    >>> kl_cov_advantages(*pair, KLCov(share=1.0)).tolist()
    [[0.5], [1.0]]
    """
    covariance = token_covariance(advantages, logp, mask)
    shape = tuple(covariance.shape)
    valid = token_mask(mask, shape)
    count = int(valid.sum())
    # At most the valid tokens, since padding has covariance -inf below and would be chosen next.
    wanted = min(count, max(1, int(settings.share * count)))
    chosen = torch.zeros_like(valid).flatten()
    chosen[covariance.masked_fill(~valid, -torch.inf).flatten().topk(wanted).indices] = True
    ratio = per_token("ratio", ratio, shape).detach().to(covariance.dtype)
    pull = settings.coefficient * torch.sign(ratio - 1.0) / ratio
    spread = per_token("advantages", advantages, shape).to(covariance.dtype)
    return torch.where(chosen.reshape(shape), spread - pull, spread)


def fork_tokens_factor(entropy: Tensor, mask: Tensor, share: float) -> Tensor:
    """Compute the factor of fork tokens: 1 for entropies in the upper ``share`` of the valid tokens, else 0.

    Args:
        entropy: (B, T) H, nats.
        mask: (B, T), nonzero on valid tokens.
        share: share of tokens that train, in (0, 1].

    Returns:
        (B, T), detached; 1 on masked tokens.

    Raises:
        ArgumentError: a share out of range, or shapes do not match.

    Source: Wang et al. (2025), arXiv 2506.01939; the threshold is the quantile 1 - share, as in TRL.

    >>> fork_tokens_factor(torch.tensor([[0.1, 0.9, 0.5, 0.2, 7.0]]), torch.tensor([[1, 1, 1, 1, 0]]), 0.25)
    tensor([[0., 1., 0., 0., 1.]])
    """
    _checks.real("share", share, low=0.0, high=1.0, open_low=True)
    entropy = float_tensor("entropy", entropy)
    valid = token_mask(mask, tuple(entropy.shape))
    factor = torch.ones_like(entropy)
    if valid.any():
        known = entropy[valid].float()  # quantile takes no half precision
        factor[valid] = (known >= torch.quantile(known, 1.0 - share)).to(factor.dtype)
    return factor


def shaping_factors(
    settings: EntropyAdvantage | ClipCov | ForkTokens,
    *,
    logp: Tensor,
    entropy: Tensor,
    advantages: Tensor,
    mask: Tensor,
    generator: torch.Generator,
    passes: Tensor | None = None,
) -> Tensor:
    """Compute the factor on each token's advantage by one of the methods; arguments as above."""
    if isinstance(settings, EntropyAdvantage):
        return entropy_advantage_factor(entropy, advantages, mask, settings.alpha, settings.kappa)
    if isinstance(settings, ForkTokens):
        return fork_tokens_factor(entropy, mask, settings.share)
    return clip_cov_factor(advantages, logp, mask, settings, generator, passes)
