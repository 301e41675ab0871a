"""Groups of a strategy's runs: where rollouts went over difficulty, over prompts and over reasons."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from neyman._checks import FloatP, IntP
from neyman.report._calibration import BIN_LABELS, BINS, is_predicted, predicted_bin, ratio
from neyman.report._runs import Groups, Run

_PREDICTED_PLACES = (np.arange(BINS) + 0.5) / BINS
_REALISED_LABELS = ("0 %", "0-20 %", "20-40 %", "40-60 %", "60-80 %", "80-100 %", "100 %")
_REALISED_PLACES = np.array([0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0])


@dataclass(frozen=True)
class Allocation:
    """Rollouts over bins of a success rate; arrays have one entry per bin."""

    labels: tuple[str, ...]
    place: FloatP  # where the bin is drawn, in [0, 1]
    groups: IntP
    rollouts: IntP

    @property
    def mean(self) -> FloatP:
        """Rollouts per group; NaN in an empty bin."""
        return ratio(self.rollouts, self.groups)

    @property
    def share(self) -> FloatP:
        """Share of all rollouts."""
        return ratio(self.rollouts, np.full_like(self.rollouts, self.rollouts.sum()))


@dataclass
class PromptSpend:
    """Rollouts that a prompt got over a strategy's seeds, and their outcomes."""

    prompt_id: str | int
    visits: int = 0
    rollouts: int = 0
    successes: int = 0
    trials: int = 0
    reason: str = ""  # of the last visit


def join_groups(runs: Sequence[Run]) -> Groups:
    """Return the groups of several runs as one."""

    def join(name: str) -> Any:
        parts = [getattr(run.groups, name) for run in runs]
        return np.concatenate(parts) if isinstance(parts[0], np.ndarray) else tuple(itertools.chain(*parts))

    return Groups(**{field.name: join(field.name) for field in fields(Groups)})


def allocation_by_predicted(groups: Groups) -> Allocation | None:
    """Rollouts over the predicted success rate; None where nothing was predicted (``is_predicted``)."""
    if not is_predicted(groups):
        return None
    known = np.flatnonzero(~np.isnan(groups.predicted))
    bins = predicted_bin(groups.predicted[known])
    return _allocation(bins, groups.rollouts[known], BIN_LABELS, _PREDICTED_PLACES)


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
    return _allocation(bins, groups.rollouts[known], _REALISED_LABELS, _REALISED_PLACES)


def _allocation(bins: IntP, rollouts: IntP, labels: tuple[str, ...], place: FloatP) -> Allocation:
    groups = np.bincount(bins, minlength=len(labels))
    total = np.bincount(bins, weights=rollouts, minlength=len(labels))
    return Allocation(labels, place, groups.astype(np.int64), total.astype(np.int64))


def reasons(groups: Groups, top: int = 12) -> list[tuple[str, str, int, int]]:
    """Return (reason, outcome, groups, rollouts), the most rollouts first, at most ``top`` of them."""
    spent: Counter[tuple[str, str]] = Counter()
    count = Counter(zip(groups.reason, groups.outcome, strict=True))
    for reason, outcome, rollouts in zip(groups.reason, groups.outcome, groups.rollouts, strict=True):
        spent[reason, outcome] += int(rollouts)
    order = sorted(spent, key=lambda key: (-spent[key], key))
    return [(*key, count[key], spent[key]) for key in order[:top]]


def costliest_prompts(groups: Groups, top: int = 8) -> list[PromptSpend]:
    """Return the prompts that got the most rollouts, ties by first appearance."""
    spends: dict[str | int, PromptSpend] = {}
    rows = zip(groups.prompt_id, groups.rollouts, groups.successes, groups.trials, groups.reason, strict=True)
    for prompt_id, rollouts, successes, trials, reason in rows:
        spend = spends.setdefault(prompt_id, PromptSpend(prompt_id))
        spend.visits += 1
        spend.rollouts += int(rollouts)
        spend.successes += int(successes)
        spend.trials += int(trials)
        spend.reason = reason
    return sorted(spends.values(), key=lambda spend: -spend.rollouts)[:top]
