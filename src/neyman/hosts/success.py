"""Success read off a number: a binary reward itself, or any number with a threshold."""

from __future__ import annotations

import math

from neyman.controller import MissingReward, binary_outcome
from neyman.errors import ContractError

_ROUNDING = 1e-6  # of thresholds: trainers keep rewards in float32, in which .9 is less than .9


def reaches(value: float | None, threshold: float, source: str) -> bool | MissingReward:
    """Return whether a number reaches a threshold; a missing result where there is no number.

    Args:
        value: the number; None or NaN where there is none.
        threshold: the least value that is a success.
        source: where the number is from, up to the value, for the log.

    >>> reaches(0.7, 0.5, "acc="), reaches(None, 0.5, "the reward function returned acc=")
    (True, MissingReward('the reward function returned acc=None', status='failed'))
    """
    if value is None or math.isnan(value):
        return MissingReward(f"{source}{value}")
    return value >= threshold - _ROUNDING


def read_binary(reward: float, source: str, way_out: str) -> bool:
    """Return whether a binary reward is a success: 1 is one, 0 and -1 are none.

    Args:
        reward: a number.
        source: the function that returned it, for the error.
        way_out: how success is named in this trainer, for the error.

    Raises:
        ContractError: the reward is not binary.

    >>> read_binary(1.0, "the reward function", "name success"), read_binary(-1.0, "it", "name success")
    (True, False)
    """
    success = binary_outcome(reward)
    if success is None:
        raise ContractError(
            f"{source} returned {reward:g}, which is not binary (1, or 0 or -1), so that success cannot be read off "
            f"it: {way_out}"
        )
    return success
