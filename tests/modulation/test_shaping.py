"""Token factors beside DynaMO's, on small tensors worked out by hand."""

from __future__ import annotations

import pytest

from neyman.errors import ArgumentError
from neyman.modulation import ClipCov, EntropyAdvantage, ForkTokens, KLCov, WReinforce

torch = pytest.importorskip("torch")

from neyman.modulation import (  # noqa: E402 (needs torch)
    clip_cov_factor,
    entropy_advantage_factor,
    fork_tokens_factor,
    kl_cov_advantages,
    shaping_factors,
    token_covariance,
)


def test_entropy_raises_advantages_by_hand():
    # alpha .4, kappa 2. A = 1: H .5 -> +.2; H 2 -> min(.8, .5) = +.5. A = -1: -1 + .2, -1 + .5. A = 0 stays 0.
    entropy = torch.tensor([[0.5, 2.0], [0.5, 2.0], [0.5, 2.0]])
    advantages = torch.tensor([1.0, -1.0, 0.0])
    factor = entropy_advantage_factor(entropy, advantages, torch.ones(3, 2), 0.4, 2.0)
    expected = torch.tensor([[1.2, 1.5], [-0.8, -0.5], [0.0, 0.0]])
    torch.testing.assert_close(advantages[:, None] * factor, expected)
    torch.testing.assert_close(factor[2], torch.ones(2))


def test_entropy_never_turns_the_sign_and_padding_is_left_alone():
    generator = torch.Generator().manual_seed(0)
    entropy = 10.0 * torch.rand(20, 7, generator=generator)
    entropy[:, 5:] = float("nan")
    mask = torch.ones(20, 7)
    mask[:, 5:] = 0.0
    advantages = torch.randn(20, generator=generator)
    factor = entropy_advantage_factor(entropy, advantages, mask, 0.4, 1.5)
    assert (factor > 0.3).all()
    assert (factor[:, 5:] == 1.0).all()


def test_covariance_by_hand():
    # Tokens (A, log pi): (2, -1), (2, -3), (-1, -1), (-1, -3); means .5 and -2. The last token is padding.
    advantages = torch.tensor([2.0, -1.0])
    logp = torch.tensor([[-1.0, -3.0, float("nan")], [-1.0, -3.0, -9.0]])
    mask = torch.tensor([[1, 1, 0], [1, 1, 0]])
    expected = torch.tensor([[1.5, -1.5, 0.0], [-1.5, 1.5, 0.0]])
    torch.testing.assert_close(token_covariance(advantages, logp, mask), expected)


def clip(settings, passes=None, seed=0):
    advantages = torch.tensor([2.0, -1.0])
    logp = torch.tensor([[-1.0, -3.0], [-1.0, -3.0]])
    generator = torch.Generator().manual_seed(seed)
    return clip_cov_factor(advantages, logp, torch.ones(2, 2), settings, generator, passes)


def test_clip_cov_leaves_out_tokens_of_large_covariance_alone():
    # Two of four tokens lie in (1, 5); half of all tokens are wanted, so both go.
    assert clip(ClipCov(share=0.5)).tolist() == [[0.0, 1.0], [1.0, 0.0]]
    # One is wanted at least, drawn at random.
    drawn = {tuple(clip(ClipCov(share=1e-6), seed=seed).flatten().tolist()) for seed in range(20)}
    assert drawn == {(0.0, 1.0, 1.0, 1.0), (1.0, 1.0, 1.0, 0.0)}
    # None lies between 2 and 5, nor between 1 and 1.4.
    assert (clip(ClipCov(low=2.0)) == 1.0).all()
    assert (clip(ClipCov(high=1.4)) == 1.0).all()


def test_clip_cov_does_not_choose_what_is_clipped_already():
    passes = torch.tensor([[0, 1], [1, 1]])
    assert clip(ClipCov(share=0.5), passes).tolist() == [[1.0, 1.0], [1.0, 0.0]]


