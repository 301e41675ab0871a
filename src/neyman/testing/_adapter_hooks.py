"""The attributes and the driver of `HostSuite`, and the verifiers and strategies that its trainings use."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from neyman.controller import Controller
from neyman.rules import Allocate, Evidence
from neyman.strategy import Strategy
from neyman.testing._adapter_case import Answer, HostCase, HostDriver, HostRecord, HostStep
from neyman.testing._contract import Suite, during, expect, refused


def grade(prompt: int, answer: str) -> float:
    """Return 1 or 0, always the same for the same answer; right in about 1/9, 3/9, 5/9 or 8/9 of all answers."""
    return float(crc32(f"{prompt}|{answer}".encode()) % 9 < (1, 3, 5, 8)[prompt % 4])


def grade_some(prompt: int, answer: str) -> float | None:
    """Grade, but return None or NaN on some answers and raise on others, one in five in all."""
    luck = crc32(f"luck|{prompt}|{answer}".encode()) % 15
    if luck == 0:
        raise RuntimeError("the verifier has no memory left")
    return None if luck == 1 else math.nan if luck == 2 else grade(prompt, answer)


@dataclass(frozen=True)
class Ragged(Allocate):
    """Counts in fixed proportions, so that groups are of unequal size whatever is believed."""

    shares: tuple[int, ...] = (13, 9, 6, 4)

    def counts(self, evidence: Evidence, budget: int) -> NDArray[np.int64]:
        """Return the proportions of the budget, in the order of the prompts."""
        wanted = np.array(self.shares[: len(evidence.issued)]) * budget // sum(self.shares)
        wanted[0] += budget - wanted.sum()
        return wanted.astype(np.int64)


class HostHooks(Suite):
    """The attributes and hooks of `HostSuite`, documented there."""

    __test__ = False

    group_setting: str = "group_size"
    eps: float = 1e-4
    fills_batch: bool = True
    keeps_no_rollouts: str | None = None

    def make(self) -> HostDriver:
        """Return the driver."""
        driver: HostDriver = super().make()
        return driver

    def train(self, strategy: Strategy | None, *, see: str, **options: Any) -> tuple[HostCase, HostRecord]:
        """Run a case through a fresh driver."""
        case = HostCase(strategy=strategy, **{"reward": grade, **options})
        name = "no strategy" if strategy is None else f"strategy {strategy.name!r}"
        with during(f"a training of {case.steps} steps under {name}", see=see):
            return case, self.make().train(case)

    def refuses(
        self, error: type[Exception], named: str, strategy: Strategy, *, see: str, **options: Any
    ) -> str:
        """Return the message with which a training, named for the report, is refused."""
        return refused(lambda: self.train(strategy, see=see, **options), error, named, see=see)


def controller_of(record: HostRecord) -> Controller:
    """Return the controller of a training under a strategy."""
    claim = "a record of a training under a strategy must have its controller"
    expect(record.controller is not None, claim, see="A driver")
    assert record.controller is not None
    return record.controller


def ragged() -> Strategy:
    """Return a strategy of one round with groups of unequal size."""
    return Strategy(name="ragged", allocate=Ragged())


def nothing(prompt: int, answer: str) -> None:
    """Return no reward, whatever the answer."""
    del prompt, answer


def shaped(prompt: int, answer: str) -> float:
    """Return a reward that is not binary."""
    return 0.3 + 0.4 * grade(prompt, answer)


def is_missing(answer: Answer) -> bool:
    """Whether `grade_some` has no reward for an answer."""
    try:
        reward = grade_some(*answer)
    except RuntimeError:
        return True
    return reward is None or math.isnan(reward)


def real_rows(step: HostStep) -> list[Answer]:
    """Return the answers that train, without rows that only fill the batch."""
    return [row for row in step.rows if row is not None]


def in_order(step: HostStep) -> tuple[list[Answer | None], NDArray[np.float64]]:
    """Return a step's rows and advantages in an order that does not depend on the trainer's."""
    keys = [("", "") if row is None else (f"{row[0]:09}", row[1]) for row in step.rows]
    order = sorted(range(len(keys)), key=lambda place: (keys[place], float(step.advantages[place])))
    return [step.rows[place] for place in order], step.advantages[order]
