"""The reading of a binary reward as an outcome: 1 is a success, 0 and -1 are none."""

from __future__ import annotations

_TOLERANCE = 1e-6


def binary_outcome(reward: float) -> bool | None:
    """Return whether a reward means success; None where it is not binary, so that success must be named.

    Args:
        reward: a number, no NaN.

    >>> [binary_outcome(reward) for reward in (1.0, 0.0, -1.0, 0.5)]
    [True, False, False, None]
    """
    if abs(reward - 1.0) <= _TOLERANCE:
        return True
    return False if min(abs(reward), abs(reward + 1.0)) <= _TOLERANCE else None
