"""What groups say: where rollouts went over difficulty, and whether the predictor was right."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from neyman._checks import FloatP, IntP
from neyman.formulas import brier, ece, log_loss
from neyman.report._runs import Groups, Run

PREDICTED_EDGES = np.linspace(0.0, 1.0, 11)
REALISED_LABELS = ("0 %", "0-20 %", "20-40 %", "40-60 %", "60-80 %", "80-100 %", "100 %")


@dataclass(frozen=True)
class Allocation:
    """Rollouts over bins of a success rate; arrays have one entry per bin."""

    labels: tuple[str, ...]
    place: FloatP  # where the bin is drawn, in [0, 1]
    groups: IntP
    rollouts: IntP
    successes: IntP
    trials: IntP

    @property
    def mean(self) -> FloatP:
        """Rollouts per group; NaN in an empty bin."""
        return _ratio(self.rollouts, self.groups)

    @property
    def share(self) -> FloatP:
        """Share of all rollouts."""
        return _ratio(self.rollouts, np.full_like(self.rollouts, self.rollouts.sum()))


@dataclass(frozen=True)
class Calibration:
    """Predicted against realised success, weighted by rollouts with an outcome."""

    labels: tuple[str, ...]
    predicted: FloatP  # mean prediction in the bin; NaN in an empty one
    realised: FloatP
    low: FloatP  # Wilson's 95 % bounds of the realised rate
    high: FloatP
    trials: IntP
    groups: int
    brier: float
    log_loss: float
    log_loss_constant: float  # of always predicting the overall rate: what a predictor must beat
    ece: float


@dataclass(frozen=True)
class PromptSpend:
    """A prompt and what it got, over a strategy's seeds."""

    prompt_id: str | int
    visits: int
    rollouts: int
    successes: int
    trials: int
    reason: str  # of the last visit


def join_groups(runs: Sequence[Run]) -> Groups:
    """Return the groups of several runs as one."""
    parts = [run.groups for run in runs]

    def floats(name: str) -> FloatP:
        return np.concatenate([getattr(p, name) for p in parts]) if parts else np.zeros(0)

    def whole(name: str) -> IntP:
        return floats(name).astype(np.int64)

    return Groups(
        step=whole("step"),
        prompt_id=tuple(i for p in parts for i in p.prompt_id),
        predicted=floats("predicted"),
        uncertainty=floats("uncertainty"),
        rollouts=whole("rollouts"),
        successes=whole("successes"),
        trials=whole("trials"),
        outcome=tuple(o for p in parts for o in p.outcome),
        reason=tuple(r for p in parts for r in p.reason),
    )


def is_predicted(groups: Groups) -> bool:
    """Whether a strategy predicts: a figure that never varies is a prior, written where there is no belief."""
    known = groups.predicted[~np.isnan(groups.predicted)]
    return len(known) > 0 and bool(known.min() < known.max())


def allocation_by_predicted(groups: Groups) -> Allocation | None:
    """Rollouts over the success rate that was predicted; None where nothing was predicted (``is_predicted``)."""
    if not is_predicted(groups):
        return None
    known = np.flatnonzero(~np.isnan(groups.predicted))
    bins = _predicted_bin(groups.predicted[known])
    place = (PREDICTED_EDGES[:-1] + PREDICTED_EDGES[1:]) / 2.0
    return _allocation(groups, known, bins, _predicted_labels(), place)


