"""Figures of a training's report, computed once; the page and ``summary.json`` are two views of them."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from neyman.errors import ArgumentError
from neyman.report._calibration import Calibration, calibration
from neyman.report._groups import (
    Allocation,
    PromptSpend,
    allocation_by_predicted,
    allocation_by_realised,
    costliest_prompts,
    join_groups,
    reasons,
)
from neyman.report._runs import Run
from neyman.report._stats import (
    NAN,
    Curve,
    Interval,
    Paired,
    Reach,
    accuracy_curve,
    cost_to_reach,
    mean_interval,
    paired_difference,
    value_at,
)
from neyman.step.ledger import Fate

COSTS = ("rollouts", "tokens", "seconds")
UNSETTLED = "unsettled"


@dataclass(frozen=True)
class StrategyFindings:
    """Figures of one strategy over its seeds."""

    strategy: str
    runs: tuple[Run, ...]
    final: Interval  # accuracy where every run has spent the common number of rollouts
    at_common: Mapping[str, dict[int, float]]  # cost -> seed -> accuracy at the common cost
    against: Mapping[str, Paired | None]  # cost -> difference to the reference
    reach: Reach | None  # rollouts to the reference's mean final accuracy
    curves: Mapping[str, Curve]  # cost -> accuracy curve
    effective_ratio: Interval
    effective_per_1000: Interval  # mixed groups per 1000 rollouts requested
    fates: Mapping[str, tuple[int, int]]  # fate -> (rollouts, tokens)
    rollouts: int
    calibration: Calibration | None
    allocations: Mapping[str, Allocation | None]  # over "predicted" and "realised" success rates
    costliest_prompts: Sequence[PromptSpend]
    reasons: Sequence[tuple[str, str, int, int]]  # reason, outcome, groups, rollouts

    @property
    def seeds(self) -> tuple[int, ...]:
        """Seeds of the runs."""
        return tuple(run.seed for run in self.runs)

    @property
    def fate_shares(self) -> list[tuple[str, float]]:
        """Each fate's share of the rollouts that have one."""
        total = sum(rollouts for rollouts, _ in self.fates.values())
        return [(fate, rollouts / total) for fate, (rollouts, _) in self.fates.items() if rollouts]


@dataclass(frozen=True)
class Findings:
    """Figures of all strategies, and the differences between them."""

    main: str | None  # the strategy that the runs' settings put to the test; None where they name none
    reference: str  # the strategy that others are compared with
    strategies: tuple[StrategyFindings, ...]  # the reference first, then by name
    common: Mapping[str, float]  # cost -> the smallest total over all runs; NaN where a run has none
    target: float  # the reference's mean final accuracy; NaN without a reference
    pairwise: Mapping[tuple[str, str], Paired | None]  # differences in final accuracy at equal rollouts
    pairwise_level: float  # at which all their intervals hold together (Bonferroni)
    notes: tuple[str, ...]  # limits of the comparison

    @property
    def runs(self) -> list[Run]:
        """Every run, in the order of the strategies."""
        return [run for s in self.strategies for run in s.runs]

    @property
    def has_reference(self) -> bool:
        """True where the reference is among the strategies."""
        return any(s.strategy == self.reference for s in self.strategies)

    def find(self, strategy: str) -> StrategyFindings:
        """Return one strategy's findings."""
        return next(s for s in self.strategies if s.strategy == strategy)


def _roles(runs: Sequence[Run]) -> tuple[str | None, str]:
    """Strategy that the runs' settings put to the test, and its first baseline; else None and "uniform"."""
    stated = {
        (str(run.config["strategy"].get("name")), *map(str, run.config["baselines"]))
        for run in runs
        if isinstance(run.config.get("strategy"), dict) and isinstance(run.config.get("baselines"), list)
    }
    present = {run.strategy for run in runs}
    if len(stated) != 1:
        return None, "uniform"
    main, *others = stated.pop()
    baselines = [name for name in others if name != main and name in present]
    return (main, baselines[0]) if main in present and baselines else (None, "uniform")


def analyse(runs: Sequence[Run], reference: str | None = None) -> Findings:
    """Compute the figures of a training's report.

    The reference may be absent; None takes the first baseline of the runs' settings, else "uniform".

    Raises:
        ArgumentError: no runs, several tasks, or a strategy's seed twice.

    Cost: O(runs x (evals + groups)).
    """
    _check_comparable(runs)
    main, baseline = _roles(runs)
    reference = baseline if reference is None else reference
    main = None if main == reference else main
    names = sorted({run.strategy for run in runs}, key=lambda name: (name != reference, name))
    by_name = {name: sorted((r for r in runs if r.strategy == name), key=lambda r: r.seed) for name in names}
    common = {cost: _smallest_total(runs, cost) for cost in COSTS}
    at_common = {name: _at_common(by_name[name], common) for name in names}
    base = at_common.get(reference, {})
    target = mean_interval(list(base.get("rollouts", {}).values())).mean
    rng = np.random.default_rng(0)  # a fixed seed, so that the same runs give the same page
    strategies = []
    for name in names:
        costs = COSTS if name != reference else ()
        against = {cost: paired_difference(at_common[name][cost], base.get(cost, {}), rng) for cost in costs}
        strategies.append(_strategy_findings(name, by_name[name], at_common[name], against, target))
    pairs = list(itertools.combinations(names, 2))
    level = 1.0 - 0.05 / max(len(pairs), 1)
    pairwise = {
        (one, other): paired_difference(
            at_common[one]["rollouts"], at_common[other]["rollouts"], rng, level=level
        )
        for one, other in pairs
    }
    notes = tuple(_notes(runs, common))
    return Findings(main, reference, tuple(strategies), common, target, pairwise, level, notes)


