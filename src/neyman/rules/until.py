"""Rounds of rollouts for each prompt until its group has enough right and wrong ones."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count, takewhile
from typing import ClassVar, final

from neyman._checks import integer
from neyman.rules._contracts import Verdict


@final
@dataclass(frozen=True, slots=True)
class Until(Verdict):
    """Draw rounds of rollouts for a prompt until enough of them are right, and enough are wrong.

    Rule, after each whole round with s of n solved: s >= right and n - s >= wrong -> the group ends with its rollouts
    so far; else another round, up to the group's size. Groups that end with zero variance are given up.

    Args:
        step: rollouts of a round.
        right: solved rollouts to wait for.
        wrong: unsolved rollouts to wait for.

    Bias: stopping depends on the outcomes. With ``right=1, wrong=0`` the mean of a group is above the success rate of
    a hard prompt, because one success ends the draw; as a baseline it lowers the advantages
    (docs/methods/reinforce-ada.md has figures). Single rollouts stay unbiased given their outcome.

    Source: Reinforce-Ada, arXiv 2510.04996 (both exits); AR3PO, arXiv 2509.25808 (one right answer).
    """

    step: int = 8
    right: int = 1
    wrong: int = 0
    after_commit: ClassVar[str] = "stop"
    at_looks: ClassVar[bool] = True

    def __post_init__(self) -> None:
        integer("step", self.step, low=1)
        integer("right", self.right, low=1)
        integer("wrong", self.wrong, low=0)

    def looks(self, group_size: int) -> tuple[int, ...]:
        """Return the ends of the rounds; the last may be short."""
        return (*takewhile(lambda n: n < group_size, count(self.step, self.step)), group_size)

    def decide(self, successes: int, trials: int, group_size: int, prior: tuple[float, float]) -> str:
        """Return the verdict on a prefix with ``successes`` of ``trials`` valid outcomes."""
        del prior
        # Counted over all rounds: a prompt may have its right answers in one round and its wrong ones in another.
        leaves = successes >= self.right and trials - successes >= self.wrong
        if not leaves and trials < group_size:
            return "continue"
        return "commit" if 0 < successes < trials else "abandon"
