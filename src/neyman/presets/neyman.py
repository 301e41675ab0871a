"""Our own: posterior sampling over the pool, a probe of every chosen prompt, the rest by the updated belief."""

from __future__ import annotations

from neyman import beliefs, rules
from neyman.beliefs import Belief
from neyman.presets._objective import objective
from neyman.strategy import Strategy


def build(
    *,
    lower: int | None = None,
    upper: int = 32,
    probe: int | None = None,
    among: float = 4.0,
    prompts: float = 1.5,
    belief: Belief | None = None,
    estimator: str = "rloo",
) -> Strategy:
    """Return `neyman`."""
    variance = objective(estimator)
    least = 2 if variance == "rloo" else 3
    first = least if lower is None else lower
    return Strategy(
        name="neyman",
        select=rules.HighestVariance(among=among),
        allocate=rules.VarianceOptimal(
            first, upper, estimator=variance, probe=first if probe is None else probe
        ),
        belief=belief or beliefs.default(),
        prompts=prompts,
        estimator=estimator,
    )
