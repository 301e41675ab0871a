"""Figures of a strategy over steps, averaged over seeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from neyman._checks import FloatP, IntP
from neyman.report._calibration import ratio
from neyman.report._runs import Run

PARTS = ("first", "last", "all")


@dataclass(frozen=True)
class Series:
    """One figure over steps."""

    step: IntP  # [steps]
    seeds: FloatP  # [seeds, steps], NaN where a seed has none
    mean: FloatP  # [steps], over the seeds that have one
    smooth: FloatP  # [steps], the mean's moving average
    window: int  # steps in that average, ends cut short

    def part(self, name: str) -> float:
        """Mean over the ``first`` or ``last`` quarter of the steps, or over ``all``; NaN without any."""
        quarter = max(1, len(self.mean) // 4)
        span = dict(zip(PARTS, (slice(None, quarter), slice(-quarter, None), slice(None)), strict=True))[name]
        values = self.mean[span]
        return float(np.nanmean(values)) if np.isfinite(values).any() else float("nan")


def step_series(runs: Sequence[Run], source: str, name: str) -> Series | None:
    """Return one figure of a strategy's runs over steps; None where no run has a finite value of it.

    ``source`` is ``"metrics"`` (the controller's report) or ``"trainer"``.
    """
    return series_of([(run.step, getattr(run, source)[name]) for run in runs if name in getattr(run, source)])


def series_of(columns: Sequence[tuple[IntP, FloatP]]) -> Series | None:
    """Return one figure over steps from each seed's (steps, values); None where no value is finite."""
    if not any(np.isfinite(values).any() for _, values in columns):
        return None
    step = np.unique(np.concatenate([steps for steps, _ in columns]))
    seeds = np.full((len(columns), len(step)), np.nan)
    for row, (steps, values) in zip(seeds, columns, strict=True):
        row[np.searchsorted(step, steps)] = values
    mean = _mean(seeds)
    window = max(1, len(step) // 15) | 1
    half = window // 2
    smooth = np.array(
        [float(_mean(mean[None, max(0, i - half) : i + half + 1].T)[0]) for i in range(len(step))]
    )
    return Series(step.astype(np.int64), seeds, mean, smooth, window)


def _mean(rows: FloatP) -> FloatP:
    """Mean of the finite values over the first axis; NaN where there are none."""
    known = np.isfinite(rows)
    return ratio(np.where(known, rows, 0.0).sum(axis=0), known.sum(axis=0))
