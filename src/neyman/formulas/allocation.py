"""Allocation of a rollout budget over prompts: the exact integer optimum."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from neyman import _checks
from neyman._checks import FloatP, IntP
from neyman.errors import ArgumentError
from neyman.formulas import relaxation, variance
from neyman.formulas._greedy import MATRIX_CELLS, Gain, greedy_counts, partition_counts, threshold_counts

#: value(n): the value of each prompt q with n[q] rollouts; n holds one count per prompt.
Value = Callable[[IntP], ArrayLike]

_CONCAVITY_NOISE: Final = 1e-9


def allocate(
    success_rate: ArrayLike | None = None,
    budget: int | None = None,
    lower: ArrayLike | None = None,
    upper: ArrayLike | None = None,
    estimator: str = "rloo",
    *,
    spread: ArrayLike | None = None,
    value: Value | None = None,
    variant: str = "exact",
) -> IntP:
    """Allocate a rollout budget over prompts so that the summed gradient variance is smallest.

    min sum_q a_q f(n_q)  subject to  sum_q n_q = budget, lower_q <= n_q <= upper_q, n_q integer, where
    a_q = p_q (1-p_q) and f is the estimator's (see ``gradient_variance``); or max sum_q value_q(n_q).

    Args:
        success_rate: p_q in [0, 1], shape (prompts,).
        budget: rollouts to spend; all are spent.
        lower: fewest rollouts per prompt, a scalar or (prompts,); >= 2 for RLOO, >= 3 for Dr. GRPO and GRPO.
        upper: most rollouts per prompt, a scalar or (prompts,).
        estimator: "rloo", "dr_grpo" or "grpo"; not used with ``value``.
        spread: a_q in place of ``success_rate``: the posterior E[p(1-p)] where p is uncertain, or any
            non-negative variance for RLOO and Dr. GRPO. For GRPO it stands for the rate p <= 1/2 with this p(1-p).
        value: a function of the counts (int64, one per prompt) that returns one value per prompt, to be
            maximised; each must be discretely concave between its bounds, which is checked.
        variant: "exact", or "published" for VIP's relaxation with its rounding (RLOO and Dr. GRPO).

    Returns:
        int64 counts, shape (prompts,), that sum to ``budget``.

    Raises:
        ArgumentError: an argument outside its range, not exactly one of ``success_rate``, ``spread`` and
            ``value``, or a value that is not concave (names the prompt and the count).
        InfeasibleError: the budget is outside the sums of the bounds.

    Guarantee: The exact variant returns an optimum. Gains within 5e-13 of each other (relative) count as equal, and
    equal gains go to the prompt of lowest index. Prompts without spread gain nothing and are served last, lowest index
    first. One more rollout of budget never takes a rollout from any prompt. For ``grpo`` the objective has the
    population standard deviation, a proxy for trainers that divide by the sample standard deviation plus an epsilon.
    The published variant is optimal on most batches, but not on all.
    Cost: O(prompts log(upper)) time for each of a handful of thresholds, O(prompts) memory; a ``value`` is also
    evaluated at every count between the bounds for the concavity check.
    Source: VIP, arXiv 2602.01601, for the objective and the published variant. Greedy integer allocation of concave
    values is classical (Fox, 1966); the threshold search and its tie rule are ours.

    >>> allocate([0.5, 0.5, 0.1, 0.0], budget=20, lower=2, upper=8)
    array([7, 7, 4, 2])
    >>> allocate(value=lambda n: np.array([3.0, 1.0]) * np.sqrt(n), budget=10, lower=0, upper=10)
    array([9, 1])
    """
    _checks.choice("variant", variant, ("exact", "published"))
    kind = _checks.choice("estimator", estimator, variance.ESTIMATORS)
    given = {"success_rate": success_rate, "spread": spread, "value": value}
    named = [name for name, argument in given.items() if argument is not None]
    if len(named) != 1:
        raise ArgumentError(
            f"allocate needs exactly one of success_rate, spread and value, got {' and '.join(named) or 'none'}"
        )
    for name, argument in (("budget", budget), ("lower", lower), ("upper", upper)):
        if argument is None:
            raise ArgumentError(
                f"{name} is missing: allocate(success_rate, budget, lower, upper) needs all four"
            )
    assert lower is not None and upper is not None  # noqa: PT018 - by the loop above, which mypy cannot see
    if value is not None:
        if variant == "published":
            raise ArgumentError("variant='published' is VIP's for RLOO and Dr. GRPO, not for a value")
        return _allocate_value(value, budget, lower, upper)
    weights = _weights(success_rate, spread, kind)
    low, high, total = _checks.count_box(
        lower,
        upper,
        budget,
        len(weights),
        least=variance.MINIMUM_GROUP_SIZE[kind],
        reason=f"estimator={kind!r}: {variance.MINIMUM_REASON[kind]}",
    )
    gain = _gain(weights, kind)
    if variant == "published":
        # As published: the relaxation rounded down, and the rest one rollout at a time where it gains most.
        low = relaxation.published_floor(weights, total, low, high, kind)
    return greedy_counts(gain, low, high, total)


def _weights(success_rate: ArrayLike | None, spread: ArrayLike | None, kind: str) -> FloatP:
    """Return the weight of each prompt's gains: p(1-p), or min(p, 1-p) for GRPO."""
    if success_rate is not None:
        p = _checks.rate_array("success_rate", success_rate, ndim=1)
        return np.minimum(p, 1.0 - p) if kind == "grpo" else p * (1.0 - p)
    assert spread is not None
    a = _checks.nonnegative_array("spread", spread, ndim=1)
    if kind != "grpo":
        return a
    if (a > 0.25).any():
        raise ArgumentError(
            f"spread must be E[p(1-p)] in [0, 0.25] for estimator='grpo', got {a.max()}; "
            "variances of other rewards have no GRPO form: use 'dr_grpo'"
        )
    # The smaller root of p (1-p) = a, in the form that does not cancel for small a.
    return 2.0 * a / (1.0 + np.sqrt(1.0 - 4.0 * a))


