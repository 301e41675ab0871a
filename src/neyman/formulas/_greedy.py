"""Exact integer optimum of a sum of discretely concave values: the units of largest marginal gain.

Starting from the lower bounds, every unit of the budget goes where it gains most (Fox, 1966). Since each prompt's gains
fall with its count, the chosen units are the K largest of all, ties by prompt index. Small problems lay all gains out
and partition them; large ones bisect the gain at the margin, so that memory stays linear in the number of prompts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from neyman._checks import FloatP, IntP

#: gain(rows, n): the gain of prompt rows[i] from n[i] to n[i] + 1 rollouts, which falls with n.
Gain = Callable[[IntP, IntP], FloatP]
#: Keys of a threshold too large and one too small for the budget, each with the counts there.
Bracket = tuple[int, IntP, int, IntP]

MATRIX_CELLS: Final = 1 << 20  # gains laid out at once: 8 MiB
_SAMPLE: Final = 1 << 12  # prompts on which the margin is guessed
_FIRST_MARGIN: Final = 0.02  # relative half-width of the first bracket about that guess


def greedy_counts(
    gain: Gain, lower: IntP, upper: IntP, budget: int, *, matrix_cells: int = MATRIX_CELLS
) -> IntP:
    """Maximise the summed gain over counts within their bounds, ties by prompt index.

    Gains must not increase in n on [lower, upper), and the budget must lie between the sums of the bounds; neither is
    checked. At most ``matrix_cells`` gains are laid out at once.
    """
    units = budget - int(lower.sum())
    ceiling = np.minimum(upper, lower + units)
    if units == int((ceiling - lower).sum()):
        return ceiling
    if units == 0:
        return lower.copy()
    widest = int((ceiling - lower).max())
    if len(lower) * widest > matrix_cells:
        return threshold_counts(gain, lower, ceiling, units, enough=matrix_cells)
    rows, steps = np.divmod(np.arange(len(lower) * widest, dtype=np.int64), widest)
    n = np.minimum(lower[rows] + steps, np.maximum(ceiling[rows] - 1, lower[rows]))
    return partition_counts(gain(rows, n).reshape(len(lower), widest), lower, ceiling, units)


def partition_counts(gains: FloatP, lower: IntP, ceiling: IntP, units: int) -> IntP:
    """Take the ``units`` largest of all gains, given as (prompts, steps above lower)."""
    # Rounding may raise a later gain of a user's value by an ulp; a prompt's units are taken in order all the same.
    gains = np.minimum.accumulate(gains, axis=1)
    gains[np.arange(gains.shape[1]) >= (ceiling - lower)[:, None]] = -np.inf
    extra: IntP = _largest(gains.ravel(), units).reshape(gains.shape).sum(axis=1)
    return lower + extra


def _largest(gains: FloatP, units: int) -> NDArray[np.bool_]:
    """Mark the ``units`` largest entries; among equal ones the first."""
    if units == 0:
        return np.zeros(len(gains), dtype=bool)
    margin = np.partition(gains, len(gains) - units)[len(gains) - units]
    taken: NDArray[np.bool_] = gains > margin
    ties = np.flatnonzero(gains == margin)
    taken[ties[: units - int(taken.sum())]] = True
    return taken


def threshold_counts(
    gain: Gain, lower: IntP, ceiling: IntP, units: int, *, enough: int, sample: bool = True
) -> IntP:
    """Bisect the marginal gain until few units are in doubt, and settle those by partition.

    ``high`` holds the counts at a threshold so large that at most ``units`` are taken, ``low`` those at one so
    small that at least ``units`` are: high <= answer <= low for every prompt. With ``enough`` = 0 no call of
    ``gain`` has two counts of the same prompt, as values of all prompts at once need it.
    """
    above, high, below, low = _key(np.inf), lower, _key(-np.inf), ceiling
    if sample and len(lower) > _SAMPLE:
        above, high, below, low = _bracket(gain, lower, ceiling, units)
    enough = max(enough, len(lower)) if enough else 0
    while int((low - high).sum()) > enough and above - below > 1:
        middle = (above + below) // 2
        above, high, below, low = _narrow(gain, middle, (above, high, below, low), lower, units)
    missing, doubt = units - int((high - lower).sum()), low - high
    # Between neighbouring floats every unit in doubt has the same gain, and ties go by index.
    if above - below <= 1 or not missing:
        share: IntP = np.clip(missing - (np.cumsum(doubt) - doubt), 0, doubt)
        return high + share
    rows = np.repeat(np.arange(len(lower), dtype=np.int64), doubt)
    steps = np.arange(len(rows), dtype=np.int64) - np.repeat(np.cumsum(doubt) - doubt, doubt)
    taken = _largest(gain(rows, high[rows] + steps), missing)
    return high + np.bincount(rows[taken], minlength=len(lower))


def _narrow(gain: Gain, key: int, bracket: Bracket, lower: IntP, units: int) -> Bracket:
    """Move the upper or the lower end of the bracket to a threshold between them."""
    above, high, below, low = bracket
    counts = _reach(gain, _from_key(key), high, low)
    return (above, high, key, counts) if int((counts - lower).sum()) >= units else (key, counts, below, low)


def _bracket(gain: Gain, lower: IntP, ceiling: IntP, units: int) -> Bracket:
    """Guess the margin on a sample, and widen the guess until it brackets the budget."""
    above, below = _key(np.inf), _key(-np.inf)
    high, low = lower, ceiling
    picks = np.linspace(0, len(lower) - 1, _SAMPLE).astype(np.int64)
    part = int(units * (ceiling - lower)[picks].sum() / (ceiling - lower).sum())
    guess = _sample_margin(gain, picks, lower[picks], ceiling[picks], part)
    margin = _FIRST_MARGIN
    while margin < 1.0 and (low is ceiling or high is lower):
        for key in (_key(guess + margin * abs(guess)), _key(guess - margin * abs(guess))):
            if below < key < above:
                above, high, below, low = _narrow(gain, key, (above, high, below, low), lower, units)
        margin *= 4.0
    return above, high, below, low


def _sample_margin(gain: Gain, picks: IntP, lower: IntP, ceiling: IntP, units: int) -> float:
    """Estimate the gain at the margin from a sample of prompts and their share of the budget."""
    above, below = _key(np.inf), _key(-np.inf)
    high, low = lower, ceiling
    while above - below > 1 and (high < low).any():
        middle = (above + below) // 2
        sampled = (above, high, below, low)
        above, high, below, low = _narrow(lambda rows, n: gain(picks[rows], n), middle, sampled, lower, units)
    return _from_key(below)


def _reach(gain: Gain, threshold: float, low: IntP, high: IntP) -> IntP:
    """Return each prompt's largest count within [low, high] whose last unit gains at least ``threshold``.

    Gallops from ``low`` and bisects after the first failure: most counts lie near ``low``, so this takes fewer
    evaluations than bisecting the whole range. Settled prompts drop out.
    """
    reached, rows = low.copy(), np.flatnonzero(low < high)
    bottom, top, stride = low[rows], high[rows], 1
    while len(rows):
        probe = bottom + np.minimum(stride, (top - bottom + 1) // 2)
        good = gain(rows, probe - 1) >= threshold
        bottom = np.where(good, probe, bottom)
        top = np.where(good, top, probe - 1)
        open_ = bottom < top
        reached[rows[~open_]] = bottom[~open_]
        rows, bottom, top, stride = rows[open_], bottom[open_], top[open_], stride * 2
    return reached


def _key(value: float) -> int:
    """Map a float to an integer of the same order, so that bisection ends at neighbouring floats."""
    # IEEE 754: the bits of non-negative floats increase as integers, those of negative ones decrease.
    bits = int(np.float64(value).view(np.int64))
    return bits if bits >= 0 else -(bits & 0x7FFFFFFFFFFFFFFF)


def _from_key(key: int) -> float:
    magnitude = float(np.int64(abs(key)).view(np.float64))
    return magnitude if key >= 0 else -magnitude
