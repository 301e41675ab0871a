"""VIP's published allocation: the continuous optimum by its KKT conditions, rounded down.

For comparisons by name; the default is the exact integer optimum of ``allocation``.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from neyman._checks import FloatP, IntP
from neyman.errors import ArgumentError

_ROUND_UP_WITHIN: Final = 1e-6
_BISECTIONS: Final = 200


def relaxed_counts(spread: FloatP, budget: int, lower: IntP, upper: IntP, estimator: str) -> FloatP:
    """Minimise sum a_q f(n_q) over real-valued counts, under the budget and the bounds.

    n_q = clip(1 + sqrt(a_q / lambda), L, U) for RLOO; the root n >= 3 of lambda = a_q (n-2)/n^3, clipped, for
    Dr. GRPO; lambda by bisection, since the sum falls with it.

    Args:
        spread: a_q >= 0, shape (prompts,).
        budget: sum of the counts.
        lower: fewest rollouts, shape (prompts,).
        upper: most rollouts, shape (prompts,).
        estimator: "rloo" or "dr_grpo".

    Returns:
        float64 counts. They sum to the budget up to rounding, unless prompts without spread would have to take
        the rest: those stay at their lower bound.

    Raises:
        ArgumentError: another estimator, for which no relaxation was published.

    Cost: O(prompts log(1/eps)).
    Source: VIP, arXiv 2602.01601, the KKT conditions of its relaxed problem.
    """
    if estimator not in ("rloo", "dr_grpo"):
        raise ArgumentError(
            f"variant='published' exists for estimator 'rloo' and 'dr_grpo', got {estimator!r}; use variant='exact'"
        )
    live = spread > 0.0
    if not live.any():
        return lower.astype(np.float64)
    root = _rloo_root if estimator == "rloo" else _dr_grpo_root
    # Bisect log lambda: the multiplier spans as many decades as the spreads do.
    logs = np.log(spread[live])
    low, high = lower[live].astype(np.float64), upper[live].astype(np.float64)
    target = budget - float(lower[~live].sum())
    bottom, top = float(logs.min()) - 3.0 * np.log(high.max() + 2.0), float(logs.max()) + 1.0
    for _ in range(_BISECTIONS):
        middle = 0.5 * (bottom + top)
        if middle in (bottom, top):
            break
        if float(np.clip(root(logs - middle), low, high).sum()) >= target:
            bottom = middle
        else:
            top = middle
    counts = lower.astype(np.float64)
    counts[live] = np.clip(root(logs - bottom), low, high)
    return counts


def published_floor(spread: FloatP, budget: int, lower: IntP, upper: IntP, estimator: str) -> IntP:
    """Round the relaxed counts down, as a start from which the rest is allocated one rollout at a time.

    A count within rounding below a whole number counts as that number, since bisection ends on either side of it.
    """
    relaxed = relaxed_counts(spread, budget, lower, upper, estimator)
    # At most half a rollout over all prompts together, so that rounding up never overspends.
    tolerance = min(_ROUND_UP_WITHIN, 0.5 / max(len(spread), 1))
    floors = np.clip(np.floor(relaxed + tolerance).astype(np.int64), lower, upper)
    assert int(floors.sum()) <= budget
    return floors


def _rloo_root(log_ratio: FloatP) -> FloatP:
    """Solve lambda = a / (n-1)^2 for n, given log(a / lambda)."""
    return 1.0 + np.exp(0.5 * log_ratio)


def _dr_grpo_root(log_ratio: FloatP) -> FloatP:
    """Solve lambda = a (n-2)/n^3 for n >= 3, given log(a / lambda): a depressed cubic, by cosines."""
    # (n-2)/n^3 falls from its value 1/27 at n = 3: a larger lambda/a has no root there, and the bound decides.
    slope = np.sqrt(3.0 * np.exp(-np.maximum(log_ratio, np.log(27.0))))
    return (2.0 / slope) * np.cos(np.arccos(np.maximum(-3.0 * slope, -1.0)) / 3.0)
