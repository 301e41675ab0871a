"""The claims of a strategy's author, and the controller that the checks drive."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from neyman.controller import Budget, Controller, Request
from neyman.randomness import PromptId
from neyman.strategy import Strategy
from neyman.testing._contract import Suite


class StrategyHooks(Suite):
    """The attributes and hooks of `StrategySuite`, documented there."""

    __test__ = False

    budget: int = 64
    prompts: int = 8
    pool_size: int = 40
    divisor: int = 8
    worlds: int = 2
    bounds: tuple[int, int | None] = (1, None)
    retest_within: int = 64
    settled_trials: int = 32
    absorbing: str | None = None
    by_name: str | None = None

    def make(self) -> Strategy:
        """Return a fresh strategy, with the same settings at each call."""
        strategy: Strategy = super().make()
        return strategy

    def controller(
        self, *, budget: int | None = None, pool: Sequence[PromptId] | None = None, **more: Any
    ) -> Controller:
        """Return a controller of a fresh strategy, by default with the suite's budget and pool."""
        spend = Budget(rollouts=self.budget if budget is None else budget)
        return Controller(
            self.make(), budget=spend, pool=range(self.pool_size) if pool is None else pool, **more
        )

    def brought(self, step: int) -> list[PromptId]:
        """Return the prompts that the host brings in a step: the pool in turn, half of them seen a step before."""
        stride = max(1, self.prompts // 2)
        return [(step * stride + place) % self.pool_size for place in range(self.prompts)]


def count_asked(asked: Sequence[Request]) -> int:
    """Return the rollouts in a list of requests."""
    return sum(len(request.rollout_ids) for request in asked)


def count_by_prompt(asked: Sequence[Request]) -> dict[PromptId, int]:
    """Return the rollouts asked for per prompt."""
    counts: dict[PromptId, int] = {}
    for request in asked:
        counts[request.prompt_id] = counts.get(request.prompt_id, 0) + len(request.rollout_ids)
    return counts


def prompt_by_rollout(asked: Sequence[Request]) -> dict[int, PromptId]:
    """Return the prompt of every rollout asked for."""
    return {rollout_id: request.prompt_id for request in asked for rollout_id in request.rollout_ids}
