"""Which variance an estimator's allocation minimises."""

from __future__ import annotations


def objective(estimator: str) -> str:
    """Return the objective of an estimator: REINFORCE++ has no group baseline and takes RLOO's."""
    return estimator if estimator in ("rloo", "dr_grpo", "grpo") else "rloo"
