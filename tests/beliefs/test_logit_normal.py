import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.special import expit

from neyman.beliefs import _logit_normal
from neyman.beliefs._logit_normal import mixed_moment, rate_moments, tilted_moments

means = st.floats(-8.0, 8.0)
variances = st.floats(1e-4, 25.0)


def expectation(function, mean, variance):
    sd = np.sqrt(variance)
    return quad(
        lambda z: function(mean + sd * z) * np.exp(-z * z / 2) / np.sqrt(2 * np.pi), -9, 9, limit=400
    )[0]


@given(mean=means, variance=variances, n=st.integers(1, 64))
def test_moments_agree_with_adaptive_integration(mean, variance, n):
    first, second = rate_moments(np.array([mean]), np.array([variance]))
    m = expectation(expit, mean, variance)
    assert first[0] == pytest.approx(m, abs=1e-6)
    assert second[0] == pytest.approx(expectation(lambda f: (expit(f) - m) ** 2, mean, variance), abs=1e-6)
    mixed = expectation(lambda f: 1 - expit(f) ** n - expit(-f) ** n, mean, variance)
    assert mixed_moment(np.array([mean]), np.array([variance]), np.array([n]))[0] == pytest.approx(
        mixed, abs=5e-5
    )


@given(mean=means, variance=variances, n=st.integers(1, 64), share=st.floats(0, 1))
def test_tilted_moments_agree_with_a_fine_grid(mean, variance, n, share):
    s = round(share * n)
    f = mean + np.sqrt(variance) * np.linspace(-14, 14, 200_001)
    log_density = s * f - n * np.logaddexp(0, f) - (f - mean) ** 2 / (2 * variance)
    weight = np.exp(log_density - log_density.max())
    weight /= weight.sum()
    m = weight @ f
    v = weight @ (f - m) ** 2
    first, second = tilted_moments(np.array([mean]), np.array([variance]), np.array([s]), np.array([n]))
    assert first[0] == pytest.approx(m, abs=2e-3 * np.sqrt(v))
    assert second[0] == pytest.approx(v, rel=1e-2)


def test_many_trials_give_the_textbook_posterior():
    # With a million trials the prior is nothing and the logit has variance 1 / (n p (1-p)).
    first, second = tilted_moments(
        np.array([0.0]), np.array([4.0]), np.array([200_000]), np.array([1_000_000])
    )
    assert first[0] == pytest.approx(np.log(0.25), abs=1e-5)
    assert second[0] == pytest.approx(1 / (1e6 * 0.16), rel=1e-3)


def test_large_pools_are_worked_in_blocks_with_the_same_result():
    mean = np.linspace(-5, 5, 40_000)
    whole = rate_moments(mean, np.ones_like(mean))[0]
    np.testing.assert_allclose(
        whole[[0, 20_000, 39_999]], rate_moments(mean[[0, 20_000, 39_999]], np.ones(3))[0]
    )


def test_a_rate_of_one_is_never_more_than_one():
    mean, variance = rate_moments(np.array([36.0, 40.0, 800.0]), np.array([0.0, 1.0, 25.0]))
    assert (mean <= 1.0).all()
    assert (variance >= 0.0).all()


def test_the_mode_of_a_batch_is_found_in_a_few_newton_steps(monkeypatch):
    # A logit that had settled used to be thrown off while others of its batch were still on their way.
    rng = np.random.default_rng(0)
    mean, variance = 2.0 * rng.normal(size=512), 4.0 + rng.random(512)
    trials = rng.integers(2, 33, 512)
    successes = rng.binomial(trials, rng.beta(0.4, 0.4, 512)).astype(float)
    steps = []
    monkeypatch.setattr(_logit_normal, "expit", lambda x: steps.append(0) or expit(x))
    mode = _logit_normal._mode(mean, variance, successes, trials.astype(float))
    assert len(steps) <= 10
    slope = successes - trials * expit(mode) - (mode - mean) / variance
    assert np.abs(slope).max() < 1e-8