def _check_comparable(runs: Sequence[Run]) -> None:
    if not runs:
        raise ArgumentError("runs must hold at least one run, got none; train one first")
    tasks = sorted({run.task for run in runs})
    if len(tasks) > 1:
        raise ArgumentError(
            f"runs must share one task, got {', '.join(map(repr, tasks))}; write one report per task"
        )
    for name, count in Counter(run.name for run in runs).items():
        if count > 1:
            raise ArgumentError(f"runs must hold each strategy and seed once, got {name} twice")


def costs_of(run: Run, cost: str) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Cumulative cost of a run at each evaluation."""
    column = {"rollouts": run.eval_rollouts, "tokens": run.eval_tokens, "seconds": run.eval_seconds}[cost]
    return column.astype(np.float64)


def _smallest_total(runs: Sequence[Run], cost: str) -> float:
    totals = [costs_of(run, cost) for run in runs]
    if any(len(t) == 0 or np.isnan(t[-1]) for t in totals):
        return NAN
    smallest = min(float(t[-1]) for t in totals)
    return smallest if smallest > 0 else NAN


def _at_common(runs: Sequence[Run], common: Mapping[str, float]) -> dict[str, dict[int, float]]:
    # Without a common cost there is no accuracy to compare: an empty entry, not one of NaN.
    return {
        cost: {run.seed: value_at(costs_of(run, cost), run.accuracy, at) for run in runs if not np.isnan(at)}
        for cost, at in common.items()
    }


def _strategy_findings(
    name: str,
    runs: Sequence[Run],
    at_common: Mapping[str, dict[int, float]],
    against: Mapping[str, Paired | None],
    target: float,
) -> StrategyFindings:
    groups = join_groups(runs)
    points = [(costs_of(run, "rollouts"), run.accuracy) for run in runs]
    return StrategyFindings(
        strategy=name,
        runs=tuple(runs),
        final=mean_interval(list(at_common["rollouts"].values())).within(0.0, 1.0),
        at_common=at_common,
        against=against,
        reach=cost_to_reach(points, target) if target > 0.0 else None,
        curves={c: accuracy_curve([(costs_of(run, c), run.accuracy) for run in runs]) for c in COSTS},
        effective_ratio=mean_interval([_effective_ratio(run) for run in runs]).within(0.0, 1.0),
        effective_per_1000=mean_interval([_effective_per_1000(run) for run in runs]).within(0.0),
        fates=_fates_of(runs),
        rollouts=sum(int(run.rollouts[-1]) for run in runs if len(run.rollouts)),
        calibration=calibration(groups),
        allocations={
            "predicted": allocation_by_predicted(groups),
            "realised": allocation_by_realised(groups),
        },
        costliest_prompts=costliest_prompts(groups),
        reasons=reasons(groups),
    )


def _fates_of(runs: Sequence[Run]) -> dict[str, tuple[int, int]]:
    """Sum fate -> (rollouts, tokens) over runs, in the ledger's order.

    ``unsettled`` are rollouts requested that have no fate yet: in flight or held by open groups.
    """
    known = [fate.name.lower() for fate in Fate]
    others = sorted({fate for run in runs for fate in run.account} - set(known))
    totals = {}
    for fate in known + others:
        pairs = [run.account.get(fate, (0, 0)) for run in runs]
        totals[fate] = sum(r for r, _ in pairs), sum(t for _, t in pairs)
    held = sum(
        max(int(run.rollouts[-1]) - sum(r for r, _ in run.account.values()), 0)
        for run in runs
        if len(run.rollouts)
    )
    return {fate: pair for fate, pair in (totals | {UNSETTLED: (held, 0)}).items() if any(pair)}


def _effective_ratio(run: Run) -> float:
    mixed, groups = run.metrics.get("effective_groups"), run.metrics.get("groups")
    if mixed is not None and groups is not None and np.nansum(groups) > 0:
        return float(np.nansum(mixed) / np.nansum(groups))
    ratio = run.metrics.get("effective_ratio", np.zeros(0))
    return float(np.nanmean(ratio)) if np.isfinite(ratio).any() else NAN


def _effective_per_1000(run: Run) -> float:
    mixed = run.metrics.get("effective_groups")
    if mixed is None or not len(run.rollouts) or not run.rollouts[-1]:
        return NAN
    return float(1000.0 * np.nansum(mixed) / run.rollouts[-1])


def _notes(runs: Sequence[Run], common: Mapping[str, float]) -> list[str]:
    notes = [f"{run.name}: {note}" for run in runs for note in run.notes]
    notes += [f"{run.name}: no evaluation was written" for run in runs if not len(run.accuracy)]
    budgets = sorted({run.budget for run in runs})
    if len(budgets) > 1:
        notes.append(f"budgets per step differ: {', '.join(map(str, budgets))} rollouts")
    if len({run.estimator for run in runs}) > 1:
        notes.append(f"estimators differ: {', '.join(sorted({run.estimator for run in runs}))}")
    ends = [costs_of(run, "rollouts")[-1] for run in runs if len(run.accuracy)]
    if len(ends) == len(runs) and common["rollouts"] < 0.9 * max(ends):
        shortest = runs[int(np.argmin(ends))]
        notes.append(
            f"runs differ in length: everything is compared after {common['rollouts']:,.0f} rollouts, "
            f"where {shortest.name} ends; the longest goes to {max(ends):,.0f}"
        )
    for run in runs:
        settled = sum(r for r, _ in run.account.values())
        if len(run.rollouts) and run.account and settled > run.rollouts[-1]:
            notes.append(
                f"{run.name}: the account does not balance, {settled:,} rollouts have a fate and "
                f"{int(run.rollouts[-1]):,} were requested"
            )
    return notes
