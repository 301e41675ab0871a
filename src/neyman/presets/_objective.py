"""The variance that an allocation minimises, by estimator."""

from __future__ import annotations


def objective(estimator: str) -> str:
    """Return the estimator whose variance is minimised: REINFORCE++ has no formula of its own and takes RLOO's."""
    return estimator if estimator in ("rloo", "dr_grpo", "grpo") else "rloo"
