"""The numbers of a step under the names that every adapter logs."""

from __future__ import annotations

from neyman.controller import Batch, Controller, calibration


def step_metrics(controller: Controller, batch: Batch, generation_seconds: float) -> dict[str, float]:
    """Return the metrics of a closed step, named ``neyman/...``.

    Args:
        controller: of the run.
        batch: what the step's ``finish`` returned.
        generation_seconds: seconds from the step's beginning to its last verdict. They are no part of the ledger, so
            that a resumed run has the state of one that never stopped.
    """
    numbers = {
        **batch.report,
        **calibration(controller.group_reports),
        "rollouts_total": controller.ledger.requested,
        "tokens_total": controller.ledger.tokens(),
        "generation_seconds": generation_seconds,
    }
    return {f"neyman/{name}": float(value) for name, value in numbers.items()}
