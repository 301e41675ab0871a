"""Drawing functions, by the shapes on their axes."""

import numpy as np
import pytest

pytest.importorskip("matplotlib", reason="matplotlib is not installed: pip install 'neyman[cli]'")
from matplotlib.figure import Figure

from neyman.report import load_run
from neyman.report._figures import (
    draw_accuracy,
    draw_allocation,
    draw_calibration,
    draw_fates,
    draw_series,
)
from neyman.report._findings import analyse
from neyman.report._looks import looks
from neyman.report._series import step_series
from neyman.report._stats import accuracy_curve

LOOKS = looks(["uniform", "vip"], "uniform")


@pytest.fixture
def axes():
    return Figure().add_subplot()


@pytest.fixture
def findings(tmp_path, write_run):
    runs = [
        load_run(write_run(tmp_path, name, seed, steps=6)) for name in ("uniform", "vip") for seed in (0, 1)
    ]
    return analyse(runs)


def line(axes, label):
    return next(one for one in axes.lines if one.get_label() == label)


def test_accuracy_draws_seeds_mean_and_band(axes):
    x = np.array([0.0, 10.0])
    seeds = {"vip": [(x, np.array([0.2, 0.4])), (x, np.array([0.2, 0.6]))]}
    curve = accuracy_curve(seeds["vip"], points=3)
    got = draw_accuracy(axes, {"vip": curve}, seeds, LOOKS, x_label="rollouts", target=0.3)
    assert got is axes
    np.testing.assert_allclose(line(axes, "vip").get_ydata(), [0.2, 0.35, 0.5])
    thin = [one for one in axes.lines if one.get_linewidth() < 1.0]
    assert [one.get_ydata()[-1] for one in thin] == [0.4, 0.6]
    assert len(axes.collections) == 1  # the band
    assert [one for one in axes.lines if set(one.get_ydata()) == {0.3}]  # the target
    assert axes.get_xlabel() == "rollouts"


def test_one_seed_draws_no_band(axes):
    seeds = {"vip": [([0.0, 10.0], [0.2, 0.4])]}
    draw_accuracy(axes, {"vip": accuracy_curve(seeds["vip"])}, seeds, LOOKS, x_label="rollouts")
    assert len(axes.collections) == 0


def test_allocation_draws_known_bins(axes, findings):
    bins = findings.find("vip").allocations["predicted"]
    draw_allocation(axes, {"vip": bins}, LOOKS, show="share", x_label="predicted")
    known = bins.groups > 0
    np.testing.assert_allclose(line(axes, "vip").get_xdata(), bins.place[known])
    np.testing.assert_allclose(line(axes, "vip").get_ydata(), bins.share[known])


def test_calibration_draws_realised_over_predicted(axes, findings):
    scored = findings.find("vip").calibration
    draw_calibration(axes, {"vip": scored}, LOOKS)
    known = scored.trials > 0
    np.testing.assert_allclose(line(axes, "vip").get_ydata(), scored.realised[known])
    assert axes.get_ylim() == (-0.03, 1.03)


def test_series_draws_one_thin_line_per_seed(axes, findings):
    series = step_series(findings.find("vip").runs, "metrics", "effective_ratio")
    draw_series(axes, {"vip": series}, LOOKS, y_label="ratio", is_share=True)
    assert len(axes.lines) == 2 + 1
    np.testing.assert_allclose(line(axes, "vip").get_ydata(), series.smooth)


def test_bars_of_fates_fill_the_whole_width(axes):
    draw_fates(axes, {"$bad {math": {"trained": 3, "failed": 1}, "vip": {"uniform": 5}})
    widths = np.array([[bar.get_width() for bar in bars] for bars in axes.containers])
    np.testing.assert_allclose(widths.sum(axis=0), [1.0, 1.0])
    assert [bars.get_label() for bars in axes.containers] == [
        "trained on, mixed group",
        "trained on, no signal",
        "failed",
    ]
    axes.figure.canvas.draw()  # a name that is no mathematics is not taken for it
