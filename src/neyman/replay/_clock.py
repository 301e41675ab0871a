"""The virtual clock: the rollouts and tokens spent, and the current visit of a prompt."""

from __future__ import annotations

from bisect import bisect_right
from typing import final

from neyman.replay._trace import Trace


@final
class Clock:
    """Counts rollouts and tokens; its hand is in passes over the prompts.

    A pass is the cost of one group for every prompt of the pool, wherever the rollouts went:
    rollouts / (group size x prompts). So a strategy that spends more a step ages the policy as fast as one
    that takes more steps, and all are compared at equal rollouts.
    """

    def __init__(self, trace: Trace, *, group_size: int) -> None:
        self._first: list[int] = trace.first.tolist()
        self._time: list[float] = trace.time.tolist()
        self._pass = group_size * trace.prompts
        self.rollouts = self.tokens = 0

    @property
    def passes(self) -> float:
        """The time, in passes since the start."""
        return self.rollouts / self._pass

    def spend(self, rollouts: int, tokens: int) -> None:
        """Let the engine generate."""
        self.rollouts += rollouts
        self.tokens += tokens

    def visit(self, prompt: int) -> int:
        """Return the visit of a prompt that is current: the last that has begun, else its first."""
        low, high = self._first[prompt], self._first[prompt + 1]
        return max(low, bisect_right(self._time, self.passes, low, high) - 1)
