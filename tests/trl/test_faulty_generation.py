"""A rollout function that loses rows, or brings some twice, at every rate and in the middle of a step's rounds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from trl import GRPOTrainer

import neyman
from neyman.errors import ContractError
from neyman.tasks import tiny_policy
from strategies import assert_consistent

RATES = [0.01, 0.1, 0.5, 1.0]
DIGITS = 10
END = len(tiny_policy.PolicyConfig().alphabet)


class Faulty:
    """Writes digits; from its second call on a share of rows, at least one, meets a fault.

    Args:
        fault: "lost", "twice" (then there is a row more), or "in place" (a row comes again in the place of the next
            one of its group).
        rate: the share.
    """

    def __init__(self, fault: str, rate: float) -> None:
        self._fault, self._rate = fault, rate
        self._rng = np.random.default_rng(7)
        self.asked: list[int] = []
        self.injected = 0

    def __call__(self, prompts: list[str], trainer: Any) -> dict[str, Any]:
        self.asked.append(len(prompts))
        made = [[*torch.randint(0, DIGITS, (int(torch.randint(1, 6, ())),)).tolist(), END] for _ in prompts]
        places = list(range(len(prompts)))
        if len(self.asked) > 1:
            places = self._faulty(prompts)
        ids = trainer.processing_class(prompts)["input_ids"]
        return {
            "prompt_ids": [ids[place] for place in places],
            "completion_ids": [made[place] for place in places],
            "logprobs": None,
        }

    def _faulty(self, prompts: list[str]) -> list[int]:
        """Return which row comes in each place."""
        rows = len(prompts)
        hit = self._rng.random(rows) < self._rate
        hit[self._rng.integers(rows)] = True
        if self._fault == "in place":
            hit &= [i > 0 and prompts[i] == prompts[i - 1] for i in range(rows)]
        self.injected += int(hit.sum())
        if self._fault == "lost":
            return np.flatnonzero(~hit).tolist()
        if self._fault == "twice":
            return np.repeat(np.arange(rows), 1 + hit).tolist()
        return (np.arange(rows) - hit).tolist()


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("fault", ["lost", "twice"])
def test_rows_that_are_lost_or_come_twice_stop_the_run_and_the_account_goes_on(
    bench: Any, fault: str, rate: float
) -> None:
    faulty = Faulty(fault, rate)
    run = bench.build(GRPOTrainer, neyman.preset("sara"), max_steps=3, host={"rollout_func": faulty})
    is_all = fault == "lost" and rate == max(RATES)  # which TRL itself notices first
    with pytest.raises((ContractError, RuntimeError) if is_all else ContractError) as raised:
        run.trainer.train()
    *before, last = faulty.asked
    got = last - faulty.injected if fault == "lost" else last + faulty.injected
    assert is_all or f"returned {got} rows of prompt_ids for {last} prompts" in str(raised.value)
    controller = run.trainer.controller
    assert run.drawn().total() == sum(before) > 0, "no reward was asked for of a round that cannot be used"
    assert controller.ledger.requested == sum(before) + last
    assert controller.is_open
    assert_consistent(controller)


@pytest.mark.parametrize("rate", RATES)
def test_a_row_again_in_the_place_of_another_of_its_group_counts_as_what_it_says_it_is(
    bench: Any, rate: float
) -> None:
    faulty = Faulty("in place", rate)
    run = bench.train(GRPOTrainer, neyman.preset("uniform"), max_steps=4, host={"rollout_func": faulty})
    assert faulty.injected > 0
    ledger = run.trainer.controller.ledger
    assert run.drawn().total() == ledger.requested == ledger.rollouts() == 4 * 32
    for (_, batch), rows in zip(run.batches, run.trained(), strict=True):
        assert batch.rewards.tolist() == [bench.grade(p, c) for p, c in rows]
        assert len(set(batch.rollout_ids.tolist())) == len(batch)
