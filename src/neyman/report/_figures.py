"""Drawing functions: each takes data and an Axes and returns the Axes; none shows or changes settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from neyman._checks import FloatP, IntP
from neyman.report._calibration import CalibrationBins
from neyman.report._format import shorten, visible
from neyman.report._groups import Allocation
from neyman.report._looks import GRID, INK, MUTED, PAPER, Look, fate_colour, fate_order, fate_words
from neyman.report._series import Series
from neyman.report._stats import Curve

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_LONGEST_TICK = 28  # characters
_DOTTED: dict[str, Any] = {"color": MUTED.light, "linewidth": 1.0, "linestyle": (0, (1, 2)), "zorder": 1}


def draw_accuracy(
    axes: Axes,
    curves: Mapping[str, Curve],
    seeds: Mapping[str, Sequence[tuple[FloatP, FloatP]]],
    looks: Mapping[str, Look],
    *,
    x_label: str,
    target: float = float("nan"),
) -> Axes:
    """Draw accuracy over a cost: thin lines per seed, a thick mean, and its interval as a band.

    ``seeds`` maps a strategy to each seed's (cost, accuracy); ``target`` gets a dotted line across, NaN none.
    """
    for name, curve in curves.items():
        look = looks[name]
        colour = look.colour.light
        for x, y in seeds[name]:
            axes.plot(x, y, color=colour, linewidth=0.9, alpha=0.35, zorder=2)
        if not len(curve.x):
            continue
        if np.isfinite(curve.low).any():
            low, high = np.clip(curve.low, 0.0, 1.0), np.clip(curve.high, 0.0, 1.0)
            axes.fill_between(
                curve.x, low, high, color=colour, alpha=min(0.14, 0.3 / len(curves)), linewidth=0, zorder=1
            )
        _line(axes, curve.x, curve.mean, look, name, markers=7)
    if np.isfinite(target):
        axes.axhline(target, **_DOTTED)
    _focus(axes, [y for pairs in seeds.values() for _, y in pairs])
    return _dress(axes, x_label=x_label, y_label="test problems solved", percent="y", thousands="x")


def draw_allocation(
    axes: Axes, bins: Mapping[str, Allocation], looks: Mapping[str, Look], *, show: str, x_label: str
) -> Axes:
    """Draw rollouts over a success rate: per group (``show="mean"``) or of all (``show="share"``)."""
    for name, allocation in bins.items():
        values = allocation.mean if show == "mean" else allocation.share
        known = np.isfinite(values)
        _line(axes, allocation.place[known], values[known], looks[name], name)
    axes.set_xlim(-0.03, 1.03)
    axes.set_ylim(bottom=0.0)
    label = "rollouts per group" if show == "mean" else "share of all rollouts"
    return _dress(axes, x_label=x_label, y_label=label, percent="x" if show == "mean" else "xy")


def draw_series(
    axes: Axes,
    series: Mapping[str, Series],
    looks: Mapping[str, Look],
    *,
    y_label: str,
    is_share: bool = False,
) -> Axes:
    """Draw a figure over steps: thin lines per seed, a thick smoothed mean."""
    for name, one in series.items():
        for row in one.seeds:
            axes.plot(one.step, row, color=looks[name].colour.light, linewidth=0.7, alpha=0.28, zorder=2)
        _line(axes, one.step, one.smooth, looks[name], name, markers=7)
    if is_share:
        axes.set_ylim(-0.03, 1.03)
    return _dress(axes, x_label="step", y_label=y_label, percent="y" if is_share else "")


def draw_calibration(
    axes: Axes, calibrations: Mapping[str, CalibrationBins], looks: Mapping[str, Look]
) -> Axes:
    """Draw realised against predicted success; on the diagonal a predictor is right."""
    axes.plot([0, 1], [0, 1], **_DOTTED)
    for name, one in calibrations.items():
        known = one.trials > 0
        x, y = one.predicted[known], one.realised[known]
        errors = np.maximum([y - one.low[known], one.high[known] - y], 0.0)
        colour = looks[name].colour.light
        axes.errorbar(x, y, yerr=errors, fmt="none", ecolor=colour, elinewidth=1.0, alpha=0.6, zorder=2)
        _line(axes, x, y, looks[name], name)
    axes.set_xlim(-0.03, 1.03)
    axes.set_ylim(-0.03, 1.03)
    return _dress(axes, x_label="predicted success rate", y_label="realised success rate", percent="xy")


def draw_fates(axes: Axes, fates: Mapping[str, Mapping[str, int]]) -> Axes:
    """Draw strategy -> fate -> rollouts: one bar per strategy, in shares of the rollouts requested."""
    names = list(fates)
    left = np.zeros(len(names))
    totals = np.array([max(sum(one.values()), 1) for one in fates.values()], dtype=np.float64)
    for fate in fate_order(fates.values()):
        share = np.array([one.get(fate, 0) for one in fates.values()]) / totals
        axes.barh(
            range(len(names)),
            share,
            left=left,
            height=0.62,
            color=fate_colour(fate).light,
            edgecolor=PAPER.light,
            linewidth=1.0,
            label=fate_words(fate),
        )
        left += share
    axes.set_xlim(0.0, 1.0)
    _dress(axes, x_label="share of the rollouts requested", y_label="", percent="x")
    axes.grid(visible=False, axis="y")
    return _name_rows(axes, names)


def draw_intervals(
    axes: Axes,
    entries: Mapping[str, Mapping[str, float | None]],
    looks: Mapping[str, Look],
    *,
    label: str,
    mark: float | None = None,
) -> Axes:
    """Draw each strategy's {"mean", "low", "high"} as a point with its interval; ``mark`` gets a dotted line."""
    for place, (name, entry) in enumerate(entries.items()):
        mean, low, high = (entry[key] for key in ("mean", "low", "high"))
        if mean is None:
            continue
        colour = looks[name].colour.light
        if low is not None and high is not None:
            axes.plot([low, high], [place, place], color=colour, linewidth=2.2, zorder=2)
        axes.plot([mean], [place], color=colour, marker=looks[name].marker, markersize=8, zorder=3)
    if mark is not None:
        axes.axvline(mark, **_DOTTED)
    _dress(axes, x_label=label, y_label="")
    return _name_rows(axes, list(entries))


