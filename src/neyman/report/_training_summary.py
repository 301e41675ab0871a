"""Figures of a training's report as JSON, for scripts and the tables of the benchmark."""

from __future__ import annotations

from typing import Any

from neyman.report._findings import Findings, StrategyFindings
from neyman.report._stats import Interval, Paired, Reach, known
from neyman.report._verdict import Verdict

VERSION = 1


def summarise(findings: Findings, verdict: Verdict) -> dict[str, Any]:
    """Return the findings as plain JSON types; numbers that are not finite become None."""
    return {
        "version": VERSION,
        "task": findings.runs[0].task,
        "reference": findings.reference,
        "winner": verdict.winner,
        "verdict": " ".join((verdict.headline, *verdict.sentences)),
        "compared_at": {cost: known(at) for cost, at in findings.common.items()},
        "target_accuracy": known(findings.target),
        "strategies": {s.strategy: _strategy(s) for s in findings.strategies},
        "duels": [
            {"one": one, "other": other, "level": findings.pairwise_level, "difference": _paired(paired)}
            for (one, other), paired in findings.pairwise.items()
        ],
        "notes": list(findings.notes),
    }


def _strategy(s: StrategyFindings) -> dict[str, Any]:
    c = s.calibration
    return {
        "seeds": list(s.seeds),
        "final_accuracy": _interval(s.final),
        "final_accuracy_by_seed": {
            cost: {str(seed): known(accuracy) for seed, accuracy in by_seed.items()}
            for cost, by_seed in s.at_common.items()
        },
        "against_reference": {cost: _paired(p) for cost, p in s.against.items()},
        "rollouts_to_target": _reach(s.reach),
        "effective_ratio": _interval(s.effective_ratio),
        "effective_groups_per_1000_rollouts": _interval(s.effective_per_1000),
        "rollouts": s.rollouts,
        "fates": {fate: {"rollouts": r, "tokens": t} for fate, (r, t) in s.fates.items()},
        "calibration": None
        if c is None
        else {
            **{name: known(getattr(c, name)) for name in ("log_loss", "log_loss_constant", "brier", "ece")},
            "groups": c.groups,
            "rollouts": int(c.trials.sum()),
        },
    }


def _interval(interval: Interval) -> dict[str, Any]:
    return {**interval.as_dict(), "seeds": interval.count}


def _paired(p: Paired | None) -> dict[str, Any] | None:
    if p is None:
        return None
    by_seed = {str(seed): float(d) for seed, d in zip(p.seeds, p.differences, strict=True)}
    return {**_interval(p.interval), "bootstrap": [known(bound) for bound in p.bootstrap], "by_seed": by_seed}


def _reach(r: Reach | None) -> dict[str, Any] | None:
    if r is None:
        return None
    return {
        **_interval(r.interval),
        "target": r.target,
        "reached": r.reached,
        "is_lower_bound": r.is_censored,
        "by_seed": [known(cost) for cost in r.costs],
    }