def allocation_by_realised(groups: Groups) -> Allocation | None:
    """Rollouts over each group's own success rate, all-failed and all-solved groups in bins of their own.

    A group's own rate is noisy: a small group lands on few values, so the ends fill up by chance alone.
    """
    known = np.flatnonzero(groups.trials > 0)
    if not len(known):
        return None
    s, n = groups.successes[known], groups.trials[known]
    inner = 1 + np.minimum(s * 5 // n, 4)
    bins = np.where(s == 0, 0, np.where(s == n, 6, inner))
    place = np.array([0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0])
    return _allocation(groups, known, bins, REALISED_LABELS, place)


def calibration(groups: Groups) -> Calibration | None:
    """How right the predictor was, each prediction made before its group's outcomes were known.

    Bins of equal width; within one, sum n p / sum n against sum s / sum n. Scores are per rollout and from
    ``neyman.formulas``.

    Args:
        groups: of any runs.

    Returns:
        The calibration; None where nothing was predicted (``is_predicted``) or nothing came out.

    Guarantee:
        The bounds take rollouts as independent. Visits of one prompt are not, so they are somewhat narrow.

    Cost:
        O(groups).

    Source:
        Wilson, 1927, for the bounds.
    """
    known = ~np.isnan(groups.predicted) & (groups.trials > 0)
    if not known.any() or not is_predicted(groups):
        return None
    p, s, n = groups.predicted[known], groups.successes[known], groups.trials[known]
    bins = _predicted_bin(p)
    trials = np.bincount(bins, weights=n, minlength=10).astype(np.int64)
    predicted = _ratio(np.bincount(bins, weights=n * p, minlength=10), trials)
    realised = _ratio(np.bincount(bins, weights=s, minlength=10), trials)
    low, high = wilson_bounds(realised, trials)
    rate = np.full(len(p), s.sum() / n.sum())
    return Calibration(
        labels=_predicted_labels(),
        predicted=predicted,
        realised=realised,
        low=low,
        high=high,
        trials=trials,
        groups=int(known.sum()),
        brier=brier(p, s, n),
        log_loss=log_loss(p, s, n),
        log_loss_constant=log_loss(rate, s, n),
        ece=ece(p, s, n),
    )


def wilson_bounds(rate: FloatP, trials: IntP, z: float = 1.959963984540054) -> tuple[FloatP, FloatP]:
    """Wilson's bounds of a binomial rate, entry by entry; NaN without trials.

    >>> low, high = wilson_bounds(np.array([0.5]), np.array([10]))
    >>> round(float(low[0]), 4), round(float(high[0]), 4)
    (0.2366, 0.7634)
    """
    n = np.where(trials > 0, trials, np.nan).astype(np.float64)
    centre = (rate + z * z / (2.0 * n)) / (1.0 + z * z / n)
    half = z * np.sqrt(rate * (1.0 - rate) / n + z * z / (4.0 * n * n)) / (1.0 + z * z / n)
    return centre - half, centre + half


def reasons(groups: Groups, top: int = 12) -> list[tuple[str, str, int, int]]:
    """Return (reason, outcome, groups, rollouts), the most rollouts first, at most ``top`` of them."""
    spent: Counter[tuple[str, str]] = Counter()
    count: Counter[tuple[str, str]] = Counter()
    for reason, outcome, rollouts in zip(groups.reason, groups.outcome, groups.rollouts, strict=True):
        spent[reason, outcome] += int(rollouts)
        count[reason, outcome] += 1
    order = sorted(spent, key=lambda key: (-spent[key], key))
    return [(*key, count[key], spent[key]) for key in order[:top]]


def costliest_prompts(groups: Groups, top: int = 8) -> list[PromptSpend]:
    """Return the prompts that got the most rollouts, ties by first appearance."""
    totals: dict[str | int, list[int]] = {}
    last: dict[str | int, str] = {}
    rows = zip(groups.prompt_id, groups.rollouts, groups.successes, groups.trials, groups.reason, strict=True)
    for prompt_id, rollouts, successes, trials, reason in rows:
        total = totals.setdefault(prompt_id, [0, 0, 0, 0])
        for i, amount in enumerate((1, int(rollouts), int(successes), int(trials))):
            total[i] += amount
        last[prompt_id] = reason
    ranked = sorted(totals, key=lambda i: -totals[i][1])[:top]
    spends = []
    for prompt_id in ranked:
        visits, rollouts, successes, trials = totals[prompt_id]
        spends.append(PromptSpend(prompt_id, visits, rollouts, successes, trials, last[prompt_id]))
    return spends


def _predicted_bin(predicted: FloatP) -> IntP:
    return np.minimum((predicted * 10).astype(np.int64), 9)


def _predicted_labels() -> tuple[str, ...]:
    return tuple(f"{10 * i}-{10 * i + 10} %" for i in range(10))


def _allocation(
    groups: Groups, known: IntP, bins: IntP, labels: tuple[str, ...], place: FloatP
) -> Allocation:
    def total(values: IntP) -> IntP:
        return np.bincount(bins, weights=values[known], minlength=len(labels)).astype(np.int64)

    return Allocation(
        labels=labels,
        place=place,
        groups=np.bincount(bins, minlength=len(labels)).astype(np.int64),
        rollouts=total(groups.rollouts),
        successes=total(groups.successes),
        trials=total(groups.trials),
    )


def _ratio(over: FloatP | IntP, under: FloatP | IntP) -> FloatP:
    out: FloatP = np.full(len(under), np.nan)
    np.divide(over, under, out=out, where=under > 0)
    return out
