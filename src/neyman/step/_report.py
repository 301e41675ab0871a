"""What a step reports: flat numbers under names that logs and trackers keep."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from neyman import formulas
from neyman.rules.audit import Audit
from neyman.step._group import Group
from neyman.step.messages import GroupReport

if TYPE_CHECKING:
    from neyman.step._engine import Engine


def step_metrics(
    engine: Engine,
    groups: list[Group],
    trained: list[Group],
    finding: Audit | None,
    *,
    rows: int,
    real_rows: int,
) -> dict[str, float]:
    """Return the metrics of a step, or of those of its groups that are handed out together.

    ``effective_ratio`` is the share of trained groups with mixed outcomes. ``miss_rate`` is the estimated share of
    abandoned groups that would have become mixed, ``signal_kept`` that of sum s(k-s) which early verdicts left.
    """
    sizes = [n for group in trained if (n := group.outcomes()[1])]
    mixed = sum(group.is_mixed for group in trained)
    metrics = {
        "rollouts": float(engine.asked),
        "tokens": float(engine.tokens_told),
        "rows": float(rows),
        "rows_filled": float(rows - real_rows),
        "groups": float(len(trained)),
        "groups_opened": float(len(groups)),
        "effective_groups": float(mixed),
        "effective_ratio": mixed / len(trained) if trained else 0.0,
        "group_size_mean": sum(sizes) / len(sizes) if sizes else 0.0,
        "group_size_min": float(min(sizes, default=0)),
        "group_size_max": float(max(sizes, default=0)),
        "rounds": float(engine.rounds),
        "success_rate": _success_rate(groups),
        "prompts_visited": float(engine.ledger.prompts_visited),
    }
    if engine.pool is not None:
        metrics["coverage"] = engine.ledger.coverage(len(engine.pool))
        metrics["epoch"] = float(engine.pool.epoch)
    if finding is not None:
        metrics |= _verdict_metrics(engine, finding)
    return metrics


def calibration(reports: Iterable[GroupReport]) -> dict[str, float]:
    """Return how well the belief foresaw a step: Brier score and log-loss per rollout, where any was judged."""
    judged = [report for report in reports if report.trials]
    if not judged:
        return {}
    predicted = [report.predicted for report in judged]
    outcomes = [report.successes for report in judged], [report.trials for report in judged]
    return {
        "belief_brier": formulas.brier(predicted, *outcomes),
        "belief_log_loss": formulas.log_loss(predicted, *outcomes),
    }


def _success_rate(groups: list[Group]) -> float:
    totals = [group.drawn_outcomes() for group in groups]
    trials = sum(n for _, n in totals)
    return sum(s for s, _ in totals) / trials if trials else 0.0


def _verdict_metrics(engine: Engine, finding: Audit) -> dict[str, float]:
    """Return what the verdicts cost and saved."""
    waves = engine.waves
    metrics = {
        "verdicts": float(sum(group.committed is not None for group in engine.groups)),
        "abandoned_groups": float(finding.abandoned),
        "over_provision": waves.over_provision,
    }
    if getattr(engine.strategy.verdict, "after_commit", "complete") != "stop":  # else no group is seen whole
        metrics |= {
            "miss_rate": finding.miss_rate,
            "signal_kept": finding.signal_kept,
            "yield_margin": waves.observed.margin(waves.size),
        }
    return metrics
