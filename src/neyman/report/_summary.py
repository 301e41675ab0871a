"""The findings as JSON: what scripts and the benchmark's tables read."""

from __future__ import annotations

import math
from typing import Any

from neyman.report._findings import Findings, StrategyFindings
from neyman.report._stats import Interval, Paired, Reach
from neyman.report._verdict import Verdict

VERSION = 1


def summarise(findings: Findings, spoken: Verdict) -> dict[str, object]:
    """Return the findings as plain JSON types; numbers that are not finite become None."""
    figures = {
        "version": VERSION,
        "task": findings.runs[0].task,
        "reference": findings.reference,
        "winner": spoken.winner,
        "verdict": " ".join((spoken.headline, *spoken.sentences)),
        "compared_at": dict(findings.common),
        "target_accuracy": findings.target,
        "strategies": {s.strategy: _strategy(s) for s in findings.strategies},
        "duels": [
            {"one": one, "other": other, "level": findings.duel_level, "difference": _paired(paired)}
            for (one, other), paired in findings.duels.items()
        ],
        "notes": list(findings.notes),
    }
    safe = _safe(figures)
    assert isinstance(safe, dict)
    return safe


def _strategy(s: StrategyFindings) -> dict[str, Any]:
    c = s.calibration
    return {
        "seeds": list(s.seeds),
        "final_accuracy": _interval(s.final),
        "final_accuracy_by_seed": {
            cost: {str(k): v for k, v in by.items()} for cost, by in s.at_common.items()
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
            "log_loss": c.log_loss,
            "log_loss_constant": c.log_loss_constant,
            "brier": c.brier,
            "ece": c.ece,
            "groups": c.groups,
            "rollouts": int(c.trials.sum()),
        },
    }


def _interval(i: Interval) -> dict[str, Any]:
    known = i.is_known
    return {
        "mean": i.mean,
        "low": i.low if known else None,
        "high": i.high if known else None,
        "seeds": i.count,
    }


def _paired(p: Paired | None) -> dict[str, Any] | None:
    if p is None:
        return None
    by_seed = {str(seed): float(d) for seed, d in zip(p.seeds, p.differences, strict=True)}
    return {**_interval(p.interval), "bootstrap": list(p.bootstrap), "by_seed": by_seed}


def _reach(r: Reach | None) -> dict[str, Any] | None:
    if r is None:
        return None
    return {
        **_interval(r.interval),
        "target": r.target,
        "reached": r.reached,
        "is_lower_bound": r.is_censored,
        "by_seed": [float(cost) for cost in r.costs],
    }


def _safe(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _safe(v) for key, v in value.items()}
    if isinstance(value, list | tuple):
        return [_safe(v) for v in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value
