"""Gradient variance: the table, the identities, and a simulation of the estimators themselves."""

from fractions import Fraction
from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from neyman.errors import ArgumentError
from neyman.formulas import gradient_variance, mixed_probability
from neyman.formulas.variance import dr_grpo_gain, grpo_gain, rloo_gain

ESTIMATORS = ("rloo", "dr_grpo", "grpo")


def test_dr_grpo_table_of_the_paper():
    table = gradient_variance(0.5, [1, 2, 3, 4, 5, 6], "dr_grpo")
    np.testing.assert_allclose(table, [0, 0.25, 0.2222, 0.1875, 0.16, 0.1389], atol=5e-5)


def test_rloo_is_one_over_n_minus_one():
    np.testing.assert_allclose(gradient_variance(0.2, [2, 3, 5], "rloo"), [0.64, 0.32, 0.16])


def test_grpo_is_mixed_probability_over_n():
    np.testing.assert_allclose(gradient_variance(0.3, 4, "grpo"), (1 - 0.3**4 - 0.7**4) / 4)
    np.testing.assert_allclose(gradient_variance(0.3, 2, "grpo"), gradient_variance(0.3, 3, "grpo"))


def test_rloo_is_the_default_and_scalars_give_scalars():
    assert gradient_variance(0.5, 5) == 0.25
    assert np.shape(gradient_variance(0.5, 5, "grpo")) == ()


def test_shapes_broadcast():
    assert gradient_variance([[0.1], [0.2]], [2, 3, 4]).shape == (2, 3)


def test_a_group_of_one_has_no_gradient_under_a_group_mean_and_no_meaning_under_rloo():
    assert gradient_variance(0.37, 1, "dr_grpo") == 0.0
    assert gradient_variance(0.37, 1, "grpo") == 0.0
    with pytest.raises(ArgumentError, match=r"n must be >= 2.*leave-one-out"):
        gradient_variance(0.37, 1, "rloo")


@pytest.mark.parametrize("bad", [-0.1, 1.1, float("nan"), float("inf")])
def test_rates_outside_the_unit_interval_are_refused_by_name_and_value(bad):
    with pytest.raises(ArgumentError, match=r"success_rate .*\[0, 1\]"):
        gradient_variance([0.5, bad], 4)


def test_other_estimators_are_refused_with_the_legal_names():
    with pytest.raises(ArgumentError, match="'rloo', 'dr_grpo', 'grpo'"):
        gradient_variance(0.5, 4, "ppo")


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize(("p", "n"), [(0.1, 3), (0.3, 5), (0.5, 2), (0.8, 8)])
def test_formula_equals_the_simulated_variance_of_the_gradient(estimator, p, n):
    rng = np.random.default_rng(0)
    draws = 200_000
    reward = np.where(rng.random((draws, n)) < p, 1.0, -1.0)
    advantage = reward - reward.mean(axis=1, keepdims=True)
    if estimator == "rloo":
        advantage *= n / (n - 1)
    if estimator == "grpo":
        deviation = reward.std(axis=1, keepdims=True)
        advantage = np.divide(advantage, deviation, out=np.zeros_like(advantage), where=deviation > 0)
    gradient = (advantage * rng.standard_normal((draws, n))).mean(axis=1)
    error = np.sqrt(np.var(gradient**2) / draws)
    assert abs(np.mean(gradient**2) - gradient_variance(p, n, estimator)) < 4 * error


@pytest.mark.parametrize(("p", "n", "factor"), [(0.2, 4, 0.156 / 0.120), (0.1, 4, 2.2), (0.5, 4, 0.87)])
def test_correlated_rewards_void_the_guarantee_as_the_docstring_says(p, n, factor):
    rng = np.random.default_rng(1)
    draws = 400_000
    success = rng.random((draws, n)) < p
    standard = (success - p) / np.sqrt(p * (1 - p))
    score = 0.5 * standard + np.sqrt(0.75) * rng.standard_normal((draws, n))
    reward = np.where(success, 1.0, -1.0)
    gradient = ((reward - reward.mean(axis=1, keepdims=True)) * score).mean(axis=1)
    assert gradient.var() / gradient_variance(p, n, "dr_grpo") == pytest.approx(factor, rel=0.06)


@given(p=st.integers(0, 1024).map(lambda i: i / 1024), n=st.integers(0, 200))
def test_mixed_probability_is_a_probability_symmetric_in_p_and_rises_with_n(p, n):
    mixed = mixed_probability(p, n)
    assert 0.0 <= mixed <= 1.0
    assert mixed <= mixed_probability(p, n + 1) * (1 + 1e-12)
    assert mixed == mixed_probability(1 - p, n)


@pytest.mark.parametrize("p", [1e-12, 1e-7, 0.01, 0.5, 0.99])
@pytest.mark.parametrize("n", [2, 3, 8, 64])
def test_mixed_probability_is_relatively_exact_near_zero(p, n):
    rate = Fraction(p)
    assert float(mixed_probability(p, n)) == pytest.approx(float(1 - rate**n - (1 - rate) ** n), rel=1e-12)


@pytest.mark.parametrize("rate", [1e-10, 1e-4, 0.01, 0.1, 0.3, 0.5])
@pytest.mark.parametrize("n", [3, 4, 5, 8, 20, 100])
def test_grpo_gain_is_the_chance_of_two_to_n_minus_one_successes_in_n_plus_one(rate, n):
    p = Fraction(rate)
    difference = (1 - p**n - (1 - p) ** n) / n - (1 - p ** (n + 1) - (1 - p) ** (n + 1)) / (n + 1)
    tail = sum(comb(n + 1, j) * p**j * (1 - p) ** (n + 1 - j) for j in range(2, n)) / (n * (n + 1))
    assert difference == tail
    gain = grpo_gain(np.array([rate]), np.array([float(n)]))[0]
    assert gain == pytest.approx(float(tail), rel=2e-12)


def test_gains_are_the_differences_of_the_variances():
    n = np.arange(3.0, 40.0)
    for rule, f in ((rloo_gain, lambda n: 1 / (n - 1)), (dr_grpo_gain, lambda n: (n - 1) / n**2)):
        np.testing.assert_allclose(rule(np.full(len(n), 0.21), n), 0.21 * (f(n) - f(n + 1)), rtol=1e-9)


@given(rate=st.floats(1e-300, 0.5), n=st.integers(3, 5000))
def test_gains_never_rise_from_the_least_legal_group_size_on(rate, n):
    for rule in (rloo_gain, dr_grpo_gain, grpo_gain):
        now, then = rule(np.array([rate, rate]), np.array([n, n + 1.0]))
        assert now >= then * (1 - 2e-12)


def test_dr_grpo_gains_rise_below_three_which_is_why_such_bounds_are_refused():
    assert dr_grpo_gain(np.ones(1), np.array([2.0]))[0] < dr_grpo_gain(np.ones(1), np.array([3.0]))[0]


def test_the_third_and_fourth_grpo_gain_tie_exactly():
    rates = np.random.default_rng(2).uniform(0, 0.5, 10_000)
    np.testing.assert_array_equal(
        grpo_gain(rates, np.full(10_000, 3.0)), grpo_gain(rates, np.full(10_000, 4.0))
    )
