"""Reinforce-Ada: rounds for every prompt until it has the outcomes its group needs, then a balanced part of them.

Source: Reinforce-Ada, arXiv 2510.04996.
"""

from __future__ import annotations

from neyman import rules
from neyman._checks import choice
from neyman.presets._preset import Preset
from neyman.strategy import Strategy


def build(
    *, until: str = "positive", step: int = 8, most: int = 32, rows: int | None = None, balance: int = 4
) -> Strategy:
    """Return `reinforce-ada`.

    Args:
        until: a prompt leaves with one right answer ("positive"), or with half of ``balance`` right and as many
            wrong ("balance").
        step: rollouts of a round.
        most: rollouts of a prompt.
        rows: rows of a group that train, half right and half wrong as far as there are; None takes what the host's
            batch has for each prompt. Published: 4.
        balance: the group that "balance" waits for.
    """
    half = balance // 2
    waits = {
        "positive": rules.Until(step),
        "balance": rules.Until(step, right=max(1, half), wrong=max(1, half)),
    }
    return Strategy(
        name="reinforce-ada",
        allocate=rules.Each(most),
        verdict=waits[choice("until", until, tuple(waits))],
        close="fixed_train",
        keep=rules.Balanced(rows),
        baseline="group",
        estimator="dr_grpo",
    )


PRESET = Preset(
    name="reinforce-ada",
    build=build,
    place=80,
    parts=("in order", "none", "rounds; a balanced part trains", "one is right, or enough of both"),
    source="arXiv 2510.04996",
    small={"step": 3, "most": 8, "rows": 4},
)
