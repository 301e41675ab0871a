"""The step's numbers in the trainer's own logs, so that every tracker gets them for free."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from neyman import formulas
from neyman.step._report import calibration
from neyman.step.batch import Batch

if TYPE_CHECKING:
    from neyman.trl._session import Session

Float = NDArray[np.float64]


def log_step(session: Session, batch: Batch, rewards: Float | None) -> None:
    """Append ``neyman/...`` metrics of a step, and correct the one of TRL's that assumes equal groups.

    Args:
        session: the trainer's session.
        batch: the step's batch.
        rewards: the final reward of each row, NaN where missing; None where TRL's own view of the groups is right.
    """
    metrics = session.trainer._metrics["train"]  # noqa: SLF001 (TRL's way to log)
    for name, value in {**batch.report, **calibration(session.controller.group_reports)}.items():
        metrics[f"neyman/{name}"].append(value)
    ledger = session.controller.ledger
    metrics["neyman/rollouts_total"].append(float(ledger.requested))
    metrics["neyman/tokens_total"].append(float(ledger.tokens()))
    metrics["neyman/generation_seconds"].append(session.generation_seconds)
    if rewards is not None and metrics.get("frac_reward_zero_std"):
        metrics["frac_reward_zero_std"][-1] = _dead_share(batch, rewards)


def _dead_share(batch: Batch, rewards: Float) -> float:
    """Return the share of rows with a reward whose group's rewards are all equal."""
    valid = ~np.isnan(rewards)
    if not valid.any():
        return float("nan")
    codes, _ = formulas.group_index(batch.groups[valid])
    return float(1.0 - formulas.effective_groups(rewards[valid], codes)[codes].mean())
