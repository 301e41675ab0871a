"""Trainings that `HostSuite` asks of an adapter's driver, and the record that it checks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from neyman.controller import Controller
from neyman.strategy import Strategy

Answer = tuple[int, str]  # a prompt and one completion of it, as text


@dataclass(frozen=True, kw_only=True)
class HostCase:
    """One training, of 4 prompts x 8 rollouts a step unless the case differs.

    Args:
        strategy: the strategy; None trains with the trainer alone, as if neyman were not installed.
        reward: the reward of an answer: a number, or NaN or None where there is none. It may raise.
        prompts: the training set; the driver gives each number a text of its own.
        steps: optimiser steps in all, those before a checkpoint included; one for each generation.
        prompts_per_step: prompts that the trainer brings to a step.
        group_size: average rollouts per prompt.
        max_rollouts: the user's bound on the rollouts of a step.
        retries: re-draws of failed rollouts, as a share of the budget.
        save_after: the step after which a checkpoint is written; None writes none.
        resume: the checkpoint to go on from, as the record of an earlier training has it; it may be read only.
        accepts_change: whether a checkpoint of another strategy may be resumed.
    """

    strategy: Strategy | None
    reward: Callable[[int, str], float | None]
    prompts: Sequence[int] = tuple(range(12))
    steps: int = 2
    prompts_per_step: int = 4
    group_size: int = 8
    max_rollouts: int | None = None
    retries: float = 0.1
    save_after: int | None = None
    resume: Path | None = None
    accepts_change: bool = False

    @property
    def rows(self) -> int:
        """Rows that the optimiser gets in a step."""
        return self.prompts_per_step * self.group_size


@dataclass(kw_only=True)
class HostStep:
    """One step as the trainer trained it; rows in any order, aligned with each other.

    Args:
        rows: prompt and answer of each row; None for a row that only fills the batch.
        advantages: [rows], the factor on the gradient of each row's tokens, weights included.
        generated: prompt and answer of everything that was generated and scored in this step, trained or not.
        metrics: the numbers that the trainer logged for the step, by name.
    """

    rows: list[Answer | None]
    advantages: NDArray[np.float64]
    generated: list[Answer] = field(default_factory=list)
    metrics: dict[str, float] = field(default_factory=dict)


@dataclass(kw_only=True)
class HostRecord:
    """The record of one training.

    Args:
        steps: those that this training took; after a resumption the later ones.
        controller: the run's; None without a strategy.
        checkpoint: the folder that was written; None where none was asked for.
    """

    steps: list[HostStep]
    controller: Controller | None = None
    checkpoint: Path | None = None


class HostDriver(Protocol):
    """Runs trainings through an adapter."""

    def train(self, case: HostCase) -> HostRecord:
        """Train a fresh policy, the same at each call.

        The same prompts, strategy and seed must lead to the same answers, and a resumed training to those of one that
        never stopped.

        Raises:
            Exception: an error of the adapter or of the trainer, as it is.
        """
        ...
