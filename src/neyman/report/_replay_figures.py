"""The pictures of a replay."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from neyman.report._figures import _dress, _line, tick
from neyman.report._groups import Calibration, wilson_bounds
from neyman.report._looks import INK, MUTED, Look

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Entry = Mapping[str, float | None]


def draw_intervals(
    axes: Axes,
    entries: Mapping[str, Entry],
    looks: Mapping[str, Look],
    *,
    label: str,
    mark: float | None = None,
) -> Axes:
    """Draw a figure of each strategy as a point with its interval.

    Args:
        axes: to draw on.
        entries: strategy -> {"mean", "low", "high"}; the first is on top.
        looks: strategy -> look.
        label: the figure, with its unit.
        mark: a value that gets a dotted line.
    """
    names = list(entries)
    for place, name in enumerate(names):
        mean, low, high = (entries[name][key] for key in ("mean", "low", "high"))
        if mean is None:
            continue
        colour = looks[name].colour.light
        if low is not None and high is not None:
            axes.plot([low, high], [place, place], color=colour, linewidth=2.2, zorder=2)
        axes.plot([mean], [place], color=colour, marker=looks[name].marker, markersize=8, zorder=3)
    if mark is not None:
        axes.axvline(mark, color=MUTED.light, linewidth=1.0, linestyle=(0, (1, 2)), zorder=1)
    axes.set_yticks(range(len(names)), [tick(name) for name in names], parse_math=False)
    axes.set_ylim(len(names) - 0.5, -0.5)
    _dress(axes, x_label=label, y_label="")
    axes.tick_params(axis="y", labelcolor=INK.light, labelsize=11)
    return axes


def draw_over_passes(
    axes: Axes,
    series: Mapping[str, Sequence[float | None]],
    at: Sequence[float],
    looks: Mapping[str, Look],
    *,
    label: str,
) -> Axes:
    """Draw a figure of each strategy over the passes of the record.

    Args:
        axes: to draw on.
        series: strategy -> values; None is unknown.
        at: where they stand, in passes.
        looks: strategy -> look.
        label: the figure, with its unit.
    """
    for name, values in series.items():
        known = [(x, y) for x, y in zip(at, values, strict=True) if y is not None]
        points = np.array(known, dtype=np.float64).reshape(-1, 2)
        _line(axes, points[:, 0], points[:, 1], looks[name], name, markers=7)
    axes.set_ylim(bottom=0.0)
    return _dress(axes, x_label="passes over the prompts", y_label=label)


def calibration_of(bins: Sequence[Sequence[float]], scores: Mapping[str, Any]) -> Calibration:
    """Return a calibration from ten bins of (rollouts, sum of predictions, successes)."""
    table = np.asarray(bins, dtype=np.float64)
    trials = table[:, 0]
    predicted = np.divide(table[:, 1], trials, out=np.full(10, np.nan), where=trials > 0)
    realised = np.divide(table[:, 2], trials, out=np.full(10, np.nan), where=trials > 0)
    low, high = wilson_bounds(realised, trials.astype(np.int64))
    rate = float(table[:, 2].sum() / max(trials.sum(), 1.0))
    entropy = -sum(x * np.log(x) for x in (rate, 1.0 - rate) if x > 0)
    known = {
        name: np.nan if scores[name]["mean"] is None else scores[name]["mean"]
        for name in ("brier", "log_loss", "ece")
    }
    return Calibration(
        labels=tuple(f"{10 * i} to {10 * (i + 1)} %" for i in range(10)),
        predicted=predicted,
        realised=realised,
        low=low,
        high=high,
        trials=trials.astype(np.int64),
        groups=0,
        log_loss_constant=float(entropy),
        **known,
    )
