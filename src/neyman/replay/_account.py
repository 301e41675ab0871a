"""The account of one replayed run: the worth of its groups, and their cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, final

import numpy as np

from neyman import formulas
from neyman._checks import FloatP
from neyman.replay._clock import Clock
from neyman.replay._draws import Draws
from neyman.replay._lost import expected_rest
from neyman.replay._trace import Trace
from neyman.step.batch import Batch
from neyman.step.messages import GroupReport

# From this share of trained groups on, the full size is the strategy's intention.
_FIXED = 0.95
_SERIES = ("passes", "rollouts", "groups", "effective", "full", "rounds")


@final
class Account:
    """Gathers the steps of one run, with full groups of ``group_size``, and turns them into figures."""

    def __init__(self, trace: Trace, draws: Draws, *, group_size: int) -> None:
        self._trace, self._draws, self._k = trace, draws, group_size
        self._spread = trace.spread.tolist()
        self._openings: dict[int, list[float]] = {}
        self._series: dict[str, list[float]] = {name: [] for name in _SERIES}
        self._kept = self._lost = 0.0
        self._given_up = self._missed = 0.0
        self._full_rollouts = self._mixed_rollouts = 0
        self._opened = 0
        self._noise: list[float] = []
        self._predicted: list[float] = []
        self._successes: list[int] = []
        self._trials: list[int] = []
        self._is_first: list[bool] = []
        self._sizes: dict[int, int] = {}
        self.stop_reasons: dict[str, int] = {}

    def close_step(
        self,
        batch: Batch,
        reports: Sequence[GroupReport],
        *,
        opened: Mapping[int, float],
        visits: Mapping[int, int],
        clock: Clock,
        rounds: int,
    ) -> None:
        """Take in a closed step: openings by their times in passes, and the visit that each prompt was drawn from."""
        for report in reports:
            prompt = int(report.prompt_id)
            if report.trials:
                self._predicted.append(report.predicted)
                self._successes.append(report.successes)
                self._trials.append(report.trials)
                self._is_first.append(prompt not in self._openings)
            self._signal(report, visits.get(prompt))
        for prompt, time in opened.items():
            self._openings.setdefault(prompt, []).append(time)
        self._opened += len(opened)
        self._trained(batch, visits)
        asked = clock.rollouts - sum(self._series["rollouts"])
        for name, value in (("passes", clock.passes), ("rollouts", asked), ("rounds", rounds)):
            self._series[name].append(float(value))
        reason = batch.stop_reason.name.lower()
        self.stop_reasons[reason] = self.stop_reasons.get(reason, 0) + 1

    def _signal(self, report: GroupReport, visit: int | None) -> None:
        """Weigh the signal of groups that a verdict completed, against that of groups that one abandoned."""
        s, n, k = report.successes, report.trials, self._k
        if report.outcome in ("trained", "surplus", "carried") and n >= 2:
            self._kept += s * (n - s) / (n * (n - 1)) * k * (k - 1)
        elif report.outcome == "abandoned" and visit is not None:
            rate = float(self._trace.successes[visit] / self._trace.trials[visit])
            signal, mixed = expected_rest(s, min(n, k), k, self._draws.left(visit), rate)
            self._lost += signal
            self._missed += mixed
            self._given_up += 1

    def _trained(self, batch: Batch, visits: Mapping[int, int]) -> None:
        """Count the groups of a batch, and sum the variance that their sizes leave."""
        rows = np.flatnonzero(batch.counted)
        groups = batch.groups[rows]
        sizes = np.bincount(groups) if len(groups) else np.zeros(0, dtype=np.int64)
        wins = np.bincount(groups, weights=batch.success[rows]) if len(groups) else np.zeros(0)
        mixed = (wins > 0) & (wins < sizes)
        full = mixed & (sizes >= self._k)
        self._full_rollouts += int(sizes[full].sum())
        self._mixed_rollouts += int(sizes[mixed].sum())
        for size, count in zip(*np.unique(sizes[sizes > 0], return_counts=True), strict=True):
            self._sizes[int(size)] = self._sizes.get(int(size), 0) + int(count)
        prompt_of = dict(zip(groups.tolist(), (int(batch.prompt_ids[row]) for row in rows), strict=True))
        noise = 0.0
        for group, size in enumerate(sizes.tolist()):
            if size and (visit := visits.get(prompt_of[group])) is not None:
                noise += self._spread[visit] / size
        self._noise.append(noise)
        for name, count in (("groups", (sizes > 0).sum()), ("effective", mixed.sum()), ("full", full.sum())):
            self._series[name].append(float(count))

    def figures(self, clock: Clock, fates: Mapping[str, Mapping[str, int]]) -> dict[str, Any]:
        """Return the run's figures, JSON-safe; None is unknown or without meaning."""
        total = {name: float(np.sum(values)) for name, values in self._series.items()}
        steps = len(self._noise)
        gap, staleness = self._revisits(clock.passes)
        signal = self._kept + self._lost
        sizes = np.array(sorted(self._sizes), dtype=np.int64)
        counts = np.array([self._sizes[int(size)] for size in sizes], dtype=np.int64)
        is_fixed = self._sizes.get(self._k, 0) >= _FIXED * counts.sum()
        return {
            "effective_ratio": _ratio(total["effective"], total["groups"]),
            "effective_of_opened": _ratio(total["effective"], self._opened),
            "effective_groups_per_1000_rollouts": _ratio(1000.0 * total["effective"], clock.rollouts),
            "effective_groups_per_million_tokens": (
                _ratio(1e6 * total["effective"], clock.tokens) if self._draws.has_tokens else None
            ),
            "waste_factor_full": _ratio(clock.rollouts, self._full_rollouts),
            "waste_factor_any": _ratio(clock.rollouts, self._mixed_rollouts),
            "trains_full_groups": bool(counts.sum()) and bool(is_fixed),
            "signal_kept": _ratio(self._kept, signal),
            "miss_rate": _ratio(self._missed, self._given_up),
            "sum_v_over_n": _ratio(sum(self._noise), steps),
            "coverage": len(self._openings) / self._trace.prompts,
            "max_revisit_gap": gap,
            "staleness": staleness,
            "rounds_per_step": _ratio(total["rounds"], steps),
            "group_size_mean": _ratio(float((sizes * counts).sum()), float(counts.sum())),
            "rollouts": float(clock.rollouts),
            "tokens": float(clock.tokens) if self._draws.has_tokens else None,
            "steps": float(steps),
            "passes": clock.passes,
            "beyond_share": _ratio(self._draws.beyond, clock.rollouts),
            **self._calibration(),
            "fates": {fate: both["rollouts"] for fate, both in fates.items() if both["rollouts"]},
            "group_sizes": {str(size): int(count) for size, count in zip(sizes, counts, strict=True)},
            "stop_reasons": self.stop_reasons,
            "series": self._series,
            "calibration": self._bins(),
        }

    def _revisits(self, end: float) -> tuple[float, float]:
        """Return the longest time without an opening of a prompt, and the mean time since a prompt's last one.

        Both count from the start to the first opening, and from the last to the end; a prompt that was never
        opened counts the whole run. The mean is over time and prompts.
        """
        unopened = self._trace.prompts - len(self._openings)
        longest, squares = (end if unopened else 0.0), unopened * end**2
        for times in self._openings.values():
            gaps = np.diff([0.0, *times, end])
            longest = max(longest, float(gaps.max()))
            squares += float(np.square(gaps).sum())
        return longest, squares / (2.0 * end * self._trace.prompts) if end else 0.0

    def _calibration(self) -> dict[str, float | None]:
        """Return how well the belief predicted the outcomes of each opening, before it."""
        predicted: FloatP = np.clip(np.array(self._predicted, dtype=np.float64), 0.0, 1.0)
        s, n = np.array(self._successes, dtype=np.int64), np.array(self._trials, dtype=np.int64)
        first = np.array(self._is_first, dtype=bool)
        scores: dict[str, float | None] = {}
        for name, score in (
            ("log_loss", formulas.log_loss),
            ("brier", formulas.brier),
            ("ece", formulas.ece),
        ):
            scores[name] = score(predicted, s, n) if len(n) else None
        for name, some in (("log_loss_first", first), ("log_loss_later", ~first)):
            scores[name] = formulas.log_loss(predicted[some], s[some], n[some]) if some.any() else None
        return scores

    def _bins(self) -> list[list[float]]:
        """Return, for ten equal bins of the prediction, (rollouts, sum of predictions, successes)."""
        p, n = np.array(self._predicted, dtype=np.float64), np.array(self._trials, dtype=np.float64)
        place = np.clip((10.0 * p).astype(np.int64), 0, 9)
        weights = (n, n * p, np.array(self._successes, dtype=np.float64))
        table = np.column_stack([np.bincount(place, weights=w, minlength=10) for w in weights])
        return [[float(value) for value in row] for row in table]


def _ratio(part: float, whole: float) -> float | None:
    return float(part / whole) if whole else None
