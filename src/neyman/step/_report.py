"""Metrics of a step: flat numbers under names that logs and trackers keep."""

from __future__ import annotations

from collections.abc import Iterable

from neyman import formulas
from neyman.step._group import Group
from neyman.step._state import StepState
from neyman.step.messages import GroupReport


def step_metrics(
    state: StepState, groups: list[Group], trained: list[Group], *, rows: int, real_rows: int
) -> dict[str, float]:
    """Return the metrics of a step, or of those of its groups that are handed out together.

    ``effective_ratio`` is the share of trained groups with mixed outcomes.
    """
    sizes = [n for group in trained if (n := group.outcomes()[1])]
    mixed = sum(group.is_mixed for group in trained)
    metrics = {
        "rollouts": float(state.asked),
        "tokens": float(state.tokens_received),
        "rows": float(rows),
        "rows_filled": float(rows - real_rows),
        "groups": float(len(trained)),
        "groups_opened": float(len(groups)),
        "effective_groups": float(mixed),
        "effective_ratio": mixed / len(trained) if trained else 0.0,
        "group_size_mean": sum(sizes) / len(sizes) if sizes else 0.0,
        "group_size_min": float(min(sizes, default=0)),
        "group_size_max": float(max(sizes, default=0)),
        "rounds": float(state.rounds),
        "success_rate": _success_rate(groups),
        "prompts_visited": float(state.ledger.prompts_visited),
    }
    if state.pool is not None:
        metrics["coverage"] = state.ledger.coverage(len(state.pool))
        metrics["epoch"] = float(state.pool.epoch)
    return metrics


def calibration(reports: Iterable[GroupReport]) -> dict[str, float]:
    """Return the calibration of the belief in a step: Brier score and log-loss per rollout, where any was judged."""
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
