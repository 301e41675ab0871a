"""A first step on a copy: whether a strategy's numbers fit a host's, found out before the run and not in it."""

from __future__ import annotations

from collections.abc import Sequence

from neyman.controller import Controller
from neyman.randomness import PromptId
from neyman.step.messages import Budget
from neyman.strategy import Strategy


def rehearse(
    strategy: Strategy,
    budget: int,
    candidates: Sequence[PromptId],
    *,
    train_rows: int | None = None,
    pool: Sequence[PromptId] | None = None,
    aggregation: str = "sequence_mean",
) -> None:
    """Plan a step as a run would, and throw it away.

    Args:
        strategy: the strategy; its belief is copied, its rules are called once.
        budget: rollouts per step.
        candidates: as many prompts as the host will bring.
        train_rows: rows that the optimiser must get.
        pool: all prompt ids.
        aggregation: how the host's loss averages tokens.

    Raises:
        ArgumentError: what `Controller` and its ``begin`` raise for these numbers.
    """
    controller = Controller(
        strategy, Budget(rollouts=budget), train_rows=train_rows, pool=pool, aggregation=aggregation
    )
    controller.begin(candidates)


def prompts_of_a_step(strategy: Strategy, brought: int) -> int:
    """Return how many prompts share a step's budget when the host brings ``brought``, without a verdict."""
    return max(1, round(strategy.prompts * brought))
