"""Water level: golden examples, the level itself, exact sums, and the published variant."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from neyman.errors import ArgumentError, InfeasibleError
from neyman.formulas import (
    inverse_accuracy,
    inverse_variance,
    largest_remainder,
    published_water_level,
    water_level,
)
from neyman.formulas.water import _fill


@pytest.mark.parametrize(
    ("weights", "budget", "lower", "upper", "expected"),
    [
        ([1, 1, 2], 8, 0, 8, [2, 2, 4]),
        ([1, 3, 3], 3, 0, 9, [1, 1, 1]),
        ([1, 3, 3], 4, 0, 9, [0, 2, 2]),  # largest remainders are not monotone in the budget
        ([1, 1, 10], 16, 4, 8, [4, 4, 8]),
        ([0, 0, 0], 10, 1, 9, [4, 3, 3]),
        ([0, 0, 1], 20, 2, 10, [5, 5, 10]),
        ([0, 1], 6, 2, 10, [2, 4]),
        ([], 0, 2, 10, []),
    ],
)
def test_golden(weights, budget, lower, upper, expected):
    np.testing.assert_array_equal(expected, water_level(weights, budget, lower, upper))


def test_published_example_of_ten_histories():
    counts = published_water_level([0, 1, 2, 4, 8, 12, 13, 14, 15, 16], [16] * 10, 160, 8, 24)
    np.testing.assert_array_equal([9, 13, 18, 24, 24, 24, 21, 9, 9, 9], counts)


def test_published_new_prompts_get_the_initial_budget_and_the_rest_is_filled():
    counts = published_water_level([0, 1, 8, 8], [0, 3, 16, 16], 40, 2, 24)
    np.testing.assert_array_equal([4, 4, 16, 16], counts)
    counts = published_water_level([0, 1, 8, 8], [0, 3, 16, 16], 40, 2, 24, initial=8)
    np.testing.assert_array_equal([8, 8, 12, 12], counts)


def test_published_new_prompts_share_what_the_others_cannot_spend():
    np.testing.assert_array_equal([11, 11, 24], published_water_level([0, 0, 8], [0, 0, 16], 46, 2, 24))
    np.testing.assert_array_equal([5, 5, 4], published_water_level([0, 0, 0], [0, 0, 0], 14, 2, 24))
    np.testing.assert_array_equal([2, 3, 8], published_water_level([0, 0, 8], [0, 0, 16], 13, [2, 3, 8], 24))


def test_baselines_lean_the_way_their_names_say():
    easy_to_hard = [0.9, 0.5, 0.1]
    assert (np.diff(inverse_accuracy(easy_to_hard, 48, 4, 32)) > 0).all()
    counts = inverse_variance(easy_to_hard, 48, 4, 32)
    assert counts[0] == counts[2] > counts[1]


@given(data=st.data())
def test_sum_is_exact_and_bounds_hold(data):
    count = data.draw(st.integers(1, 12))
    weight = st.floats(0, 1e6) | st.just(0.0) | st.floats(0, 1e-300)
    weights = data.draw(st.lists(weight, min_size=count, max_size=count))
    lower = np.array(data.draw(st.lists(st.integers(0, 6), min_size=count, max_size=count)))
    upper = lower + data.draw(st.lists(st.integers(0, 30), min_size=count, max_size=count))
    budget = data.draw(st.integers(int(lower.sum()), int(upper.sum())))
    counts = water_level(weights, budget, lower, upper)
    assert budget == counts.sum()
    assert (counts >= lower).all()
    assert (counts <= upper).all()


@given(seed=st.integers(0, 10_000))
def test_one_level_serves_all_that_are_inside_their_bounds_and_rounding_moves_less_than_one(seed):
    rng = np.random.default_rng(seed)
    weights, lower, upper = rng.random(10) + 1e-3, np.full(10, 2), np.full(10, 20)
    budget = int(rng.integers(20, 201))
    target = _fill(weights, lower, upper, budget)
    assert budget == pytest.approx(target.sum())
    level = (target / weights)[(target > 2) & (target < 20)]
    if len(level):
        np.testing.assert_allclose(level, level[0], rtol=1e-12)
        assert (level[0] * weights[target <= 2] <= 2 + 1e-9).all()
        assert (level[0] * weights[target >= 20] >= 20 - 1e-9).all()
    assert (np.abs(water_level(weights, budget, lower, upper) - target) < 1 + 1e-8).all()


@given(seed=st.integers(0, 10_000))
def test_larger_spread_never_gets_fewer_and_the_unit_does_not_matter(seed):
    rng = np.random.default_rng(seed)
    weights = np.sort(rng.random(12))
    counts = water_level(weights, 100, 4, 20)
    assert (np.diff(counts) >= 0).all()
    np.testing.assert_array_equal(counts, water_level(1e-7 * weights, 100, 4, 20))


def test_unrounded_level_is_the_neyman_allocation():
    rng = np.random.default_rng(0)
    spread, lower, upper = rng.random(6), np.full(6, 2), np.full(6, 14)
    target = _fill(spread, lower, upper, 48)
    cost = (spread**2 / target).sum()
    for _ in range(2000):
        move = rng.normal(size=6)
        other = target + 1e-3 * (move - move.mean())
        if (other >= lower).all() and (other <= upper).all():
            assert cost <= (spread**2 / other).sum() + 1e-12


def test_variance_weights_without_bounds_gain_nothing_over_uniform():
    # sum v/n with n proportional to v is B^2 v_mean / C, exactly what uniform counts give
    v = np.random.default_rng(1).random(50) / 4
    target = _fill(v, np.zeros(50, dtype=int), np.full(50, 10**9), 800)
    assert (v / target).sum() == pytest.approx((v / 16).sum(), rel=1e-9)
    root = _fill(np.sqrt(v), np.zeros(50, dtype=int), np.full(50, 10**9), 800)
    assert (v / root).sum() < 0.95 * (v / 16).sum()


def test_largest_remainder_breaks_ties_by_index_through_rounding_noise():
    target = np.array([1 / 3, 1 / 3 + 1e-13, 1 / 3]) + 1
    np.testing.assert_array_equal([2, 1, 1], largest_remainder(target, 4, np.full(3, 9)))


@pytest.mark.parametrize("rule", [water_level, inverse_accuracy, inverse_variance])
def test_infeasible_and_bad_arguments_are_refused(rule):
    with pytest.raises(InfeasibleError, match=r"budget=3 .*\[4, 16\]"):
        rule([0.5, 0.5], 3, 2, 8)
    with pytest.raises(ArgumentError, match="nan"):
        rule([0.5, np.nan], 8, 2, 8)


def test_published_refuses_more_successes_than_trials():
    with pytest.raises(ArgumentError, match="successes must be <= trials"):
        published_water_level([5], [4], 8, 2, 8)