@pytest.mark.parametrize("share", [1e-6, 0.3, 1.0])
def test_kl_covs_advantages_have_the_gradient_of_its_penalty(share):
    generator = torch.Generator().manual_seed(3)
    old = -3.0 * torch.rand(4, 6, generator=generator, dtype=torch.float64)
    logp = (old + 0.3 * torch.randn(4, 6, generator=generator, dtype=torch.float64)).requires_grad_()
    advantages = torch.tensor([1.5, 0.0, -0.5, -1.0], dtype=torch.float64)
    mask = torch.ones(4, 6)
    mask[1, 3:] = 0
    penalty = (logp - old).abs()
    covariance = token_covariance(advantages, logp.detach(), mask).masked_fill(mask == 0, -torch.inf)
    wanted = max(1, int(share * 21))
    least = covariance.flatten().sort(descending=True).values[wanted - 1]
    loss = -(logp - old).exp() * advantages[:, None] + 0.7 * penalty * (covariance >= least)
    (expected,) = torch.autograd.grad((loss * mask).sum(), logp)
    settings = KLCov(share=share, coefficient=0.7)
    ratio = (logp - old).exp()
    changed = kl_cov_advantages(advantages, logp.detach(), ratio, mask, settings)
    (actual,) = torch.autograd.grad((-ratio * changed * mask).sum(), logp)
    torch.testing.assert_close(actual, expected)
    assert int((changed != advantages[:, None]).sum()) == wanted


def test_kl_cov_changes_nothing_while_the_policy_is_the_one_that_generated():
    advantages, logp = torch.tensor([2.0, -1.0]), torch.tensor([[-1.0, -3.0], [-1.0, -3.0]])
    same = kl_cov_advantages(advantages, logp, torch.ones(2, 2), torch.ones(2, 2), KLCov(share=1.0))
    assert same.tolist() == [[2.0, 2.0], [-1.0, -1.0]]
    none = kl_cov_advantages(advantages, logp, torch.full((2, 2), 2.0), torch.zeros(2, 2), KLCov())
    assert none.tolist() == [[2.0, 2.0], [-1.0, -1.0]]


def test_each_setting_has_its_factor():
    tensors = {
        "logp": torch.tensor([[-1.0, -3.0], [-1.0, -3.0]]),
        "entropy": torch.ones(2, 2),
        "advantages": torch.tensor([2.0, -1.0]),
        "mask": torch.ones(2, 2),
    }
    raised = shaping_factors(EntropyAdvantage(), **tensors, generator=torch.Generator())
    torch.testing.assert_close(raised, torch.tensor([[1.2, 1.2], [0.6, 0.6]]))
    clipped = shaping_factors(ClipCov(share=1.0), **tensors, generator=torch.Generator())
    assert clipped.tolist() == [[0.0, 1.0], [1.0, 0.0]]
    tensors["entropy"] = torch.tensor([[0.3, 0.1], [0.2, 0.4]])
    forks = shaping_factors(ForkTokens(share=0.5), **tensors, generator=torch.Generator())
    assert forks.tolist() == [[1.0, 0.0], [0.0, 1.0]]


def test_fork_tokens_are_trls_and_padding_is_in_no_quantile():
    torch.manual_seed(0)
    entropy, mask = torch.rand(5, 7), torch.rand(5, 7) < 0.7
    entropy[~mask] = float("nan")
    factor = fork_tokens_factor(entropy, mask, 0.2)
    chosen = factor[mask].bool()
    assert int(chosen.sum()) == -(-int(mask.sum()) // 5)
    assert entropy[mask][chosen].min() > entropy[mask][~chosen].max()
    assert (factor[~mask] == 1).all()
    assert fork_tokens_factor(entropy, mask, 1.0).min() == 1
    assert fork_tokens_factor(entropy, torch.zeros(5, 7), 0.2).min() == 1


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: EntropyAdvantage(alpha=-1.0), "alpha"),
        (lambda: EntropyAdvantage(kappa=1.0), "kappa"),
        (lambda: ClipCov(share=0.0), "share"),
        (lambda: ClipCov(low=5.0), "low must be below high"),
        (lambda: KLCov(share=0.0), "share"),
        (lambda: ForkTokens(share=0.0), "share"),
        (lambda: KLCov(coefficient=-1.0), "coefficient"),
        (lambda: WReinforce(positive=1.5), "positive"),
    ],
)
def test_settings_out_of_range_are_refused(make, message):
    with pytest.raises(ArgumentError, match=message):
        make()
