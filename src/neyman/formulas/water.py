"""Allocation in proportion to weights, within bounds and with an exact sum: DynaMO's water level and simpler rules."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import ArrayLike

from neyman import _checks
from neyman._checks import FloatP, IntP

# Remainders that agree to so many decimals tie, because c * w carries rounding errors of its own.
_REMAINDER_DECIMALS: Final = 9

# Weights below this share of the largest count as zero, because their level would overflow.
_NO_WEIGHT: Final = 1e-100

# DynaMO's constants, from the authors' public code.
_SETTLED_ACCURACY: Final = 0.85
_LEAST_PRIORITY: Final = 0.01
_SHORTEST_HISTORY: Final = 4


def water_level(spread: ArrayLike, budget: int, lower: ArrayLike, upper: ArrayLike) -> IntP:
    """Allocate a budget in proportion to each prompt's standard deviation, within bounds.

    n_q = clip(c w_q, L_q, U_q) with the level c that spends the budget, made whole by largest remainders.

    Args:
        spread: w_q >= 0, standard deviations such as sqrt(E[p(1-p)]), shape (prompts,).
        budget: rollouts to spend; all are spent.
        lower: fewest rollouts, a scalar or (prompts,).
        upper: most rollouts, a scalar or (prompts,).

    Returns:
        int64 counts, shape (prompts,). Prompts without spread stay at their lower bounds until all others have
        reached their upper ones, then share the rest evenly; without any spread the budget is shared evenly.

    Raises:
        ArgumentError: a negative or non-finite spread, or bounds out of range.
        InfeasibleError: the budget is outside the sums of the bounds.

    Guarantee: Before rounding, the counts minimise sum w_q^2 / n_q within the bounds (Neyman allocation). A larger
    spread under the same bounds never gets fewer. More budget can take one rollout from a prompt, because largest
    remainders are not monotone (weights 1, 3, 3 give 1, 1, 1 at 3 and 0, 2, 2 at 4). Ties by index.
    Cost: O(prompts log(prompts)).
    Source: DynaMO, arXiv 2602.19208, section 3 (n_i = C sigma_i / sum sigma); Neyman, 1934.

    >>> water_level([0.5, 0.3, 0.1, 0.0], budget=24, lower=2, upper=10)
    array([10,  9,  3,  2])
    """
    weights = _checks.nonnegative_array("spread", spread, ndim=1)
    low, high, total = _checks.count_box(lower, upper, budget, len(weights))
    return largest_remainder(_fill(weights, low, high, total), total, high)


def largest_remainder(target: FloatP, total: int, upper: IntP) -> IntP:
    """Round real counts that sum to ``total`` to int64 ones with this sum, never above ``upper``, shape (prompts,).

    All are rounded down; the remaining units go to the largest remainders, ties by index. No ``upper`` may be below its
    target; nothing is checked.

    >>> largest_remainder(np.array([1.5, 1.5, 3.0]), 6, np.array([9, 9, 9]))
    array([2, 1, 3])
    """
    steady = np.round(target, _REMAINDER_DECIMALS)
    counts = np.minimum(np.floor(steady).astype(np.int64), upper)
    remainder = np.where(counts < upper, steady - counts, -1.0)
    short = total - int(counts.sum())
    counts[np.argsort(-remainder, kind="stable")[:short]] += 1
    return counts


def _fill(weights: FloatP, lower: IntP, upper: IntP, total: int) -> FloatP:
    """Return clip(c w, L, U) that sums to ``total``; prompts without weight share the rest evenly, last."""
    weighted = weights > _NO_WEIGHT * weights.max(initial=0.0)
    counts = np.where(weighted, upper, lower).astype(np.float64)
    # Prompts without weight get more than their lower bounds only if the others cannot take the whole budget.
    rest = total - int(upper[weighted].sum())
    if rest < int(lower[~weighted].sum()):
        rest = total - int(lower[~weighted].sum())
        chosen, shares = weighted, weights[weighted]
    else:
        chosen, shares = ~weighted, np.ones(int((~weighted).sum()))
    if chosen.any():
        counts[chosen] = _clip_to_sum(shares / shares.max(), lower[chosen], upper[chosen], rest)
    return counts


def _clip_to_sum(weights: FloatP, lower: IntP, upper: IntP, total: int, base: IntP | None = None) -> FloatP:
    """Return clip(base + c w, L, U) with the least c whose sum reaches ``total``."""
    # Bisecting the bits of c ends at the float itself within 64 steps, whatever the scale of the weights.
    start = np.zeros(len(weights)) if base is None else base
    bottom, top = 0, int(np.float64(np.finfo(np.float64).max).view(np.int64))
    with np.errstate(over="ignore"):
        while top - bottom > 1:
            middle = (bottom + top) // 2
            level = np.int64(middle).view(np.float64)
            if float(np.clip(start + level * weights, lower, upper).sum()) < total:
                bottom = middle
            else:
                top = middle
        return np.clip(start + np.int64(top).view(np.float64) * weights, lower, upper)


def published_water_level(
    successes: ArrayLike,
    trials: ArrayLike,
    budget: int,
    lower: ArrayLike,
    upper: ArrayLike,
    initial: int | None = None,
) -> IntP:
    """Allocate a budget as DynaMO's authors do, from each prompt's history of outcomes.

    n_q = min(L_q + c P_q, U_q) with P = s (t-s) / (t (t-1)) over s successes in t trials; P is set to .01 where
    the accuracy is at least .85, and is at least .01 everywhere; rounded by largest remainders.

    Args:
        successes: s, shape (prompts,).
        trials: t, shape (prompts,).
        budget: rollouts to spend; all are spent.
        lower: fewest rollouts, a scalar or (prompts,).
        upper: most rollouts, a scalar or (prompts,).
        initial: count of a prompt with fewer than 4 trials; None is max(lower, 4). Clipped to the bounds.

    Returns:
        int64 counts, shape (prompts,). Where the other prompts cannot spend the rest within their bounds, those
        with fewer than 4 trials share the difference evenly.

    Raises:
        ArgumentError: counts or bounds out of range.
        InfeasibleError: the budget is outside the sums of the bounds.

    Guarantee: Reproduces the published rule, which is not optimal: P is a variance where the theory has its root, and
    the .85 threshold costs most of the gain. The preset's default is ``water_level`` of sqrt(E[p(1-p)]).
    Cost: O(prompts log(prompts)).
    Source: DynaMO, arXiv 2602.19208, and the authors' public code.

    >>> published_water_level([1, 8, 15], [16, 16, 16], budget=48, lower=8, upper=24)
    array([15, 24,  9])
    """
    s, t = _checks.counts_pair(successes, trials)
    low, high, total = _checks.count_box(lower, upper, budget, len(t))
    new = t < _SHORTEST_HISTORY
    counts = low.astype(np.float64)
    first = np.maximum(low[new], 4) if initial is None else _checks.integer("initial", initial, low=0)
    start = np.clip(first, low[new], high[new])
    known = total - int(start.sum())
    reachable = min(max(known, int(low[~new].sum())), int(high[~new].sum()))
    if reachable == known:
        counts[new] = start
    elif new.any():  # the others' bounds do not fit the rest, so the new prompts take up the difference
        counts[new] = _fill(np.ones(int(new.sum())), low[new], high[new], total - reachable)
    if not new.all():
        priority = _dynamo_priority(s[~new], t[~new])
        counts[~new] = _clip_to_sum(priority, low[~new], high[~new], reachable, base=low[~new])
    return largest_remainder(counts, total, high)


def _dynamo_priority(successes: IntP, trials: IntP) -> FloatP:
    # The unbiased variance of 0/1 outcomes; t - 1.0 makes the product a float, which cannot overflow.
    priority = successes * (trials - successes) / (trials * (trials - 1.0))
    priority[successes >= _SETTLED_ACCURACY * trials] = _LEAST_PRIORITY
    return np.maximum(priority, _LEAST_PRIORITY)


def inverse_accuracy(
    success_rate: ArrayLike, budget: int, lower: ArrayLike, upper: ArrayLike, epsilon: float = 0.01
) -> IntP:
    """Allocate in proportion to 1 / (p_q + epsilon), within bounds: VIP's baseline that favours hard prompts.

    Args:
        success_rate: p_q in [0, 1], shape (prompts,).
        budget: rollouts to spend; all are spent.
        lower: fewest rollouts, a scalar or (prompts,).
        upper: most rollouts, a scalar or (prompts,).
        epsilon: keeps the weight of p = 0 finite, > 0; .01 is our choice, as the paper gives none.

    Returns:
        int64 counts, shape (prompts,).

    Raises:
        ArgumentError: an argument outside its range.
        InfeasibleError: the budget is outside the sums of the bounds.

    Guarantee: The sum is exact, ties go by index; no objective is optimised.
    Cost: O(prompts log(prompts)).
    Source: VIP, arXiv 2602.01601, its table of baselines.

    >>> inverse_accuracy([0.09, 0.19, 0.99], budget=16, lower=1, upper=12)
    array([10,  5,  1])
    """
    p = _checks.rate_array("success_rate", success_rate, ndim=1)
    return water_level(
        1.0 / (p + _checks.real("epsilon", epsilon, low=0.0, open_low=True)), budget, lower, upper
    )


def inverse_variance(
    success_rate: ArrayLike, budget: int, lower: ArrayLike, upper: ArrayLike, epsilon: float = 0.01
) -> IntP:
    """Allocate in proportion to 1 / (p_q (1-p_q) + epsilon): VIP's baseline that favours settled prompts.

    Arguments, counts, errors, guarantee and source are those of `inverse_accuracy`.

    >>> inverse_variance([0.5, 0.1, 0.1], budget=14, lower=1, upper=12)
    array([2, 6, 6])
    """
    p = _checks.rate_array("success_rate", success_rate, ndim=1)
    weight = 1.0 / (p * (1.0 - p) + _checks.real("epsilon", epsilon, low=0.0, open_low=True))
    return water_level(weight, budget, lower, upper)
