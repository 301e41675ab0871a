import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from scipy.special import betaln

from neyman.beliefs import Counts, beta_parameters, match_beta
from neyman.beliefs._beta import beta_mixed_probability, beta_sample
from neyman.errors import ArgumentError

positive = st.floats(0.05, 200.0)


@given(a=positive, b=positive)
def test_matching_inverts_the_moments_of_a_beta(a, b):
    found = match_beta([stats.beta.mean(a, b)], [stats.beta.var(a, b)])
    np.testing.assert_allclose(np.concatenate(found), [a, b], rtol=1e-6)


def test_a_variance_too_large_for_a_rate_is_clipped():
    a, b = match_beta([0.3, 0.3], [0.21, 5.0])
    assert a[0] == a[1]
    assert 0 < a[0] + b[0] <= 1e-6 * (1 + 1e-9)
    assert a[0] / (a[0] + b[0]) == pytest.approx(0.3)


def test_no_variance_is_a_point():
    a, b = match_beta([0.0, 0.3, 1.0], [0.0, 0.0, 0.0])
    np.testing.assert_allclose(a / (a + b), [0.0, 0.3, 1.0])
    assert np.all(a + b >= 1e12)


@pytest.mark.parametrize(
    ("mean", "variance", "word"),
    [
        ([1.2], [0.1], "mean"),
        ([np.nan], [0.1], "mean"),
        ([0.5], [-1.0], "variance"),
        ([0.5], [0.1, 0.1], "lengths"),
    ],
)
def test_impossible_moments_are_refused(mean, variance, word):
    with pytest.raises(ArgumentError, match=word):
        match_beta(mean, variance)


def test_uniform_prior_gives_the_known_mixed_probability():
    # Under Beta(1, 1) all counts 0..n are equally likely: mixed is (n - 1) / (n + 1).
    sizes = np.arange(1, 40)
    ones = np.ones(len(sizes))
    np.testing.assert_allclose(
        beta_mixed_probability(ones, ones, sizes), (sizes - 1) / (sizes + 1), atol=1e-12
    )


@given(a=positive, b=positive, n=st.integers(1, 300))
def test_mixed_probability_agrees_with_beta_functions(a, b, n):
    expected = 1 - np.exp(betaln(a, b + n) - betaln(a, b)) - np.exp(betaln(a + n, b) - betaln(a, b))
    assert beta_mixed_probability(np.array([a]), np.array([b]), n)[0] == pytest.approx(expected, abs=1e-9)


def test_points_have_no_mixed_groups_and_draw_themselves():
    a, b = match_beta([0.0, 1.0], [0.0, 0.0])
    np.testing.assert_array_equal(beta_mixed_probability(a, b, 16), [0.0, 0.0])
    np.testing.assert_array_equal(beta_sample(a, b, np.random.default_rng(0)), [0.0, 1.0])


def test_parameters_of_counts_are_the_exact_posterior():
    belief = Counts(prior=(2.0, 3.0))
    belief.update(["x"], [5], [8])
    np.testing.assert_allclose(beta_parameters(belief, ["x", "y"]), [[7.0, 2.0], [6.0, 3.0]])
    np.testing.assert_allclose(belief.beta_parameters(["x", "y"]), [[7.0, 2.0], [6.0, 3.0]])
