"""Advantages over ragged groups, and the groups that carry signal."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from neyman import _checks
from neyman._checks import FloatP, IntP
from neyman.errors import ArgumentError
from neyman.formulas.segments import group_index, group_spread, group_sum, live_rows

ESTIMATORS: Final = ("grpo", "dr_grpo", "rloo", "reinforce++")
SINGLETONS: Final = ("zero", "error", "posterior")

# Rewards beyond this would overflow when squared, so they are scaled first.
_LARGE: Final = 1e100


def group_advantages(
    rewards: ArrayLike,
    groups: Iterable[Hashable],
    estimator: str = "grpo",
    ddof: int = 1,
    eps: float = 1e-4,
    *,
    tolerance: float = 1e-6,
    singleton: str = "zero",
    baseline: ArrayLike | None = None,
) -> FloatP:
    """Compute the advantage of every row against the rows of its own group.

    GRPO: (r - mean) / (std + eps); Dr. GRPO: r - mean; RLOO: n/(n-1) (r - mean), which is r minus the mean of
    the others; REINFORCE++: (r - mean) / (std + eps) over the whole batch, regardless of groups.

    Args:
        rewards: one per row, shape (rows,); None or NaN where missing.
        groups: one label per row, integers or any hashables, ragged and in any order.
        estimator: "grpo", "dr_grpo", "rloo" or "reinforce++".
        ddof: delta degrees of freedom of the standard deviation: 1 (TRL, verl) or 0.
        eps: added to the standard deviation (TRL: 1e-4).
        tolerance: a group whose rewards differ by at most this, times its largest magnitude where that exceeds
            1, has zero variance: its advantages are exactly 0, so that rounding noise is not divided by itself.
        singleton: advantage of the only valid row of a group: "zero"; "error" raises; or "posterior", its reward
            minus ``baseline``, undivided. A group without a valid row always gets zeros.
        baseline: expected reward per row, e.g. of a belief about its prompt, for ``singleton="posterior"``.

    Returns:
        float64 advantages, shape (rows,), all finite; 0 where the reward is missing.

    Raises:
        ArgumentError: infinite rewards, an argument outside its range, or a lone row with ``singleton="error"``.

    Guarantee: Missing rewards enter no mean and no deviation. Equals TRL's (r - mean)/(std + 1e-4) for groups of equal
    size whose spread exceeds the tolerance. Row order and labels do not matter beyond rounding.
    Cost: O(rows log(rows)).
    Source: GRPO, arXiv 2402.03300; Dr. GRPO, arXiv 2503.20783; RLOO, arXiv 2402.14740; REINFORCE++, arXiv 2501.03262.

    >>> group_advantages([1, 0, 0, 1, None], [7, 7, 7, 9, 9], estimator="rloo")
    array([ 1. , -0.5, -0.5,  0. ,  0. ])
    """
    kind = _checks.choice("estimator", estimator, ESTIMATORS)
    lone = _checks.choice("singleton", singleton, SINGLETONS)
    free = _checks.integer("ddof", ddof, low=0, high=1)
    offset = _checks.real("eps", eps, low=0.0)
    noise = _checks.real("tolerance", tolerance, low=0.0)
    codes, labels = group_index(groups)
    values, live = live_rows("rewards", rewards, len(codes))
    if kind == "reinforce++":
        # One group of all rows: the statistics of a "group" are then those of the batch.
        codes, labels = np.zeros(len(codes), dtype=np.int64), labels[:1]
    largest = float(np.abs(values).max(initial=0.0))
    scale = largest if largest > _LARGE else 1.0
    advantages = _centred(values / scale, live, codes, len(labels), noise)
    if kind in ("grpo", "reinforce++"):
        # Standardised advantages have no scale, so eps alone has to follow the scaled rewards.
        advantages = _standardised(advantages, live, codes, len(labels), free, offset / scale)
    else:
        n = group_sum(live, codes, len(labels))[codes]
        if kind == "rloo":
            # r - mean of the others = n/(n-1) (r - mean of all)
            advantages = advantages * n / np.maximum(n - 1.0, 1.0)
        with np.errstate(over="ignore"):
            advantages = np.nan_to_num(advantages * scale)
    if lone != "zero" and kind != "reinforce++":
        alone = live & (group_sum(live, codes, len(labels))[codes] == 1.0)
        advantages = _lone_rows(advantages, values, alone, lone, baseline, labels, codes)
    return advantages


def _centred(values: FloatP, live: NDArray[np.bool_], codes: IntP, n_groups: int, noise: float) -> FloatP:
    """Return live values minus their group's mean; exactly 0 in zero-variance groups and in missing rows."""
    n = np.maximum(group_sum(live, codes, n_groups), 1.0)
    centred = np.where(live, values - (group_sum(values, codes, n_groups) / n)[codes], 0.0)
    # The second pass removes the rounding of the first mean, which shows when rewards share a large offset.
    centred = np.where(live, centred - (group_sum(centred, codes, n_groups) / n)[codes], 0.0)
    return np.where(_mixed(values, live, codes, n_groups, noise)[codes], centred, 0.0)


