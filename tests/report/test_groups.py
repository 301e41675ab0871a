"""Allocation over difficulty and calibration, against figures worked out by hand."""

import numpy as np
import pytest

from neyman.report import Groups, load_run
from neyman.report._groups import (
    allocation_by_predicted,
    allocation_by_realised,
    calibration,
    costliest_prompts,
    reasons,
    wilson_bounds,
)
from neyman.report._series import step_series


def groups(predicted, rollouts, successes, trials, ids=None, reason=None):
    n = len(rollouts)
    return Groups(
        step=np.ones(n, dtype=np.int64),
        prompt_id=tuple(ids or range(n)),
        predicted=np.array(predicted, dtype=float),
        uncertainty=np.full(n, np.nan),
        rollouts=np.array(rollouts, dtype=np.int64),
        successes=np.array(successes, dtype=np.int64),
        trials=np.array(trials, dtype=np.int64),
        outcome=("trained",) * n,
        reason=tuple(reason or [""] * n),
    )


def test_allocation_over_predictions_by_hand():
    got = allocation_by_predicted(groups([0.05, 0.5, 0.55, 1.0, np.nan], [2, 8, 10, 4, 99], [0] * 5, [1] * 5))
    assert got.groups.tolist() == [1, 0, 0, 0, 0, 2, 0, 0, 0, 1]
    assert got.mean[[0, 5, 9]].tolist() == [2.0, 9.0, 4.0]
    assert np.isnan(got.mean[1])
    assert got.share[5] == pytest.approx(18 / 24)
    assert got.share.sum() == pytest.approx(1.0)


def test_pure_groups_have_bins_of_their_own():
    got = allocation_by_realised(groups([np.nan] * 5, [8, 8, 8, 8, 5], [0, 1, 4, 8, 0], [8, 8, 8, 8, 0]))
    assert got.groups.tolist() == [1, 1, 0, 1, 0, 0, 1]  # the group without an outcome is in none


def test_calibration_by_hand():
    got = calibration(groups([0.2, 0.25, 0.9, np.nan], [8] * 4, [1, 3, 4, 8], [4, 12, 4, 8]))
    assert got.groups == 3
    assert got.trials[[2, 9]].tolist() == [16, 4]
    assert got.predicted[2] == pytest.approx((4 * 0.2 + 12 * 0.25) / 16)
    assert got.realised[2] == pytest.approx(4 / 16)
    squares = 1 * 0.8**2 + 3 * 0.2**2 + 3 * 0.75**2 + 9 * 0.25**2 + 4 * 0.1**2
    assert got.brier == pytest.approx(squares / 20)
    assert got.log_loss_constant == pytest.approx(-(8 * np.log(0.4) + 12 * np.log(0.6)) / 20)


def test_nothing_predicted_nothing_scored():
    nothing = groups([np.nan], [4], [2], [4])
    assert calibration(nothing) is None
    assert allocation_by_predicted(nothing) is None


def test_a_prior_that_never_varies_is_no_predictor():
    prior = groups([0.5, 0.5, np.nan], [4] * 3, [2] * 3, [4] * 3)
    assert calibration(prior) is None
    assert allocation_by_predicted(prior) is None
    assert calibration(groups([0.5, 0.6], [4] * 2, [2] * 2, [4] * 2)) is not None


def test_wilson_bounds_cover_the_rates_of_a_true_predictor():
    draws, hits, count = np.random.default_rng(5), 0, 0
    for _ in range(150):
        p = draws.uniform(0.02, 0.98, 400)
        n = np.full(400, 8)
        got = calibration(groups(p, n, draws.binomial(n, p), n))
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


def test_costliest_prompts_and_reasons_by_hand():
    some = groups(
        [np.nan] * 4, [8, 4, 8, 6], [1, 1, 2, 3], [8, 4, 8, 6], ["a", 7, "a", "b"], ["x", "y", "z", "y"]
    )
    top = costliest_prompts(some, top=2)
    assert [(p.prompt_id, p.visits, p.rollouts, p.successes, p.reason) for p in top] == [
        ("a", 2, 16, 3, "z"),
        ("b", 1, 6, 3, "y"),
    ]
    assert reasons(some) == [("y", "trained", 2, 10), ("x", "trained", 1, 8), ("z", "trained", 1, 8)]


def test_series_of_seeds_of_unequal_length(tmp_path, write_run):
    runs = [load_run(write_run(tmp_path, "vip", seed, steps=n)) for seed, n in ((0, 3), (1, 5))]
    got = step_series(runs, "trainer", "entropy")
    both = [run.trainer["entropy"] for run in runs]
    assert got.step.tolist() == [1, 2, 3, 4, 5]
    np.testing.assert_allclose(got.mean[:3], (both[0] + both[1][:3]) / 2)
    np.testing.assert_allclose(got.mean[3:], both[1][3:])
    np.testing.assert_allclose(got.smooth, got.mean)  # so short a run is not smoothed
    assert step_series(runs, "trainer", "absent") is None
