"""Statistics over seeds: means with intervals, paired differences, and the cost of reaching a target."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator
from numpy.typing import ArrayLike
from scipy import optimize, special

from neyman import _checks
from neyman._checks import FloatP
from neyman.errors import ArgumentError

NAN = float("nan")
_ENUMERATED = 6  # seeds up to which all n^n resamples are enumerated
_ROUNDING = 1e-12  # a curve reaches its own last point, whatever the order of the sums


@dataclass(frozen=True)
class Interval:
    """A mean over seeds; ``low`` and ``high`` are NaN where the seeds do not allow an interval."""

    mean: float
    low: float
    high: float
    count: int

    @property
    def is_known(self) -> bool:
        """True where there is an interval: seeds that agree to the last digit are copies, and give none."""
        return self.high - self.low > 1e-12 * max(1.0, abs(self.mean))

    def within(self, floor: float, ceiling: float = float("inf")) -> Interval:
        """Clip the bounds to the range of the figure; the coverage stays."""
        low, high = (min(max(bound, floor), ceiling) for bound in (self.low, self.high))
        return Interval(self.mean, low, high, self.count) if self.is_known else self

    @property
    def excludes_zero(self) -> bool:
        """True where the interval lies on one side of zero."""
        return self.is_known and (self.low > 0.0 or self.high < 0.0)

    def as_dict(self) -> dict[str, float | None]:
        """Return mean and bounds, JSON-safe: None where one is unknown."""
        low, high = (self.low, self.high) if self.is_known else (NAN, NAN)
        return {"mean": known(self.mean), "low": known(low), "high": known(high)}


@dataclass(frozen=True)
class Curve:
    """Accuracy over a cost, on a grid common to the seeds."""

    x: FloatP  # [points]
    mean: FloatP  # [points]
    low: FloatP  # [points], NaN with one seed
    high: FloatP


@dataclass(frozen=True)
class Paired:
    """Difference between two strategies over the seeds that both ran."""

    seeds: tuple[int, ...]
    differences: FloatP  # [seeds]
    interval: Interval
    bootstrap: tuple[float, float]  # the cross-check; NaN with one seed


@dataclass(frozen=True)
class Reach:
    """Cost at which each seed reached a target; infinite where it never did."""

    target: float
    costs: FloatP  # [seeds]
    reached: int
    interval: Interval  # over the seeds when all reached it; else a lower bound in ``mean`` alone

    @property
    def is_censored(self) -> bool:
        """True where a seed ended before it reached the target."""
        return self.reached < len(self.costs)


def known(value: float) -> float | None:
    """Return a number for JSON: None where it is not finite."""
    return float(value) if np.isfinite(value) else None


def mean_interval(values: ArrayLike, level: float = 0.95) -> Interval:
    """Mean over seeds with Student's interval.

    mean +- t_{(1+level)/2, n-1} s / sqrt(n), of one figure per seed; NaN are left out, and fewer than two seeds give no
    bounds.

    Guarantee: exact coverage where the seeds' figures are independent and normal. It covers new seeds on the same
    task, test problems and settings, nothing beyond.
    Cost: O(n).

    >>> mean_interval([1.0, 2.0, 3.0]).mean
    2.0
    >>> mean_interval([0.4]).is_known
    False
    """
    v = _checks.float_array("values", values, ndim=1)
    v = v[~np.isnan(v)]
    if len(v) < 2:
        return Interval(float(v[0]) if len(v) else NAN, NAN, NAN, len(v))
    half = float(_student_half_width(v[:, None], level)[0])
    mean = float(v.mean())
    return Interval(mean, mean - half, mean + half, len(v))


def bootstrap_interval(
    values: ArrayLike, rng: Generator, level: float = 0.95, resamples: int = 10_000
) -> tuple[float, float]:
    """Percentile bootstrap interval of a mean over seeds, a cross-check that assumes no distribution.

    Up to n = 6 all n^n resamples are enumerated, beyond that ``rng`` draws them; fewer than two seeds give NaN.

    Guarantee: asymptotic only: with 5 seeds a 95 % interval covers some 84 %, so it never decides a verdict.
    Cost: O(n min(n^n, resamples)).
    Source: Efron, 1979, Bootstrap methods: another look at the jackknife.

    >>> bootstrap_interval([1.0, 1.0], np.random.default_rng(0))
    (1.0, 1.0)
    """
    v = _checks.float_array("values", values, ndim=1)
    n = len(v)
    if n < 2:
        return NAN, NAN
    if n <= _ENUMERATED:
        means = np.array(list(itertools.product(v, repeat=n))).mean(axis=1)
    else:
        means = v[rng.integers(n, size=(resamples, n))].mean(axis=1)
    low, high = np.quantile(means, [0.5 - level / 2.0, 0.5 + level / 2.0])
    return float(low), float(high)


def value_at(x: ArrayLike, y: ArrayLike, at: float) -> float:
    """Value of a curve at ``at``, linear between its points; NaN outside them, never extrapolated.

    >>> value_at([0, 10], [0.0, 1.0], 4), value_at([0, 10], [0.0, 1.0], 11)
    (0.4, nan)
    """
    xs, ys = _points(x, y)
    return float(np.interp(at, xs, ys, left=np.nan, right=np.nan)) if len(xs) else NAN


def accuracy_curve(curves: Sequence[tuple[ArrayLike, ArrayLike]], points: int = 101) -> Curve:
    """Mean curve over seeds with its pointwise 95 % interval.

    Each seed's curve is interpolated linearly onto an even grid from the latest first point to the earliest
    last one, so that every point of the mean has every seed in it. Without any point the curve is empty.

    Guarantee: intervals hold point by point, not for the curve as a whole.
    Cost: O(seeds x points).
    """
    pairs = [pair for pair in (_points(x, y) for x, y in curves) if len(pair[0])]
    if not pairs:
        empty = np.zeros(0)
        return Curve(empty, empty, empty, empty)
    first, last = max(xs[0] for xs, _ in pairs), min(xs[-1] for xs, _ in pairs)
    x = np.linspace(first, last, points) if last > first else np.array([first])
    seeds = np.array([np.interp(x, xs, ys) for xs, ys in pairs])
    mean, half = seeds.mean(axis=0), _student_half_width(seeds)
    return Curve(x, mean, mean - half, mean + half)


def paired_difference(
    ours: dict[int, float], reference: dict[int, float], rng: Generator, level: float = 0.95
) -> Paired | None:
    """Difference between two strategies, paired by seed, with Student's interval and the bootstrap's.

    Figures that are NaN are left out; None where no seed is shared.

    Guarantee: as ``mean_interval``. Pairs remove a seed's effects on both strategies (first policy, order of prompts).
    Cost: That of the bootstrap.

    >>> paired_difference({0: 0.5, 1: 0.75}, {0: 0.25, 1: 0.5}, np.random.default_rng(0)).interval.mean
    0.25
    """
    seeds = tuple(s for s in sorted(ours.keys() & reference.keys()) if not np.isnan(ours[s] - reference[s]))
    if not seeds:
        return None
    d = np.array([ours[s] - reference[s] for s in seeds])
    return Paired(seeds, d, mean_interval(d, level), bootstrap_interval(d, rng, level))


def isotonic(curves: ArrayLike) -> FloatP:
    """Non-decreasing curve nearest in squares to each row of [points] or [rows, points], which are finite.

    Cost: O(rows x points).
    Source: Ayer, Brunk, Ewing, Reid and Silverman, 1955 (pool adjacent violators), by SciPy.

    >>> isotonic([0.0, 3.0, 1.0, 4.0])
    array([0., 2., 2., 4.])
    """
    y = _checks.float_array("curves", curves)
    if not y.size:
        return y
    rows = y.reshape(-1, y.shape[-1])
    return np.array([optimize.isotonic_regression(row).x for row in rows], dtype=np.float64).reshape(y.shape)


def cost_at(costs: FloatP, curves: FloatP, targets: FloatP) -> FloatP:
    """Cost at which each non-decreasing curve reaches its target, linear in between; infinite where it never does.

    ``costs`` rise, [points]; ``curves`` are [rows, points], ``targets`` [rows].
    """
    reached = curves >= targets[:, None] - _ROUNDING
    i = reached.argmax(axis=1)
    row, before = np.arange(len(curves)), np.maximum(i - 1, 0)
    rise = curves[row, i] - curves[row, before]
    share = np.where(rise > 0.0, (targets - curves[row, before]) / np.where(rise > 0.0, rise, 1.0), 1.0)
    between = costs[before] + np.clip(share, 0.0, 1.0) * (costs[i] - costs[before])
    # Exactly there where only rounding separates the curve from the target: a strategy's own last point is its budget.
    cost = np.where(targets >= curves[row, i] - _ROUNDING, costs[i], between)
    return np.where(reached.any(axis=1), cost, np.inf)


def first_reach(x: ArrayLike, y: ArrayLike, target: float) -> float:
    """Cost at which a seed's curve reaches a target; infinite where it never does.

    The curve is made non-decreasing first (``isotonic``), then read linearly between its points: the raw
    curve's first crossing would reward whichever curve is the noisier.

    >>> first_reach([0, 10, 20], [0.0, 0.5, 0.75], 0.625), first_reach([0, 10], [0.0, 0.5], 0.625)
    (15.0, inf)
    """
    xs, ys = _points(x, y)
    return float(cost_at(xs, isotonic(ys)[None], np.array([target]))[0]) if len(xs) else float("inf")


def cost_to_reach(curves: Sequence[tuple[ArrayLike, ArrayLike]], target: float, level: float = 0.95) -> Reach:
    """Cost at which each seed's curve of (cost, accuracy) reaches a target, and the mean over seeds.

    Where a seed ended before the target its cost is censored: the mean then takes its last cost for it, is a lower
    bound, and has no interval.
    """
    costs = np.array([first_reach(x, y, target) for x, y in curves], dtype=np.float64)
    reached = int(np.isfinite(costs).sum())
    if reached == len(costs):
        return Reach(target, costs, reached, mean_interval(costs, level).within(0.0))
    ends = [_points(x, y)[0] for x, y in curves]
    floor = [min(cost, xs[-1]) for cost, xs in zip(costs, ends, strict=True) if len(xs)]
    bound = float(np.mean(floor)) if floor else NAN
    return Reach(target, costs, reached, Interval(bound, NAN, NAN, len(floor)))


def _student_half_width(seeds: FloatP, level: float = 0.95) -> FloatP:
    """Half the width of Student's interval of each column; NaN with one row."""
    n = len(seeds)
    if n < 2:
        return np.full(seeds.shape[1], np.nan)
    # The quantile alone: scipy.stats, which wraps it, takes a second longer to import.
    factor = float(special.stdtrit(n - 1, 0.5 + level / 2.0)) / np.sqrt(n)
    half: FloatP = factor * seeds.std(axis=0, ddof=1)
    return half


def _points(x: ArrayLike, y: ArrayLike) -> tuple[FloatP, FloatP]:
    """Finite points of a curve by rising cost; of several at one cost the last counts."""
    xs, ys = _checks.float_array("x", x, ndim=1), _checks.float_array("y", y, ndim=1)
    if len(xs) != len(ys):
        raise ArgumentError(f"x and y must have one length, got {len(xs)} and {len(ys)}")
    known = np.flatnonzero(np.isfinite(xs) & np.isfinite(ys))
    order = known[np.argsort(xs[known], kind="stable")]
    xs, ys = xs[order], ys[order]
    last = np.append(np.diff(xs) > 0, True) if len(xs) else np.zeros(0, dtype=bool)
    return xs[last], ys[last]
