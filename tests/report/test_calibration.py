"""Calibration of predictions, against figures worked out by hand and against simulation."""

import numpy as np
import pytest

from neyman.report._calibration import calibration, calibration_bins, wilson_bounds
from neyman.report._groups import allocation_by_predicted


def test_calibration_by_hand(make_groups):
    got = calibration(make_groups([0.2, 0.25, 0.9, np.nan], [8] * 4, [1, 3, 4, 8], [4, 12, 4, 8]))
    assert got.groups == 3
    assert got.trials[[2, 9]].tolist() == [16, 4]
    assert got.predicted[2] == pytest.approx((4 * 0.2 + 12 * 0.25) / 16)
    assert got.realised[2] == pytest.approx(4 / 16)
    squares = 1 * 0.8**2 + 3 * 0.2**2 + 3 * 0.75**2 + 9 * 0.25**2 + 4 * 0.1**2
    assert got.brier == pytest.approx(squares / 20)
    assert got.log_loss_constant == pytest.approx(-(8 * np.log(0.4) + 12 * np.log(0.6)) / 20)


def test_nothing_predicted_nothing_scored(make_groups):
    nothing = make_groups([np.nan], [4], [2], [4])
    assert calibration(nothing) is None
    assert allocation_by_predicted(nothing) is None


def test_a_prior_that_never_varies_is_no_predictor(make_groups):
    prior = make_groups([0.5, 0.5, np.nan], [4] * 3, [2] * 3, [4] * 3)
    assert calibration(prior) is None
    assert allocation_by_predicted(prior) is None
    assert calibration(make_groups([0.5, 0.6], [4] * 2, [2] * 2, [4] * 2)) is not None


def test_wilson_bounds_cover_the_rates_of_a_true_predictor(make_groups):
    draws, hits, count = np.random.default_rng(5), 0, 0
    for _ in range(150):
        p = draws.uniform(0.02, 0.98, 400)
        n = np.full(400, 8)
        got = calibration(make_groups(p, n, draws.binomial(n, p), n))
        hits += int(((got.low <= got.predicted) & (got.predicted <= got.high)).sum())
        count += 10
    # Rates vary within a bin, which makes outcomes a little less noisy than binomial: coverage is not below .95.
    error = np.sqrt(0.95 * 0.05 / count)
    assert 0.95 - 3 * error <= hits / count <= 0.97


def test_wilson_bounds_need_trials():
    low, high = wilson_bounds(np.array([np.nan, 0.0]), np.array([0, 10]))
    assert np.isnan(low[0])
    assert np.isnan(high[0])
    assert low[1] == pytest.approx(0.0, abs=1e-12)


def test_bins_of_sums_equal_those_of_groups(make_groups):
    got = calibration(make_groups([0.2, 0.25, 0.9], [8] * 3, [1, 3, 4], [4, 12, 4]))
    sums = np.zeros((3, 10))
    sums[:, 2], sums[:, 9] = (16, 4 * 0.2 + 12 * 0.25, 4), (4, 4 * 0.9, 4)
    bins = calibration_bins(*sums)
    for name in ("trials", "predicted", "realised", "low", "high"):
        np.testing.assert_array_equal(getattr(bins, name), getattr(got, name))
