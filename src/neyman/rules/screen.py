"""Screening: a verdict on each prompt after a few rollouts, and the rest of the group for those that pass."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

from neyman._checks import integer, real
from neyman.errors import ArgumentError
from neyman.rules._contracts import Verdict

_ROUNDING = 1e-9  # shares such as .7 and 7/10 must compare as equal


@final
@dataclass(frozen=True, slots=True)
class Screen(Verdict):
    """Judge a prompt once, after its first rollouts: complete its group if they are mixed and within a band.

    Rule: with s of n valid first rollouts solved, commit if 0 < s < n and lower <= s/n <= 1 - upper, else abandon.
    The first rollouts are part of the group at any size, so that none is counted twice.

    Args:
        first: rollouts before the verdict; None takes a quarter of the group, at least 2.
        lower: least share of solved rollouts.
        upper: least share of unsolved rollouts.

    Guarantee: a group that the step does not need is not completed; its first rollouts may be carried over to a later
    step (``max_age``). Mixed prefixes outside the band are given up too, which changes the prompts' weights in the
    objective; ``signal_kept`` estimates that loss from the committed groups.
    Source: SPEED-RL, arXiv 2506.09016 (no band); Pilot-Commit, arXiv 2605.26606 (band).
    """

    first: int | None = 4
    lower: float = 0.0
    upper: float = 0.0
    after_commit: ClassVar[str] = "complete"
    holds_surplus: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.first is not None:
            integer("first", self.first, low=2)
        real("lower", self.lower, low=0.0, high=1.0)
        real("upper", self.upper, low=0.0, high=1.0)
        if self.lower + self.upper > 1.0 + _ROUNDING:
            raise ArgumentError(
                f"lower + upper must be at most 1, so that some share passes, got {self.lower} + {self.upper}"
            )

    @property
    def at_looks(self) -> bool:
        """Whether a mixed prefix waits for its look; without a band it passes as soon as it is mixed."""
        return self.lower > 0.0 or self.upper > 0.0

    def looks(self, group_size: int) -> tuple[int, ...]:
        """Return the first look and the group's size."""
        first = max(2, group_size // 4) if self.first is None else self.first
        return (first, group_size) if first < group_size else (group_size,)

    def decide(self, successes: int, trials: int, group_size: int, prior: tuple[float, float]) -> str:
        """Return the verdict on a prefix with ``successes`` of ``trials`` valid outcomes."""
        del group_size, prior
        if not 0 < successes < trials:
            return "abandon"
        rate = successes / trials
        is_within = self.lower - _ROUNDING <= rate <= 1.0 - self.upper + _ROUNDING
        return "commit" if is_within else "abandon"
