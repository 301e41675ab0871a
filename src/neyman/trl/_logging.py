"""The step's numbers in the trainer's own logs, so that every tracker gets them for free."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neyman import formulas
from neyman.step import Batch

if TYPE_CHECKING:
    from neyman.trl._session import Session


def log_step(session: Session, batch: Batch) -> None:
    """Append ``neyman/...`` metrics of a step, and correct the one of TRL's that assumes equal groups."""
    metrics = session.trainer._metrics["train"]  # noqa: SLF001 (TRL's way to log)
    for name, value in {**batch.report, **calibration(session)}.items():
        metrics[f"neyman/{name}"].append(value)
    ledger = session.controller.ledger
    metrics["neyman/rollouts_total"].append(float(ledger.requested))
    metrics["neyman/tokens_total"].append(float(ledger.tokens()))
    if not session.is_stock(batch) and metrics.get("frac_reward_zero_std"):
        metrics["frac_reward_zero_std"][-1] = 1.0 - _live_share(batch)


def _live_share(batch: Batch) -> float:
    counted = ~np.isnan(batch.success)
    if not counted.any():
        return 0.0
    labels, success = batch.groups[counted], batch.success[counted]
    total = np.bincount(labels)
    right = np.bincount(labels, weights=success)
    mixed = (right > 0) & (right < total)
    return float(mixed[labels].mean())


def calibration(session: Session) -> dict[str, float]:
    """Return how well the belief foresaw this step: Brier score and log-loss per rollout."""
    groups = [g for g in session.controller.group_reports if g.trials]
    if not groups:
        return {}
    predicted = [group.predicted for group in groups]
    successes, trials = [g.successes for g in groups], [g.trials for g in groups]
    return {
        "belief_brier": formulas.brier(predicted, successes, trials),
        "belief_log_loss": formulas.log_loss(predicted, successes, trials),
    }
