"""Verdicts on groups while they are drawn: early by probability (SARA), at full size (DAPO), or by price."""

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
    """Return `neyman.formulas.effective_probability` of a pure prefix, in plain floats, as for one group at a time."""
    if prior == (1.0, 1.0):  # the correctly rounded quotient, so that thresholds such as 4/9 are ties
        return (group_size - trials) / (group_size + 1.0)
    a, b = reversed(prior) if successes else prior
    return float(1.0 - stays_pure(a, b, trials, group_size))


_UNKNOWN: Final = 2.0  # price without candidates: as if half of the groups were mixed
_DEAREST: Final = 20.0  # cap of the price, which rests on the belief's tail
_AMONG: Final = 8  # candidates per group that set the price


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


@lru_cache(maxsize=256)  # needed for each group of a step, and again in the audit
def _uniform_index(group_size: int, threshold: float) -> int:
    return max(formulas.abandon_index(group_size, threshold))


@final
@dataclass(frozen=True, slots=True)
class EarlyVerdict(Verdict):
    """SARA: commit a group once it is mixed, abandon it when it will probably stay pure.

    Rule: mixed prefix -> commit; pure prefix with P(mixed at the group's size | prefix) < threshold -> abandon;
    else continue. The probability is Beta-binomial under the prompt's prior (docs/methods.md).

    Args:
        threshold: chance to become mixed below which a pure prefix is abandoned. Averaged over the assumed prior, at
            most this share of the abandoned groups would have become mixed; that is no frequentist bound. Each step
            reports an estimate of the realised share.
        schedule: prefix lengths at which a group may be abandoned; None takes the abandon index of a uniform
            prior, so that a wave costs one round. Mixed prefixes commit at once, at any length.
        min_probe: fewest rollouts before a verdict (U-shaped priors would abandon after one).
        after_commit: "complete" draws the group to its full size, the only reading that fits the published
            savings; "stop" trains the prefix as it is.
        speculate: request the whole group at once, and cancel the rollouts that a verdict makes unnecessary, for
            hosts that stream and abort; by default requests go from look to look.
        prior: Beta parameters for every prompt, in place of the belief's; None takes each prompt's own.

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
        early = self.schedule or (max(self.min_probe, _uniform_index(group_size, self.threshold)),)
        return (*(look for look in early if look < group_size), group_size)

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
    """Dynamic sampling: judge a group when it is complete, and discard it when it has zero variance.

    Source: DAPO, arXiv 2503.14476.
    """

    after_commit: str = "complete"

    def looks(self, group_size: int) -> tuple[int, ...]:
        """Return the group's size as the only look."""
        return (group_size,)

    def decide(self, successes: int, trials: int, group_size: int, prior: tuple[float, float]) -> str:
        """Return "commit" for mixed outcomes, "abandon" for equal ones."""
        del group_size, prior
        return "commit" if 0 < successes < trials else "abandon"


@final
@dataclass(frozen=True, slots=True)
class WorthVerdict(Verdict):
    """Abandon a pure prefix once its rollouts buy more elsewhere.

    Rule: mixed prefix -> commit; pure prefix -> continue while that has a positive value
    (`neyman.formulas.group_worth`), under the prompt's own prior and optimal stopping at the later looks.

    Args:
        waste: rollouts that must be drawn on other prompts to get one rollout in a mixed group; "auto" takes those
            at the most expensive of the candidates that the step needs, by the belief.
        schedule: prefix lengths at which a group may be abandoned. Each is a round of generation for the groups
            that are still pure; more looks save rollouts and add latency.
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
        # The step fills its groups with the cheapest candidates, so that the last of them sets the price.
        ids = list(view.candidates) + view.browse(_AMONG * groups)
        waste = np.sort(waste_of(view, ids, self.schedule))[min(groups, len(ids)) - 1] if ids else _UNKNOWN
        return min(float(waste), _DEAREST)

    def priced(self, price: float | None) -> WorthVerdict:
        """Return the verdict at a step's `price`.

        Raises:
            ArgumentError: no price where ``waste="auto"`` needs one, a price beside a fixed ``waste``, or one below 1.
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
