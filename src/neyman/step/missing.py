"""A missing reward with its reason, which distinguishes a timeout from a wrong answer."""

from __future__ import annotations

import math
from typing import Any, final

from neyman._checks import choice
from neyman.step.messages import Status

_STATUSES = tuple(str(status) for status in Status if status is not Status.OK)


@final
class MissingReward(float):
    """A NaN with the reason why there is no reward; reward functions return it in place of a number.

    Every host that takes NaN (or None) for a missing reward takes it, TRL's stock trainers too; neyman reads the
    reason, so that the ledger counts a verifier's timeout as a timeout.

    Args:
        why: the cause, for the log.
        status: "failed", "timeout" or "aborted".

    Raises:
        ArgumentError: another status.

    >>> reward = MissingReward("no verdict within 5 s", status="timeout")
    >>> reward, reward != reward
    (MissingReward('no verdict within 5 s', status='timeout'), True)
    """

    why: str
    status: Status

    def __new__(cls, why: str, status: Status | str = Status.FAILED) -> MissingReward:
        """Make a NaN with its reason."""
        self = super().__new__(cls, math.nan)
        self.status = Status(choice("status", str(status), _STATUSES))
        self.why = str(why)
        return self

    def __getnewargs__(self) -> tuple[Any, ...]:
        return self.why, str(self.status)

    def __repr__(self) -> str:
        return f"MissingReward({self.why!r}, status={str(self.status)!r})"
