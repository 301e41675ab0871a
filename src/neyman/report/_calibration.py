"""Calibration of a predictor: predicted against realised success rates, in bins of the prediction."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from neyman._checks import FloatP, IntP
from neyman.formulas import brier, ece, log_loss
from neyman.report._runs import Groups

BINS = 10
BIN_LABELS = tuple(f"{10 * i}-{10 * i + 10} %" for i in range(BINS))


@dataclass(frozen=True)
class CalibrationBins:
    """Predicted against realised success rate per bin of equal width, weighted by rollouts with an outcome."""

    labels: tuple[str, ...]
    predicted: FloatP  # mean prediction in the bin; NaN in an empty one
    realised: FloatP
    low: FloatP  # Wilson's 95 % bounds of the realised rate
    high: FloatP
    trials: IntP


@dataclass(frozen=True)
class Calibration(CalibrationBins):
    """The bins of a predictor and its scores per rollout."""

    groups: int
    brier: float
    log_loss: float
    log_loss_constant: float  # of always predicting the overall rate: the figure that a predictor must beat
    ece: float


def is_predicted(groups: Groups) -> bool:
    """True where a strategy predicts: a figure that never varies is a prior, written where there is no belief."""
    known = groups.predicted[~np.isnan(groups.predicted)]
    return len(known) > 0 and bool(known.min() < known.max())


def calibration(groups: Groups) -> Calibration | None:
    """Compare predictions, each made before its group's outcomes were known, with these outcomes.

    Bins of equal width; within one, sum n p / sum n against sum s / sum n. Scores are per rollout and from
    ``neyman.formulas``. None where nothing was predicted (``is_predicted``) or no group has an outcome.

    Guarantee: the bounds take rollouts as independent. Visits of one prompt are not, so they are somewhat narrow.
    Cost: O(groups).
    """
    known = ~np.isnan(groups.predicted) & (groups.trials > 0)
    if not known.any() or not is_predicted(groups):
        return None
    p, s, n = groups.predicted[known], groups.successes[known], groups.trials[known]
    in_bins = predicted_bin(p)
    trials, predicted, successes = (
        np.bincount(in_bins, weights=values, minlength=BINS) for values in (n, n * p, s)
    )
    rate = np.full(len(p), s.sum() / n.sum())
    return Calibration(
        **vars(calibration_bins(trials, predicted, successes)),
        groups=int(known.sum()),
        brier=brier(p, s, n),
        log_loss=log_loss(p, s, n),
        log_loss_constant=log_loss(rate, s, n),
        ece=ece(p, s, n),
    )


def calibration_bins(
    trials: FloatP | IntP, predicted: FloatP | IntP, successes: FloatP | IntP
) -> CalibrationBins:
    """Return each bin's rates, from [BINS] rollouts with an outcome, the sum of their predictions, and successes."""
    counts = trials.astype(np.int64)
    realised = ratio(successes, counts)
    low, high = wilson_bounds(realised, counts)
    return CalibrationBins(BIN_LABELS, ratio(predicted, counts), realised, low, high, counts)


def wilson_bounds(rate: FloatP, trials: IntP, z: float = 1.959963984540054) -> tuple[FloatP, FloatP]:
    """Wilson's bounds of a binomial rate, entry by entry; NaN without trials.

    Source: Wilson, 1927, Probable inference, the law of succession, and statistical inference.

    >>> low, high = wilson_bounds(np.array([0.5]), np.array([10]))
    >>> round(float(low[0]), 4), round(float(high[0]), 4)
    (0.2366, 0.7634)
    """
    # By hand: scipy.stats has it for one count at a time, and takes a second longer to import than the rest of SciPy.
    n = np.where(trials > 0, trials, np.nan).astype(np.float64)
    centre = (rate + z * z / (2.0 * n)) / (1.0 + z * z / n)
    half = z * np.sqrt(rate * (1.0 - rate) / n + z * z / (4.0 * n * n)) / (1.0 + z * z / n)
    return centre - half, centre + half


def predicted_bin(predicted: FloatP) -> IntP:
    """Bin of each prediction; the last one includes 1."""
    return np.minimum((predicted * BINS).astype(np.int64), BINS - 1)


def ratio(over: FloatP | IntP, under: FloatP | IntP) -> FloatP:
    """Quotient of two arrays, NaN where the divisor is not positive."""
    out: FloatP = np.full(len(under), np.nan)
    np.divide(over, under, out=out, where=under > 0)
    return out
