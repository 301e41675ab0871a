"""A recorded run as arrays: the outcomes and the time of every visit of every prompt."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from typing import final

import numpy as np
from numpy.typing import NDArray

from neyman._checks import FloatP, IntP
from neyman.errors import ArgumentError

_ARRAYS = ("first", "time", "successes", "trials", "tokens", "rollout_success", "rollout_tokens")


@final
@dataclass(frozen=True, kw_only=True)
class Trace:
    """A recorded run, with one row per visit: the rollouts of one prompt at one time.

    Args:
        first: int64 [P + 1]; the visits of prompt q are ``first[q] .. first[q + 1] - 1``, by rising time.
        time: float64 [V], when each visit took place, in passes over the prompts since the first.
        successes: int64 [V], verified successes of each visit.
        trials: int64 [V], valid rollouts of each visit, at least 1.
        tokens: float64 [V, 2], mean completion tokens of failures and of successes; None where unknown.
        rollout_success: uint8 [sum of trials], each rollout's outcome, visit after visit; None where only
            counts are known.
        rollout_tokens: int64 [sum of trials], beside it; None where unknown.
        passes: the span of the record, in passes.

    Raises:
        ArgumentError: no visits, or arrays that do not fit one another.

    Cost: 48 bytes a visit, and 9 a rollout where rollouts are known one by one.
    """

    first: IntP
    time: FloatP
    successes: IntP
    trials: IntP
    passes: float
    tokens: FloatP | None = None
    rollout_success: NDArray[np.uint8] | None = None
    rollout_tokens: IntP | None = None

    def __post_init__(self) -> None:
        visits = len(self.trials)
        if not visits:
            raise ArgumentError("the record holds no rollout with a result; nothing can be replayed")
        fits = (
            len(self.first) >= 2
            and self.first[-1] == visits == len(self.time) == len(self.successes)
            and (np.diff(self.first) >= 1).all()
            and (self.trials >= 1).all()
            and ((self.successes >= 0) & (self.successes <= self.trials)).all()
        )
        if not fits:
            raise ArgumentError(
                f"the trace's arrays do not fit: {len(self.first) - 1} prompts, {visits} visits with trials from "
                f"{self.trials.min()}, successes from {self.successes.min()}; every prompt needs a visit, every visit "
                "0 <= successes <= trials and trials >= 1"
            )
        rollouts = int(self.trials.sum())
        for name in ("rollout_success", "rollout_tokens"):
            value = getattr(self, name)
            if value is not None and len(value) != rollouts:
                raise ArgumentError(f"{name} must hold one entry per rollout ({rollouts}), got {len(value)}")

    @property
    def prompts(self) -> int:
        """The number of prompts."""
        return len(self.first) - 1

    @property
    def is_static(self) -> bool:
        """Whether every prompt has one visit, so that the clock never moves it."""
        return len(self.trials) == self.prompts

    @cached_property
    def spread(self) -> FloatP:
        """Unbiased p(1-p) of each visit, float64 [V]: s (n-s) / (n (n-1)); 0 where there is one rollout."""
        s, n = self.successes.astype(np.float64), self.trials.astype(np.float64)
        return np.divide(s * (n - s), n * (n - 1.0), out=np.zeros(len(n)), where=n > 1)

    @property
    def fingerprint(self) -> str:
        """A hash of the content."""
        digest = blake2b(digest_size=12)
        for name in _ARRAYS:
            value = getattr(self, name)
            digest.update(name.encode() + (b"-" if value is None else np.ascontiguousarray(value).tobytes()))
        return digest.hexdigest()
