import numpy as np
import pytest
from scipy.special import expit

from neyman.beliefs import BinomialResidual, Counts, CountsWithGP
from neyman.errors import ArgumentError


def test_one_prompt_without_features_is_the_exact_binomial_posterior():
    # logit = level + residual, both normal: on a grid.
    belief = BinomialResidual(residual_scale=1.5, level_scale=2.0, level_drift=0.0)
    belief.update(["a"], [6], [8])
    f = np.linspace(-15, 15, 60_001)
    weight = np.exp(6 * f - 8 * np.logaddexp(0, f) - f**2 / (2 * (1.5**2 + 2.0**2)))
    weight /= weight.sum()
    m = weight @ f
    mean, variance = belief.predict_logit(["a"])
    assert mean[0] == pytest.approx(m, abs=1e-3)
    assert variance[0] == pytest.approx(weight @ (f - m) ** 2, rel=1e-3)


def test_two_prompts_share_the_level_as_the_exact_joint_posterior_says():
    belief = BinomialResidual(residual_scale=1.0, level_scale=1.0, level_drift=0.0)
    belief.update(["a"], [2], [8])
    belief.update(["b"], [7], [8])
    level = np.linspace(-5, 5, 241)[:, None, None]
    a = np.linspace(-7, 7, 241)[None, :, None]
    b = np.linspace(-7, 7, 241)[None, None, :]
    log_density = -(level**2) / 2 - (a - level) ** 2 / 2 - (b - level) ** 2 / 2
    log_density = log_density + 2 * a - 8 * np.logaddexp(0, a) + 7 * b - 8 * np.logaddexp(0, b)
    weight = np.exp(log_density - log_density.max())
    weight /= weight.sum()
    exact = [(weight * axis).sum() for axis in (a, b, level)]
    mean = belief.predict_logit(["a", "b", "unseen"])[0]
    np.testing.assert_allclose(mean, exact, atol=0.05)


def test_what_features_share_is_learned_and_what_they_do_not_is_kept_per_prompt():
    rng = np.random.default_rng(0)
    x = np.repeat(np.eye(4, dtype=np.float32) * 3, 50, axis=0) + 0.01 * rng.normal(size=(200, 4)).astype(
        np.float32
    )
    group_logit = np.repeat([-4.0, -1.0, 1.0, 4.0], 50)
    belief = BinomialResidual()
    belief.register(list(range(200)), x)
    seen = np.concatenate([np.arange(k * 50, k * 50 + 30) for k in range(4)])
    rates = expit(group_logit + 2.2 * rng.normal(size=200))
    belief.update(seen, rng.binomial(8, rates[seen]), np.full(len(seen), 8))
    unseen = np.setdiff1d(np.arange(200), seen)
    mean, variance = belief.predict_logit(unseen)
    # 30 prompts a group with a residual of 2.2 fix its mean to .4, and 8 rollouts each add noise.
    np.testing.assert_allclose(mean, group_logit[unseen], atol=1.2)
    assert np.all(variance > 0.9 * 2.2**2)  # the residual of a prompt never seen is still open


def test_the_level_moves_prompts_that_were_not_observed():
    belief = BinomialResidual(level_drift=0.3)
    ids = list(range(200))
    belief.update(ids, np.full(200, 4), np.full(200, 8))
    belief.advance(5)
    before = belief.predict(ids)[0]
    belief.update(ids[:100], np.full(100, 6), np.full(100, 8))
    assert np.all(belief.predict(ids[100:])[0] > before[100:] + 0.02)
    still = BinomialResidual(level_drift=0.0)
    still.update(ids, np.full(200, 4), np.full(200, 8))
    still.advance(5)
    before = still.predict([150])[0]
    still.update(ids[:100], np.full(100, 6), np.full(100, 8))
    assert abs(still.predict([150])[0] - before)[0] < 0.02


def test_long_unobserved_a_prompt_goes_back_to_what_its_features_say():
    belief = BinomialResidual(residual_drift=0.5)
    belief.update(["a"], [8], [8])
    belief.advance(100_000)
    mean, variance = belief.predict(["a", "new"])
    assert mean[0] == pytest.approx(mean[1], abs=1e-3)
    assert variance[0] == pytest.approx(variance[1], rel=1e-3)


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"residual_scale": 0.0}, "residual_scale"),
        ({"residual_drift": -1.0}, "residual_drift"),
        ({"level_drift": np.inf}, "level_drift"),
        ({"level_scale": 0.0}, "level_scale"),
        ({"landmarks": -1}, "landmarks"),
        ({"length_scale": 0.0}, "length_scale"),
        ({"memory": 1.5}, "memory"),
    ],
)
def test_settings_out_of_range_are_refused_by_name(options, word):
    with pytest.raises(ArgumentError, match=word):
        BinomialResidual(**options)


@pytest.mark.parametrize(
    "options", [{"strength": 0.0}, {"discount": 2.0}, {"fade": -1.0}, {"residual_scale": 0.0}]
)
def test_settings_of_the_hybrid_are_checked(options):
    with pytest.raises(ArgumentError, match=next(iter(options))):
        CountsWithGP(**options)


def test_the_hybrids_prior_is_the_features_and_its_evidence_the_counts():
    belief = CountsWithGP(strength=2.0, discount=0.5, fade=1.0)
    counts = Counts(prior=(1.0, 1.0), discount=0.5, fade=1.0)
    for each in (belief, counts):
        each.register(["a", "b"], [[0.0], [1.0]])
        each.update(["a"], [8], [8])
        each.advance()
        each.update(["a"], [1], [4])
    m = belief.prior_mean(["a"])[0]
    a, b = belief.beta_parameters(["a"])
    s, n = counts.evidence(["a"])
    assert a[0] == pytest.approx(2 * m + s[0])
    assert b[0] == pytest.approx(2 * (1 - m) + n[0] - s[0])
