"""Sums and spreads over ragged groups, whose rows may stand anywhere in a batch."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from neyman import _checks
from neyman._checks import FloatP, IntP
from neyman.errors import ArgumentError


def group_index(groups: Iterable[Hashable]) -> tuple[IntP, list[Any]]:
    """Number the groups of a batch in order of first appearance.

    Args:
        groups: one label per row: integers, strings or any hashables, ragged and in any order.

    Returns:
        The group's number for each row (int64), and the labels by number.

    Raises:
        ArgumentError: labels that are not hashable, not one-dimensional, or NaN.

    Cost: O(rows log(rows)) for arrays, O(rows) for other labels.

    >>> group_index(["b", "a", "b"])
    (array([0, 1, 0]), ['b', 'a'])
    """
    if isinstance(groups, str | bytes) or not isinstance(groups, Iterable):
        raise ArgumentError(f"groups must hold one label per row, got {groups!r:.80}")
    if isinstance(groups, np.ndarray) and groups.ndim != 1:
        raise ArgumentError(f"groups must have one label per row, got shape {groups.shape}")
    if isinstance(groups, np.ndarray) and groups.dtype.kind in "iuU":
        # np.unique sorts; the ranks of first appearances restore the order in which the groups came.
        labels, first, codes = np.unique(groups, return_index=True, return_inverse=True)
        order = np.argsort(first)
        rank = np.empty(len(order), dtype=np.int64)
        rank[order] = np.arange(len(order))
        return rank[codes].astype(np.int64), labels[order].tolist()
    numbers: dict[Hashable, int] = {}
    try:
        # Plain Python labels, so that the labels returned do not depend on the container.
        items = [item.item() if isinstance(item, np.generic) else item for item in groups]
        codes = np.array([numbers.setdefault(item, len(numbers)) for item in items], dtype=np.int64)
    except TypeError as error:
        raise ArgumentError(
            f"groups must hold hashable labels (integers, strings, tuples): {error}"
        ) from error
    if any(label != label for label in numbers):  # noqa: PLR0124 - NaN alone differs from itself
        raise ArgumentError("groups must not hold NaN labels: every row belongs to a prompt")
    return codes, list(numbers)


def check_rows(name: str, values: NDArray[Any], rows: int) -> None:
    """Raise unless there is one value for each row of the groups."""
    if len(values) != rows:
        raise ArgumentError(
            f"{name} and groups must have one entry per row each, got {len(values)} and {rows}"
        )


def live_rows(
    name: str, values: ArrayLike, rows: int, valid: ArrayLike | None = None
) -> tuple[FloatP, NDArray[np.bool_]]:
    """Return values with missing ones set to 0, and a mask of live rows: not None, not NaN, not masked out."""
    array = _checks.float_array(name, values, ndim=1)
    check_rows(name, array, rows)
    live = ~np.isnan(array)
    if valid is not None:
        live &= row_mask("valid", valid, rows)
    bad = np.flatnonzero(live & np.isinf(array))
    if len(bad):
        raise ArgumentError(
            f"{name} must be finite, got {array[bad[0]]} in row {bad[0]}; a result that is missing is None or NaN"
        )
    return np.where(live, array, 0.0), live


def row_mask(name: str, value: ArrayLike, rows: int) -> NDArray[np.bool_]:
    """Return a boolean mask with one entry per row, or raise naming it."""
    mask = np.asarray(value)
    if mask.dtype != np.bool_ or mask.shape != (rows,):
        raise ArgumentError(
            f"{name} must be a boolean mask of shape ({rows},), got dtype {mask.dtype} and shape {mask.shape}"
        )
    return mask


def group_sum(values: ArrayLike, codes: IntP, n_groups: int) -> FloatP:
    """Sum each group's values."""
    weights = np.asarray(values, dtype=np.float64)
    return np.asarray(np.bincount(codes, weights=weights, minlength=n_groups), dtype=np.float64)


def group_spread(
    values: FloatP, live: NDArray[np.bool_], codes: IntP, n_groups: int
) -> tuple[FloatP, FloatP]:
    """Return each group's range of live values and their largest magnitude; 0 where none is live."""
    high, low = np.full(n_groups, -np.inf), np.full(n_groups, np.inf)
    np.maximum.at(high, codes[live], values[live])
    np.minimum.at(low, codes[live], values[live])
    some = np.isfinite(high)
    high, low = np.where(some, high, 0.0), np.where(some, low, 0.0)
    # Halved first, because the range of two floats can exceed the largest float.
    half = 0.5 * high - 0.5 * low
    return np.minimum(half, np.finfo(np.float64).max / 2) * 2.0, np.maximum(np.abs(high), np.abs(low))
