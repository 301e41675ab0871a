"""Reinforce-Ada: rounds of rollouts until a prompt has the outcomes for its group, of which a balanced part trains.

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
        until: "positive" ends a prompt with one right answer, "balance" with half of ``balance`` right and as many
            wrong.
        step: rollouts of a round.
        most: most rollouts of a prompt.
        rows: rows of a group that train, half right and half wrong where there are enough; None takes the average
            group of the host's batch. Published: 4.
        balance: size of the balanced group that "balance" waits for.
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
    "reinforce-ada",
    build,
    "in order | none | rounds; a balanced part trains | one is right, or enough of both | arXiv 2510.04996",
    place=80,
    small={"step": 3, "most": 8, "rows": 4},
)
