"""SARA: commit a group once its outcomes are mixed, abandon it when it is expected to stay uniform.

Source: SARA, arXiv 2607.26253.
"""

from __future__ import annotations

from neyman import beliefs, rules
from neyman._checks import choice
from neyman.beliefs import Belief
from neyman.presets import dps, mopps
from neyman.presets._preset import Preset
from neyman.rules import Select
from neyman.strategy import Strategy

ORDERS = ("uniform", "dps", "mopps")


def build(
    *,
    group_size: int | None = None,
    threshold: float = 0.45,
    schedule: tuple[int, ...] | None = None,
    min_probe: int = 2,
    after_commit: str = "complete",
    speculate: bool = False,
    order: str = "uniform",
    variant: str = "calibrated",
) -> Strategy:
    """Return `sara`.

    Args:
        group_size: rollouts of a complete group; None divides the rows to train on by the number of prompts.
        threshold: abandon a pure prefix whose chance to become mixed is below it.
        schedule: prefix lengths at which a group may be abandoned; None takes the abandon index of a uniform prior.
        min_probe: never decide before so many rollouts.
        after_commit: "complete" draws a committed group to its full size, "stop" trains the prefix.
        speculate: ask for whole groups at once and cancel what a verdict makes needless.
        order: which prompts come first: "uniform", "dps" or "mopps", each as its own preset orders them.
        variant: "calibrated" takes each prompt's prior from the belief, which learns over the run; "published" takes
            the uniform prior at every step, whatever was seen before.
    """
    choice("order", order, ORDERS)
    choice("variant", variant, ("calibrated", "published"))
    verdict = rules.EarlyVerdict(
        threshold,
        schedule=schedule,
        min_probe=min_probe,
        after_commit=after_commit,
        speculate=speculate,
        prior=(1.0, 1.0) if variant == "published" else None,
    )
    select, belief = _ordered(order, group_size)
    return Strategy(
        name="sara" if order == "uniform" else f"sara+{order}",
        select=select,
        belief=belief,
        allocate=rules.Each(group_size),
        verdict=verdict,
        close="fixed_train",
    )


def _ordered(order: str, group_size: int | None) -> tuple[Select, Belief]:
    """Return the selection of an order, and the belief that it ranks by."""
    if order == "uniform":
        return rules.InOrder(), beliefs.Counts()
    build = dps.build if order == "dps" else mopps.build
    base: Strategy = build(group_size=group_size)
    return base.select, base.belief


PRESET = Preset(
    name="sara",
    build=build,
    place=20,
    parts=("in order", "counts", "full groups", "early"),
    source="arXiv 2607.26253",
    small={"group_size": 4},
)
