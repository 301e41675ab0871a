"""When a group is finished."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import final

from neyman import formulas
from neyman._checks import choice, integer, real
from neyman.errors import ArgumentError


@lru_cache(maxsize=4096)  # groups of a step share few prefixes and priors
def _effective(successes: int, trials: int, group_size: int, prior: tuple[float, float]) -> float:
    return float(formulas.effective_probability(successes, trials, group_size, prior))


@final
@dataclass(frozen=True, slots=True)
class EarlyVerdict:
    """SARA: commit a group once its outcomes are mixed, abandon it when it is expected to stay uniform.

    Rule: mixed prefix -> commit; pure prefix with P(mixed at the group's size | prefix) < threshold -> abandon;
    else continue. The probability is Beta-binomial under the prompt's prior (docs/methods.md).

    Args:
        threshold: abandon below it. No frequentist bound: averaged over the assumed prior, at most this share of
            the abandoned groups would have become mixed; the step reports the realised share.
        schedule: prefix lengths at which a group may be abandoned; None takes the abandon index of a uniform
            prior, so that a wave costs one round. Mixed prefixes commit at once, whatever the schedule.
        min_probe: never decide before so many rollouts (U-shaped priors would abandon after one).
        after_commit: "complete" draws the group to its full size, the only reading that fits the published
            savings; "stop" trains the prefix as it is.
        speculate: ask for the whole group at once and cancel what a verdict makes needless, for hosts that
            stream and abort; the default asks from look to look.

    Source: SARA, arXiv 2607.26253, section 3; asymmetric priors are ours.
    """

    threshold: float = 0.45
    schedule: tuple[int, ...] | None = None
    min_probe: int = 2
    after_commit: str = "complete"
    speculate: bool = False

    def __post_init__(self) -> None:
        real("threshold", self.threshold, low=0.0, high=1.0)
        integer("min_probe", self.min_probe, low=2)
        choice("after_commit", self.after_commit, ("complete", "stop"))
        if self.schedule is not None:
            if not self.schedule or any(
                b <= a for a, b in zip(self.schedule, self.schedule[1:], strict=False)
            ):
                raise ArgumentError(
                    f"schedule must be increasing prefix lengths such as (4,) or (2, 3, 4), got {self.schedule!r}"
                )
            integer("schedule", self.schedule[0], low=self.min_probe)

    def looks(self, group_size: int) -> tuple[int, ...]:
        """Return the prefix lengths at which a verdict is taken, ending with the group's size."""
        if self.schedule is not None:
            early = [look for look in self.schedule if look < group_size]
        else:
            index = max(formulas.abandon_index(group_size, self.threshold))
            early = [look for look in (max(self.min_probe, index),) if look < group_size]
        return (*sorted(set(early)), group_size)

    def decide(self, successes: int, trials: int, group_size: int, prior: tuple[float, float]) -> str:
        """Return the verdict on a prefix with ``successes`` of ``trials`` valid outcomes."""
        if 0 < successes < trials:
            return "commit"
        if trials >= group_size:
            return "abandon"
        if trials < self.min_probe:
            return "continue"
        effective = _effective(successes, trials, group_size, prior)
        return "abandon" if effective < self.threshold else "continue"


@final
@dataclass(frozen=True, slots=True)
class FullGroup:
    """Dynamic sampling: judge a group when it is complete, and discard it when its outcomes are uniform.

    Source: DAPO, arXiv 2503.14476.
    """

    after_commit: str = "complete"

    def looks(self, group_size: int) -> tuple[int, ...]:
        """Return the group's size as the only look."""
        return (group_size,)

    def decide(self, successes: int, trials: int, group_size: int, prior: tuple[float, float]) -> str:
        """Return "commit" for mixed outcomes, "abandon" for uniform ones."""
        del group_size, prior
        return "commit" if 0 < successes < trials else "abandon"