def _gain(weights: FloatP, kind: str) -> Gain:
    rule = {"rloo": variance.rloo_gain, "dr_grpo": variance.dr_grpo_gain, "grpo": variance.grpo_gain}[kind]
    return lambda rows, n: rule(weights[rows], n.astype(np.float64))


def _allocate_value(value: Value, budget: int | None, lower: ArrayLike, upper: ArrayLike) -> IntP:
    prompts = _prompts_of(value, lower, upper)
    low, high, total = _checks.count_box(lower, upper, budget, prompts)
    units = total - int(low.sum())
    # No prompt can get more than all units, which bounds the levels of the concavity check.
    high = np.minimum(high, low + units)
    gains = _concave_gains(value, low, high)
    if gains is not None:
        return partition_counts(gains, low, high, units) if units else low

    def gain(rows: IntP, n: IntP) -> FloatP:
        full = low.copy()
        full[rows] = n
        more = full.copy()
        more[rows] += 1
        return (_evaluate(value, more, prompts) - _evaluate(value, full, prompts))[rows]

    # A value is a function of all counts at once, so it can neither be sampled nor asked twice for one prompt.
    return threshold_counts(gain, low, high, units, enough=0, sample=False)


def _prompts_of(value: Value, lower: ArrayLike, upper: ArrayLike) -> int:
    for name, bound in (("lower", lower), ("upper", upper)):
        array = _checks.int_array(name, bound)
        if array.ndim == 1:
            return len(array)
    # With scalar bounds only the value itself knows the number of prompts.
    probe = _checks.float_array("value(n)", value(np.asarray(lower, dtype=np.int64)))
    if probe.ndim != 1:
        raise ArgumentError(
            f"value(n) must return one number per prompt, got shape {probe.shape} for a scalar n; "
            "pass lower as an array with one entry per prompt"
        )
    return len(probe)


def _evaluate(value: Value, n: IntP, prompts: int) -> NDArray[np.float64]:
    worth = _checks.float_array("value(n)", value(n))
    if worth.shape != (prompts,):
        raise ArgumentError(f"value(n) must have shape ({prompts},) like n, got {worth.shape}")
    bad = np.flatnonzero(~np.isfinite(worth))
    if len(bad):
        raise ArgumentError(
            f"value(n) must be finite, got {worth[bad[0]]} for prompt {bad[0]} at n={n[bad[0]]}"
        )
    return worth


def _concave_gains(value: Value, low: IntP, high: IntP) -> FloatP | None:
    """Check concavity level by level, and return the gains (prompts, levels) unless they are too many to keep.

    ``value`` is evaluated within each prompt's own bounds only, since it may be undefined beyond them.
    """
    levels, prompts = int((high - low).max(initial=0)), len(low)
    gains = np.empty((prompts, levels)) if prompts * levels <= MATRIX_CELLS else None
    n, before = low.copy(), _evaluate(value, low, prompts)
    scale, last = np.abs(before), np.full(prompts, np.inf)
    for level in range(levels):
        ahead = np.minimum(n + 1, high)
        after = _evaluate(value, ahead, prompts)
        step, moved = after - before, ahead > n
        scale = np.maximum(scale, np.abs(after))
        # Differences of large values carry their rounding, so a gain may rise by that much.
        bad = np.flatnonzero(moved & (step > last + _CONCAVITY_NOISE * scale))
        if len(bad):
            q = int(bad[0])
            raise ArgumentError(
                f"value must be discretely concave between lower and upper; for prompt {q} the gain rises from "
                f"{last[q]:.6g} to {step[q]:.6g} at n={n[q]}; raise lower to {n[q]} there, or lower its upper bound"
            )
        if gains is not None:
            gains[:, level] = step
        last = np.where(moved, step, last)
        n, before = ahead, after
    return gains
