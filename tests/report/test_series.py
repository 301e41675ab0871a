"""Figures over steps, averaged over seeds."""

import numpy as np

from neyman.report import load_run
from neyman.report._series import step_series


def test_series_of_seeds_of_unequal_length(tmp_path, write_run):
    runs = [load_run(write_run(tmp_path, "vip", seed, steps=n)) for seed, n in ((0, 3), (1, 5))]
    got = step_series(runs, "trainer", "entropy")
    both = [run.trainer["entropy"] for run in runs]
    assert got.step.tolist() == [1, 2, 3, 4, 5]
    np.testing.assert_allclose(got.mean[:3], (both[0] + both[1][:3]) / 2)
    np.testing.assert_allclose(got.mean[3:], both[1][3:])
    np.testing.assert_allclose(got.smooth, got.mean)  # so short a run is not smoothed
    assert step_series(runs, "trainer", "absent") is None
