"""SARA: early verdicts that commit a group once it is mixed, and abandon it when it will probably stay pure.

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
        threshold: chance to become mixed below which a pure prefix is abandoned.
        schedule: prefix lengths at which a group may be abandoned; None takes the abandon index of a uniform prior.
        min_probe: fewest rollouts before a verdict.
        after_commit: "complete" draws a committed group to its full size, "stop" trains the prefix.
        speculate: request whole groups at once, and cancel the rollouts that a verdict makes unnecessary.
        order: selection of prompts: "uniform" (in the host's order), or that of the presets "dps" or "mopps".
        variant: "calibrated" takes each prompt's prior from the belief, which learns over the run; "published" takes
            the uniform prior at every step, regardless of earlier results.
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


PRESET = Preset("sara", build, "in order | counts | full groups | early | arXiv 2607.26253", place=20)
