"""Means, intervals, pairs and targets, against figures worked out by hand and against simulation."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import optimize, stats

from neyman.errors import ArgumentError
from neyman.report._stats import (
    accuracy_curve,
    bootstrap_interval,
    cost_at,
    cost_to_reach,
    first_reach,
    isotonic,
    mean_interval,
    paired_difference,
    value_at,
)


def rng():
    return np.random.default_rng(0)


def test_interval_of_three_seeds_by_hand():
    # s = 0.02, t(.975, 2) = 4.302653, half width = 4.302653 x 0.02 / sqrt(3)
    got = mean_interval([0.48, 0.50, 0.52])
    assert got.mean == pytest.approx(0.50)
    assert got.high - got.mean == pytest.approx(0.0496827, abs=1e-6)
    assert got.count == 3


def test_interval_agrees_with_scipy():
    values = [0.1, 0.35, 0.2, 0.4]
    low, high = stats.t.interval(0.9, 3, loc=np.mean(values), scale=stats.sem(values))
    got = mean_interval(values, level=0.9)
    assert (got.low, got.high) == pytest.approx((low, high))


def test_one_seed_has_no_interval():
    got = mean_interval([0.5])
    assert got.mean == 0.5
    assert not got.is_known
    assert not got.excludes_zero


def test_no_seed_has_no_mean():
    assert np.isnan(mean_interval([]).mean)


def test_copies_of_one_run_give_no_interval():
    # The differences agree but for rounding: an interval of 1e-17 would claim anything.
    got = paired_difference({0: 0.4, 1: 0.5, 2: 0.7}, {0: 0.3, 1: 0.4, 2: 0.6}, rng())
    assert not got.interval.is_known
    assert not got.interval.excludes_zero


@pytest.mark.parametrize("n", [2, 5])
def test_student_interval_covers_as_promised(n):
    draws, runs = np.random.default_rng(1), 4000
    hits = 0
    for _ in range(runs):
        got = mean_interval(draws.normal(0.3, 0.1, n))
        hits += got.low <= 0.3 <= got.high
    error = np.sqrt(0.95 * 0.05 / runs)
    assert hits / runs == pytest.approx(0.95, abs=4 * error)


def test_paired_interval_covers_where_seeds_matter_much_and_excludes_zero_at_its_level():
    draws, runs, misses = np.random.default_rng(2), 3000, 0
    for _ in range(runs):
        shared = draws.normal(0.5, 0.2, 4)
        ours, base = shared + draws.normal(0, 0.01, 4), shared + draws.normal(0, 0.01, 4)
        got = paired_difference(dict(enumerate(ours)), dict(enumerate(base)), draws)
        misses += got.interval.excludes_zero
    assert misses / runs == pytest.approx(0.05, abs=4 * np.sqrt(0.05 * 0.95 / runs))


def test_bootstrap_of_five_seeds_is_too_narrow_as_documented():
    draws, runs, hits = np.random.default_rng(3), 600, 0
    for _ in range(runs):
        low, high = bootstrap_interval(draws.normal(0.0, 1.0, 5), draws)
        hits += low <= 0.0 <= high
    assert hits / runs == pytest.approx(0.84, abs=0.06)  # 4 Monte Carlo errors of .015


def test_bootstrap_of_few_seeds_is_exact_and_draws_nothing():
    values = np.array([0.0, 1.0, 5.0])
    means = [np.mean(c) for c in itertools.product(values, repeat=3)]
    source = rng()
    before = source.bit_generator.state
    assert bootstrap_interval(values, source) == pytest.approx(tuple(np.quantile(means, [0.025, 0.975])))
    assert source.bit_generator.state == before


def test_bootstrap_of_many_seeds_is_near_the_normal_interval():
    values = np.random.default_rng(4).normal(0, 1, 400)
    low, high = bootstrap_interval(values, rng())
    half = 1.96 * values.std(ddof=1) / 20
    assert (low, high) == pytest.approx((values.mean() - half, values.mean() + half), abs=0.01)


def test_pairs_are_of_shared_seeds_alone():
    got = paired_difference({0: 0.5, 1: 0.7, 9: 1.0}, {1: 0.4, 0: 0.4, 5: 0.0}, rng())
    assert got.seeds == (0, 1)
    np.testing.assert_allclose(got.differences, [0.1, 0.3])
    assert got.interval.mean == pytest.approx(0.2)
    assert paired_difference({0: 0.5}, {1: 0.5}, rng()) is None


def test_a_curve_is_not_extrapolated():
    assert value_at([0, 100], [0.2, 0.4], 50) == pytest.approx(0.3)
    assert np.isnan(value_at([0, 100], [0.2, 0.4], 101))
    assert np.isnan(value_at([], [], 0))


def test_of_two_points_at_one_cost_the_last_counts():
    assert value_at([0, 10, 10], [0.0, 0.5, 0.7], 10) == 0.7


def test_mean_curve_covers_where_every_seed_has_points():
    curve = accuracy_curve([([0, 10], [0.0, 1.0]), ([0, 20], [0.0, 1.0])], points=3)
    np.testing.assert_allclose(curve.x, [0, 5, 10])
    np.testing.assert_allclose(curve.mean, [0.0, 0.375, 0.75])
    # At 10: values 1 and .5, half width t(.975, 1) x .353553 / sqrt(2) = 12.7062 x .25
    assert curve.high[-1] - curve.mean[-1] == pytest.approx(3.17655, abs=1e-4)


def test_a_single_seed_has_a_curve_and_no_band():
    curve = accuracy_curve([([0, 10], [0.1, 0.2])], points=2)
    np.testing.assert_allclose(curve.mean, [0.1, 0.2])
    assert np.isnan(curve.low).all()


def test_no_evaluation_gives_an_empty_curve():
    assert accuracy_curve([([], [])]).x.shape == (0,)


@given(st.lists(st.floats(-5, 5), min_size=1, max_size=30))
def test_isotonic_fit_equals_scipy(values):
    np.testing.assert_allclose(isotonic(values), optimize.isotonic_regression(values).x, atol=1e-9)


def test_rows_are_fitted_one_by_one():
    curves = np.random.default_rng(0).normal(size=(7, 5))
    np.testing.assert_array_equal(isotonic(curves), [isotonic(row) for row in curves])
    assert isotonic([]).shape == (0,)


def test_costs_of_rows_equal_those_of_single_curves_and_reach_their_own_last_point_exactly():
    draws = np.random.default_rng(0)
    curves, costs, targets = (
        draws.normal(size=(40, 9)).cumsum(axis=1),
        np.linspace(0.0, 80.0, 9),
        draws.normal(size=40),
    )
    fits = isotonic(curves)
    got = cost_at(costs, fits, targets)
    assert got.tolist() == [
        first_reach(costs, row, target) for row, target in zip(curves, targets, strict=True)
    ]
    # A target that rounding has put a little above the last point.
    assert (cost_at(costs, fits, fits[:, -1] * (1 + 1e-15)) <= 80.0).all()
    assert cost_at(costs, np.linspace(0.1, 0.9, 9)[None], np.array([0.9 + 1e-15])).tolist() == [80.0]


def test_a_reference_reaches_its_own_mean_whatever_the_rounding():
    ends = [0.1, 0.1, 0.1]  # their mean is greater than each by one unit in the last place
    reach = cost_to_reach([([0, 10], [0.0, end]) for end in ends], float(np.mean(ends)))
    assert reach.costs.tolist() == [10.0, 10.0, 10.0]


def test_figures_for_json_have_bounds_only_where_there_is_an_interval():
    assert mean_interval([0.4]).as_dict() == {"mean": 0.4, "low": None, "high": None}
    assert mean_interval([0.5, 0.5]).as_dict() == {"mean": 0.5, "low": None, "high": None}
    assert mean_interval([]).as_dict() == {"mean": None, "low": None, "high": None}


def test_first_reach_reads_between_points_of_the_smoothed_curve():
    assert first_reach([0, 100, 200], [0.2, 0.4, 0.6], 0.5) == pytest.approx(150)
    # The spike to .6 is pooled with the fall to .3: both become .45, so .5 is reached after them.
    assert first_reach([0, 100, 200, 300], [0.2, 0.6, 0.3, 0.55], 0.5) == pytest.approx(250)
    assert first_reach([0, 100], [0.5, 0.6], 0.4) == 0.0


def test_a_target_never_reached_is_censored():
    assert first_reach([0, 100], [0.2, 0.4], 0.5) == np.inf
    reach = cost_to_reach([([0, 100], [0.2, 0.4]), ([0, 100], [0.2, 0.8])], 0.5)
    assert reach.is_censored
    assert reach.reached == 1
    assert reach.interval.mean == pytest.approx((100 + 50) / 2)  # a lower bound
    assert not reach.interval.is_known


def test_a_target_reached_by_all_has_an_interval():
    reach = cost_to_reach([([0, 100], [0.0, 1.0]), ([0, 200], [0.0, 1.0])], 0.5)
    assert not reach.is_censored
    assert reach.interval.mean == pytest.approx(75)
    assert reach.interval.is_known


def test_curves_of_unequal_length_are_refused():
    with pytest.raises(ArgumentError, match="x and y must have one length, got 2 and 1"):
        value_at([0, 1], [0.5], 0)
