"""What a step reports: flat numbers under names that logs and trackers keep."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from neyman.groups import Group, Phase, SlotState
from neyman.rules.audit import audit

if TYPE_CHECKING:
    from neyman.engine import Engine

_logger = logging.getLogger("neyman")


def step_metrics(engine: Engine, trained: list[Group], *, rows: int, real_rows: int) -> dict[str, float]:
    """Return the step's metrics.

    ``effective_ratio`` is the share of trained groups with mixed outcomes; ``effective_found`` the number of
    effective groups per opened one; ``signal_kept`` the estimated share of sum s(k-s) that early verdicts left.
    """
    sizes = [group.outcomes()[1] for group in trained]
    mixed = sum(group.is_mixed for group in trained)
    spent = sum(s.step == engine.step and s.tries for g in engine.groups for s in g.slots)
    metrics = {
        "rollouts": float(spent),
        "tokens": float(engine.tokens_told),
        "rows": float(rows),
        "rows_filled": float(rows - real_rows),
        "groups": float(len(trained)),
        "groups_opened": float(len(engine.groups)),
        "effective_groups": float(mixed),
        "effective_ratio": mixed / len(trained) if trained else 0.0,
        "group_size_mean": sum(sizes) / len(sizes) if sizes else 0.0,
        "group_size_min": float(min(sizes, default=0)),
        "group_size_max": float(max(sizes, default=0)),
        "rounds": float(engine.rounds),
        "success_rate": _success_rate(engine),
        "prompts_visited": float(engine.ledger.prompts_visited),
    }
    if engine.pool is not None:
        metrics["coverage"] = engine.ledger.coverage(len(engine.pool))
        metrics["epoch"] = float(engine.pool.epoch)
    if engine.strategy.verdict is not None:
        metrics |= _verdict_metrics(engine)
    return metrics


def _success_rate(engine: Engine) -> float:
    totals = [group.outcomes() for group in engine.groups]
    trials = sum(n for _, n in totals)
    return sum(s for s, _ in totals) / trials if trials else 0.0


def _verdict_metrics(engine: Engine) -> dict[str, float]:
    """Return what the verdicts cost and saved, and warn when they do not pay for these difficulties."""
    verdict, waves = engine.strategy.verdict, engine.waves
    assert verdict is not None
    judged = [(i, g) for i, g in enumerate(engine.groups) if g.phase in (Phase.COMMITTED, Phase.ABANDONED)]
    judged = [(i, g) for i, g in judged if i in waves.priors or g.phase is Phase.COMMITTED]
    early = [g for _, g in judged if g.phase is Phase.ABANDONED and len(g.slots) < g.size]
    complete = [
        (g.outcomes()[0], g.size, waves.prior(i))
        for i, g in judged
        if g.phase is Phase.COMMITTED and g.size == waves.size and g.outcomes()[1] == g.size
    ]
    finding = audit(verdict, complete, judged=len(judged), abandoned=len(early))
    probes = [sum(slot.state is SlotState.VALID for slot in g.slots) for g in early]
    margin = waves.yield_margin(finding, sum(probes) / len(probes) if probes else float(waves.size))
    return {
        "verdicts": float(len(judged)),
        "abandoned_groups": float(len(early)),
        "miss_rate": finding.miss_rate,
        "signal_kept": finding.signal_kept,
        "over_provision": waves.over_provision,
        "yield_margin": margin,
    }