def _standardised(
    centred: FloatP, live: NDArray[np.bool_], codes: IntP, n_groups: int, ddof: int, eps: float
) -> FloatP:
    n = group_sum(live, codes, n_groups)
    # From centred values, so that the sum of squares does not cancel against the mean's.
    deviation = np.sqrt(group_sum(np.square(centred), codes, n_groups) / np.maximum(n - ddof, 1.0))
    # Rows at exactly 0 stay there, also with eps = 0, where a zero-variance group would give 0 / 0.
    divisor = deviation + eps
    return np.where(centred != 0.0, centred / np.where(divisor > 0.0, divisor, 1.0)[codes], 0.0)


def _mixed(
    values: FloatP, live: NDArray[np.bool_], codes: IntP, n_groups: int, noise: float
) -> NDArray[np.bool_]:
    # Rounding grows with the magnitude of the rewards, so the tolerance is relative above 1; 0/1 rewards are exact.
    spread, largest = group_spread(values, live, codes, n_groups)
    return spread > noise * np.maximum(largest, 1.0)


def _lone_rows(
    advantages: FloatP,
    values: FloatP,
    alone: NDArray[np.bool_],
    singleton: str,
    baseline: ArrayLike | None,
    labels: list[Hashable],
    codes: IntP,
) -> FloatP:
    rows = np.flatnonzero(alone)
    if singleton == "error":
        if len(rows):
            raise ArgumentError(
                f"group {labels[codes[rows[0]]]!r} has a single valid row, which has no baseline; use "
                "singleton='zero', or singleton='posterior' with baseline= the expected reward per row"
            )
        return advantages
    if baseline is None:
        raise ArgumentError("singleton='posterior' needs baseline=, the expected reward per row")
    expected = _checks.float_array("baseline", baseline, ndim=1)
    _checks.same_length(rewards=values, baseline=expected)
    if not np.isfinite(expected[alone]).all():
        raise ArgumentError("baseline must be finite wherever a group has a single valid row")
    return np.where(alone, values - expected, advantages)


def effective_groups(
    success: ArrayLike, groups: Iterable[Hashable], tolerance: float = 1e-6, *, valid: ArrayLike | None = None
) -> NDArray[np.bool_]:
    """Mark the effective groups: those whose valid rows hold both outcomes.

    max - min > tolerance (times the group's largest magnitude where that exceeds 1) over the valid rows.

    Args:
        success: verified outcome per row, shape (rows,); booleans, 0/1, or rewards where they are the outcome.
            None or NaN where missing.
        groups: one label per row, any order.
        tolerance: differences up to this are rounding noise.
        valid: boolean mask of rows that count, e.g. all that did not time out; None counts all.

    Returns:
        One boolean per group, in order of first appearance (the order of ``group_index``). A group with a
        single valid row or none is undecided, hence not effective; see ``undecided_groups``.

    Raises:
        ArgumentError: infinite outcomes or arrays of different lengths.

    Cost: O(rows log(rows)).

    >>> effective_groups([1, 0, 1, 1, 0, None], ["a", "a", "b", "b", "c", "c"])
    array([ True, False, False])
    """
    codes, labels = group_index(groups)
    noise = _checks.real("tolerance", tolerance, low=0.0)
    values, live = live_rows("success", success, len(codes), valid)
    return _mixed(values, live, codes, len(labels), noise)


def undecided_groups(
    success: ArrayLike, groups: Iterable[Hashable], *, valid: ArrayLike | None = None
) -> NDArray[np.bool_]:
    """Mark the groups with fewer than two valid rows, whose spread is unknown.

    Args:
        success: verified outcome per row, shape (rows,); None or NaN where missing.
        groups: one label per row, any order.
        valid: boolean mask of rows that count; None counts all.

    Returns:
        One boolean per group, in order of first appearance.

    Raises:
        ArgumentError: infinite outcomes or arrays of different lengths.

    Cost:
        O(rows log(rows)).

    >>> undecided_groups([1, 1, 0, None], ["a", "a", "b", "b"])
    array([False,  True])
    """
    codes, labels = group_index(groups)
    _, live = live_rows("success", success, len(codes), valid)
    return group_sum(live, codes, len(labels)) < 2.0
