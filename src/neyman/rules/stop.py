"""When a group is finished."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from typing import Final, final

import numpy as np

from neyman import formulas
from neyman._checks import choice, integer, real
from neyman.errors import ArgumentError
from neyman.formulas.worth import pure_worth, stays_pure
from neyman.rules._contracts import StepView, Verdict
from neyman.rules.select import waste_of


@lru_cache(maxsize=4096)  # groups of a step share few prefixes and priors
def _effective(successes: int, trials: int, group_size: int, prior: tuple[float, float]) -> float:
    """Return `neyman.formulas.effective_probability` of a pure prefix, in floats: it is asked group by group."""
    if prior == (1.0, 1.0):  # the rounded quotient, which decides at thresholds such as 4/9
        return (group_size - trials) / (group_size + 1.0)
    a, b = reversed(prior) if successes else prior
    return float(1.0 - stays_pure(a, b, trials, group_size))


_UNKNOWN: Final = 2.0  # waste where nothing is known: half of the groups are mixed
_DEAREST: Final = 20.0  # waste beyond which a price is not believed
_AMONG: Final = 8  # candidates looked at per group, for the price


@lru_cache(maxsize=4096)
def _worth(
    prior: tuple[float, float],
    group_size: int,
    failures: int,
    successes: int,
    looks: tuple[int, ...],
    waste: float,
) -> float:
    a, b = prior if failures else reversed(prior)
    return float(pure_worth(a, b, group_size, failures or successes, looks, waste))


def _check_schedule(schedule: tuple[int, ...], *, least: int) -> None:
    if not schedule or any(b <= a for a, b in pairwise(schedule)):
        raise ArgumentError(
            f"schedule must be increasing prefix lengths such as (4,) or (2, 3, 4), got {schedule!r}"
        )
    integer("schedule", schedule[0], low=least)


@lru_cache(maxsize=256)  # asked for each group of a step, and for each group that is audited
def _uniform_index(group_size: int, threshold: float) -> int:
    return max(formulas.abandon_index(group_size, threshold))


@final
@dataclass(frozen=True, slots=True)
class EarlyVerdict(Verdict):
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
        prior: Beta parameters for every prompt, whatever the belief says; None takes each prompt's own.

    Source: SARA, arXiv 2607.26253, section 3; asymmetric priors are ours.
    """

    threshold: float = 0.45
    schedule: tuple[int, ...] | None = None
    min_probe: int = 2
    after_commit: str = "complete"
    speculate: bool = False
    prior: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        real("threshold", self.threshold, low=0.0, high=1.0)
        integer("min_probe", self.min_probe, low=2)
        choice("after_commit", self.after_commit, ("complete", "stop"))
        if self.schedule is not None:
            _check_schedule(self.schedule, least=self.min_probe)
        if self.prior is not None:
            for parameter in self.prior:
                real("prior", parameter, low=0.0, open_low=True)

    def looks(self, group_size: int) -> tuple[int, ...]:
        """Return the prefix lengths at which a verdict is taken, ending with the group's size."""
        if self.schedule is not None:
            early = [look for look in self.schedule if look < group_size]
        else:
            index = _uniform_index(group_size, self.threshold)
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
        effective = _effective(successes, trials, group_size, self.prior or prior)
        return "abandon" if effective < self.threshold else "continue"


@final
@dataclass(frozen=True, slots=True)
class FullGroup(Verdict):
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


@final
@dataclass(frozen=True, slots=True)
class WorthVerdict(Verdict):
    """Abandon a pure prefix once its rollouts buy more elsewhere.

    Rule: mixed prefix -> commit; pure prefix -> continue while that is worth more than nothing
    (`neyman.formulas.group_worth`), under the prompt's own prior and optimal stopping at the later looks.

    Args:
        waste: rollouts that a rollout in an effective group costs elsewhere; "auto" takes what it costs at the
            dearest of the candidates that the step needs, by the belief.
        schedule: prefix lengths at which a group may be abandoned. Each is a round of the engine for the groups
            that are still pure; more looks save rollouts and cost latency.
        after_commit: "complete" draws the group to its full size; "stop" trains the prefix as it is.

    Guarantee: the fewest rollouts per effective group at these looks, if the prompts' priors are right and fresh
    prompts cost ``waste``.
    """

    waste: float | str = "auto"
    schedule: tuple[int, ...] = (1, 2, 4)
    after_commit: str = "complete"

    def __post_init__(self) -> None:
        if self.waste != "auto":
            real("waste", self.waste, low=1.0)
        choice("after_commit", self.after_commit, ("complete", "stop"))
        _check_schedule(self.schedule, least=1)

    def price(self, view: StepView, groups: int) -> float | None:
        """Return the price of a step that needs ``groups`` groups, as it begins; None where it is fixed."""
        if self.waste != "auto":
            return None
        ids = list(view.candidates) + view.browse(_AMONG * groups)
        waste = np.sort(waste_of(view, ids, self.schedule))[min(groups, len(ids)) - 1] if ids else _UNKNOWN
        return min(float(waste), _DEAREST)

    def priced(self, price: float | None) -> WorthVerdict:
        """Return the verdict at a step's `price`.

        Raises:
            ArgumentError: no price where the verdict needs one, one where its own is fixed, or one below 1.
        """
        if (price is None) is (self.waste == "auto"):
            raise ArgumentError(f"a verdict with waste={self.waste!r} cannot take the price {price!r}")
        return self if price is None else replace(self, waste=real("price", price, low=1.0))

    def looks(self, group_size: int) -> tuple[int, ...]:
        """Return the scheduled prefix lengths, ending with the group's size."""
        return (*(look for look in self.schedule if look < group_size), group_size)

    def decide(self, successes: int, trials: int, group_size: int, prior: tuple[float, float]) -> str:
        """Return the verdict on a prefix with ``successes`` of ``trials`` valid outcomes."""
        if 0 < successes < trials:
            return "commit"
        if trials >= group_size:
            return "abandon"
        if not trials:
            return "continue"
        looks = tuple(sorted({trials, *self.looks(group_size)}))
        waste = _UNKNOWN if isinstance(self.waste, str) else self.waste
        worth = _worth(prior, group_size, trials - successes, successes, looks, waste)
        return "continue" if worth > 0.0 else "abandon"
