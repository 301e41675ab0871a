"""The lab's strategies by name: every preset, and those with exact success rates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from neyman import rules
from neyman.beliefs import Belief
from neyman.errors import ArgumentError
from neyman.formulas.variance import MINIMUM_GROUP_SIZE
from neyman.lab.oracle import ToldBelief
from neyman.presets import PRESETS, strategy_by_name, unknown_name
from neyman.strategy import Strategy

ORACLES = ("oracle", "vip-oracle")
TOLD = "neyman-told"


def strategy_names() -> tuple[str, ...]:
    """Return every name that the lab knows."""
    return (*PRESETS, *ORACLES, TOLD)


def build_strategy(
    name: str, options: Mapping[str, Any], *, estimator: str, group_size: int, oracle: Belief
) -> Strategy:
    """Return a strategy for an experiment.

    Bounds follow the group size as everywhere (`neyman.presets.strategy_by_name`). DynaMO's token factor is left
    out: answers have four tokens, and the lab compares the allocation of rollouts.

    Args:
        name: a preset, "oracle" (the best p(1-p) among 4 times the prompts, exact counts), "vip-oracle" (exact counts
            for the prompts as they come) or "neyman-told" (`neyman`, with the exact rate of each prompt it tries).
        options: of the preset.
        estimator: how advantages are computed.
        group_size: the experiment's average.
        oracle: the belief with exact rates.

    Raises:
        ArgumentError: an unknown name or option.
    """
    objective = "rloo" if estimator == "reinforce++" else estimator  # which has no baseline of its own group
    least = MINIMUM_GROUP_SIZE[objective]
    given = dict(options)
    if name in ORACLES:
        allocate = rules.VarianceOptimal(
            given.pop("lower", least), given.pop("upper", 32), estimator=objective
        )
        select = (
            rules.HighestVariance(among=given.pop("among", 4.0), explore="mean")
            if name == "oracle"
            else rules.InOrder()
        )
        strategy = Strategy(name=name, select=select, allocate=allocate, belief=oracle, estimator=estimator)
        if given:
            raise ArgumentError(
                f"strategy {name!r} has no option {', '.join(sorted(given))}; its own are lower, upper"
                + (", among" if name == "oracle" else "")
            )
        return strategy
    if name not in strategy_names():
        raise unknown_name("strategy", name, list(strategy_names()))
    ours = strategy_by_name(
        "neyman" if name == TOLD else name,
        options,
        group_size=group_size,
        defaults={"estimator": estimator, "modulation": None},
    )
    return replace(ours, name=TOLD, belief=ToldBelief(ours.belief, oracle)) if name == TOLD else ours
