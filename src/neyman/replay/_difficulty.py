"""Moments of a pool's difficulty, from recorded counts without bias, or from a Beta distribution."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, final

import numpy as np
from numpy.typing import ArrayLike

from neyman._checks import FloatP, counts_pair, integer, real
from neyman.errors import ArgumentError


class Difficulty(Protocol):
    """How the success rates of a pool are spread."""

    @property
    def prompts(self) -> int:
        """Prompts (or groups) behind the moments; 0 where they are assumed."""
        ...

    def moments(self, powers: list[tuple[int, int]]) -> FloatP:
        """Return E[(1-p)^a p^b] for each (a, b), shape (prompts or 1, powers): a row per prompt."""
        ...


@final
@dataclass(frozen=True)
class BetaDifficulty:
    """Success rates that follow Beta(a, b).

    Args:
        a: of successes, > 0.
        b: of failures, > 0.
    """

    a: float
    b: float

    def __post_init__(self) -> None:
        real("a", self.a, low=0.0, open_low=True)
        real("b", self.b, low=0.0, open_low=True)

    @property
    def prompts(self) -> int:
        """None are recorded."""
        return 0

    def moments(self, powers: list[tuple[int, int]]) -> FloatP:
        """Return E[(1-p)^fails p^wins] for each pair: a product of rising factorials."""
        row = []
        for fails, wins in powers:
            rising = np.concatenate([self.b + np.arange(fails), self.a + np.arange(wins)])
            row.append(float(np.prod(rising / (self.a + self.b + np.arange(fails + wins)))))
        return np.array([row])


@final
class CountDifficulty:
    """Success rates behind counts of successes.

    The unbiased estimate of (1-p)^a p^b from s successes in n trials is the chance that a + b trials drawn
    without replacement are a failures and then b successes: (n-s)_a (s)_b / (n)_{a+b} with falling factorials.
    (Putting s/n for p overstates how many groups stay pure.)

    Args:
        successes: int64, one per prompt or visit.
        trials: int64, at least 1 each.

    Raises:
        ArgumentError: counts that do not fit, or none.
    """

    def __init__(self, successes: ArrayLike, trials: ArrayLike) -> None:
        s, n = counts_pair(successes, trials)
        self._s, self._n = s[n > 0], n[n > 0]
        if not len(self._n):
            raise ArgumentError("difficulty needs at least one prompt with a trial, got none")

    @property
    def prompts(self) -> int:
        """Prompts with counts."""
        return len(self._n)

    def usable(self, trials: int) -> CountDifficulty:
        """Return the prompts with at least so many trials; with fewer there is no unbiased estimate.

        Raises:
            ArgumentError: there are none.
        """
        integer("trials", trials, low=1)
        enough = self._n >= trials
        if not enough.any():
            raise ArgumentError(
                f"groups of {trials} need prompts with at least {trials} recorded trials, and the most here is "
                f"{self._n.max()}; choose smaller groups, or sample more"
            )
        return CountDifficulty(self._s[enough], self._n[enough])

    def moments(self, powers: list[tuple[int, int]]) -> FloatP:
        """Return the unbiased estimates, a row per prompt."""
        s, n = self._s.astype(np.float64), self._n.astype(np.float64)
        table = np.ones((len(n), len(powers)))
        for column, (fails, wins) in enumerate(powers):
            for i in range(fails):
                table[:, column] *= np.maximum(n - s - i, 0.0) / np.maximum(n - i, 1.0)
            for i in range(wins):
                table[:, column] *= np.maximum(s - i, 0.0) / np.maximum(n - fails - i, 1.0)
        return table
