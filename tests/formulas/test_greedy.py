"""The threshold search gives the same counts as laying all gains out."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from neyman.formulas._greedy import _from_key, _key, greedy_counts
from neyman.formulas.allocation import _gain

ESTIMATORS = ("rloo", "dr_grpo", "grpo")


def assert_same(gain, lower, upper, budget):
    laid_out = greedy_counts(gain, lower, upper, budget, matrix_cells=1 << 26)
    for cells in (1, 300):
        np.testing.assert_array_equal(laid_out, greedy_counts(gain, lower, upper, budget, matrix_cells=cells))


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_random_problems(estimator):
    rng = np.random.default_rng(0)
    for _ in range(60):
        count = int(rng.integers(2, 400))
        rates = rng.choice(
            [rng.beta(0.1, 0.1, count), rng.integers(0, 9, count) / 8, rng.random(count) ** 30]
        )
        weights = np.minimum(rates, 1 - rates) if estimator == "grpo" else rates * (1 - rates)
        lower = rng.integers(3, 6, count)
        upper = lower + rng.integers(0, 60, count)
        assert_same(_gain(weights, estimator), lower, upper, int(rng.integers(lower.sum(), upper.sum() + 1)))


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_more_prompts_than_the_sample_that_brackets_the_margin(estimator):
    rng = np.random.default_rng(1)
    for rates in (rng.random(9000), np.repeat([0.5, 0.1, 0.0], 3000), np.linspace(0, 0.5, 9000) ** 8):
        weights = np.minimum(rates, 1 - rates) if estimator == "grpo" else rates * (1 - rates)
        lower, upper = np.full(9000, 3), np.full(9000, 32)
        for budget in (27_001, 72_000, 144_000, 287_999):
            assert_same(_gain(weights, estimator), lower, upper, budget)


def test_periodic_rates_that_mislead_the_sample_do_not_change_the_counts():
    count = 4 * 4096
    weights = np.full(count, 1e-9)
    weights[np.linspace(0, count - 1, 4096).astype(int)] = 0.25
    assert_same(_gain(weights, "rloo"), np.full(count, 2), np.full(count, 40), 10 * count)


def test_all_gains_equal_go_by_index():
    gain = lambda rows, n: np.ones(len(rows))  # noqa: E731 - a one-line rule
    counts = greedy_counts(gain, np.zeros(5, dtype=np.int64), np.full(5, 4), 10, matrix_cells=1)
    np.testing.assert_array_equal([4, 4, 2, 0, 0], counts)


@given(a=st.floats(allow_nan=False), b=st.floats(allow_nan=False))
def test_keys_order_as_their_floats_do(a, b):
    assert (a < b) == (_key(a) < _key(b)) or a == b
    assert a == _from_key(_key(a))