def draw_over_passes(
    axes: Axes,
    series: Mapping[str, Sequence[float | None]],
    at: Sequence[float],
    looks: Mapping[str, Look],
    *,
    label: str,
) -> Axes:
    """Draw each strategy's values over the passes ``at`` which they stand; None is unknown."""
    for name, values in series.items():
        y = np.array(values, dtype=np.float64)  # None becomes NaN
        known = ~np.isnan(y)
        _line(axes, np.asarray(at)[known], y[known], looks[name], name, markers=7)
    axes.set_ylim(bottom=0.0)
    return _dress(axes, x_label="passes over the prompts", y_label=label)


def _name_rows(axes: Axes, names: Sequence[str]) -> Axes:
    """Put names beside rows, the first on top; cut to the width of a picture, as tables have them whole."""
    ticks = [shorten(visible(name), _LONGEST_TICK) for name in names]
    axes.set_yticks(range(len(names)), ticks, parse_math=False)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.tick_params(axis="y", labelcolor=INK.light, labelsize=11)
    return axes


def _line(axes: Axes, x: FloatP | IntP, y: FloatP, look: Look, name: str, markers: int | None = None) -> None:
    axes.plot(
        x,
        y,
        color=look.colour.light,
        linestyle=look.dash,
        linewidth=2.2,
        marker=look.marker,
        markersize=5.5,
        markeredgecolor=PAPER.light,
        markeredgewidth=0.8,
        markevery=1 if markers is None else max(1, (len(x) - 1) // (markers - 1) or 1),
        zorder=3,
        label=visible(name).replace("$", r"\$"),
    )


def _focus(axes: Axes, values: Sequence[FloatP]) -> None:
    """Fit the y axis to the points: a band that is wide for want of seeds must not flatten the curves."""
    every = np.concatenate([np.zeros(0), *values])
    if not len(every):
        return
    pad = max(0.08 * float(every.max() - every.min()), 0.01)
    axes.set_ylim(max(float(every.min()) - pad, -0.02), min(float(every.max()) + pad, 1.02))


def _dress(axes: Axes, *, x_label: str, y_label: str, percent: str = "", thousands: str = "") -> Axes:
    from matplotlib.ticker import EngFormatter, FuncFormatter, MaxNLocator  # noqa: PLC0415  an extra

    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(MUTED.light)
    axes.set_facecolor("none")
    axes.grid(visible=True, color=GRID.light, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(colors=MUTED.light, labelsize=10, length=0)
    axes.set_xlabel(x_label, color=MUTED.light, fontsize=10.5)
    axes.set_ylabel(y_label, color=MUTED.light, fontsize=10.5)
    for name, axis in (("x", axes.xaxis), ("y", axes.yaxis)):
        if name == "x" or y_label:
            axis.set_major_locator(MaxNLocator(nbins=6 if name == "x" else 5, steps=[1, 2, 2.5, 5, 10]))
        if name in percent:
            axis.set_major_formatter(FuncFormatter(lambda value, _: f"{100.0 * value:.4g} %"))
        elif name in thousands:
            axis.set_major_formatter(EngFormatter(sep=""))
    return axes
