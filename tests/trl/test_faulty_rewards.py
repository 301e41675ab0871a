"""Reward functions that fail now and then, or always: in the trainer what they cannot score is missing, and said."""

from __future__ import annotations

import asyncio
import logging
import pickle
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from trl import GRPOTrainer, RLOOTrainer

import neyman
from neyman.errors import ArgumentError, ContractError, RunFailedError
from neyman.step.ledger import Fate
from neyman.step.missing import MissingReward
from neyman.tasks import KillableVerifier, reward_function
from neyman.trl import _limit

RATES = [0.01, 0.1, 0.5]
#: Re-draws in a step of 32 rollouts.
ALLOWED = 3
#: For a run of which a part may be late too, and for one of which nothing may be but what hangs.
LIMIT, LONG = 0.2, 1.0


def raising() -> float:
    raise ValueError("the verifier raised")


def timing_out() -> float:
    raise TimeoutError


#: What happens in the place of a reward, and how the ledger must count it.
FAULTS: dict[str, tuple[Callable[[], Any], Fate]] = {
    "raises": (raising, Fate.FAILED),
    "times out": (timing_out, Fate.TIMEOUT),
    "None": (lambda: None, Fate.FAILED),
    "NaN": (lambda: float("nan"), Fate.FAILED),
    "infinite": (lambda: float("inf"), Fate.FAILED),
    "text": (lambda: "1.0", Fate.FAILED),
    "a list": (lambda: [1.0], Fate.FAILED),
    "beyond floats": (lambda: 10**400, Fate.FAILED),
    "said": (lambda: MissingReward("no verdict", "timeout"), Fate.TIMEOUT),
}


class Sometimes:
    """A reward function, right about most completions; others, always the same ones, meet a fault.

    Which ones is drawn from the fault's name, a seed and the words; the seed so that the first call meets faults, and
    at rates from a tenth on more than the allowance makes up for: a short run may hold none at a hundredth otherwise.
    """

    __name__ = "sometimes"

    def __init__(self, bench: Any, fault: Callable[[], Any], rate: float, *, name: str = "") -> None:
        self.bench, self.fault, self.rate = bench, fault, rate
        self.name, self.seed = name, 0
        self.calls = 0

    def is_hit(self, prompt: str, completion: str) -> bool:
        draw = np.random.default_rng(list(f"{self.name}|{self.seed}|{prompt}|{completion}".encode()))
        return bool(draw.random() < self.rate)

    def find_a_seed(self, prompts: list[str], completions: list[str]) -> None:
        """Go on to the first seed under which enough of these rows are hit."""
        least = ALLOWED + 1 if self.rate > min(RATES) else 1
        while sum(map(self.is_hit, prompts, completions)) < least:
            self.seed += 1

    def __call__(self, prompts: list[str], completions: list[str], **columns: Any) -> list[Any]:
        self.calls += 1
        if self.calls == 1:
            self.find_a_seed(prompts, completions)
        return [
            self.fault() if self.is_hit(p, c) else self.bench.grade(p, c)
            for p, c in zip(prompts, completions, strict=True)
        ]


def balanced(run: Any) -> Any:
    """Return the ledger, in which every rollout has its fate."""
    ledger = run.trainer.controller.ledger
    assert ledger.requested == ledger.rollouts()
    return ledger


def counting() -> Any:
    """Return a strategy of equal groups whose belief only counts."""
    belief = neyman.beliefs.Counts(prior=(1.0, 1.0), discount=1.0, fade=1.0)
    return neyman.preset("uniform").with_options(belief=belief)


def rows_that_lack_a_reward(run: Any, reward: Sometimes, since: int = 0) -> int:
    """Return how many trained rows were hit; exactly these lack a reward, and none of them trains."""
    hit = 0
    for step, ((inputs, batch), rows) in enumerate(zip(run.batches, run.trained(), strict=True)):
        missing = np.array([step >= since and reward.is_hit(p, c) for p, c in rows])
        hit += int(missing.sum())
        assert missing.tolist() == np.isnan(batch.rewards).tolist()
        graded = [reward.bench.grade(p, c) for (p, c), gone in zip(rows, missing, strict=True) if not gone]
        assert graded == batch.rewards[~missing].tolist()
        assert not inputs["advantages"].numpy()[missing].any()
        assert not batch.weights[missing].any()
    return hit


def expect_missing(run: Any, hit: int, fate: Fate) -> None:
    """The ledger and the belief know the rows that were hit as missing, once each, and all others as valid."""
    ledger = balanced(run)
    others = Fate.TIMEOUT if fate is Fate.FAILED else Fate.FAILED
    # Every re-draw stands in the place of one that was missing, so all of these are missing too.
    assert ledger.rollouts(fate) == hit + ledger.retries
    assert ledger.rollouts(others) == 0
    assert ledger.requested == 32 * ledger.steps + ledger.retries
    valid = ledger.rollouts() - ledger.rollouts(fate)
    learnt = run.trainer.controller.strategy.belief.evidence(list(range(40)))[1]
    assert learnt.sum() == valid, "the belief knows every valid result once, and no missing one"


# The allowance makes up for one row in a hundred: then none would lack its reward at the end.
@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("fault", FAULTS)
def test_what_cannot_be_scored_is_missing_and_nothing_else_is(bench: Any, fault: str, rate: float) -> None:
    what, fate = FAULTS[fault]
    reward = Sometimes(bench, what, rate, name=fault)
    ours = {"retries": 0.0} if rate == min(RATES) else {}
    run = bench.train(GRPOTrainer, counting(), rewards=reward, max_steps=2, ours=ours)
    hit = rows_that_lack_a_reward(run, reward)
    assert hit > 0
    assert (run.trainer.controller.ledger.retries > 0) == (rate > min(RATES))
    expect_missing(run, hit, fate)


@pytest.mark.parametrize(
    ("fault", "error", "cause"),
    [
        ("raises", ValueError, "the verifier raised"),
        (
            "times out",
            RunFailedError,
            r"reward function 'sometimes' failed on all 32 .* \(the first: it timed out\)",
        ),
        ("infinite", RunFailedError, "it returned inf, which is not finite"),
        ("text", RunFailedError, "it returned '1.0', which is text"),
        ("a list", RunFailedError, r"it returned \[1.0\], which is no number"),
        ("beyond floats", RunFailedError, "which is no number"),
        ("None", RunFailedError, "10 steps in a row, to step 9, .*every reward function returned None"),
        ("NaN", RunFailedError, "10 steps in a row, to step 9, .*every reward function returned None"),
        ("said", RunFailedError, "10 steps in a row, to step 9, .*no verdict"),
    ],
)
def test_a_run_in_which_everything_fails_stops_with_the_cause(
    bench: Any, fault: str, error: type[Exception], cause: str
) -> None:
    reward = Sometimes(bench, FAULTS[fault][0], 1.0)
    run = bench.build(GRPOTrainer, neyman.preset("uniform"), rewards=reward, max_steps=40)
    with pytest.raises(error, match=cause):
        run.trainer.train()
    assert reward.calls <= 33, "a round is scored whole, and then row by row, once"
    assert run.trainer.controller.ledger.requested <= 10 * 35


def test_a_function_that_scored_before_and_then_fails_always_stops_after_ten_steps(
    bench: Any, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(prompts: list[str], completions: list[str], trainer_state: Any, **columns: Any) -> list[float]:
        if trainer_state.global_step > 0:
            raise ConnectionError("the judge is gone")
        return [bench.grade(p, c) for p, c in zip(prompts, completions, strict=True)]

    run = bench.build(RLOOTrainer, neyman.preset("uniform"), rewards=broken, max_steps=40)
    with (
        caplog.at_level(logging.WARNING, logger="neyman"),
        pytest.raises(
            RunFailedError, match=r"to step 10.*ConnectionError: the judge is gone.*last checkpoint"
        ),
    ):
        run.trainer.train()
    assert run.trainer.state.global_step == 10
    first = next(record.getMessage() for record in caplog.records if record.name == "neyman")
    assert "reward function 'broken' failed on 32 of 32 completions (the first: ConnectionError" in first


def test_ten_failing_steps_apart_stop_nothing(bench: Any) -> None:
    def every_other(
        prompts: list[str], completions: list[str], trainer_state: Any, **columns: Any
    ) -> list[Any]:
        if trainer_state.global_step % 2:
            return [None] * len(prompts)
        return [bench.grade(p, c) for p, c in zip(prompts, completions, strict=True)]

    run = bench.train(GRPOTrainer, neyman.preset("uniform"), rewards=every_other, max_steps=22)
    assert run.trainer.state.global_step == 22


@pytest.mark.parametrize("cls", [GRPOTrainer, RLOOTrainer])
def test_a_reward_that_hangs_is_a_timeout_apart_from_wrong_answers(bench: Any, cls: Any) -> None:
    release = threading.Event()
    reward = Sometimes(bench, lambda: release.wait(60.0), 0.2)
    try:
        run = bench.train(
            cls, neyman.preset("uniform"), rewards=reward, max_steps=2, ours={"reward_timeout": LIMIT}
        )
    finally:
        release.set()
    ledger = balanced(run)
    hit = sum(reward.is_hit(p, c) for rows in run.trained() for p, c in rows)
    assert ledger.rollouts(Fate.TIMEOUT) >= hit > 0
    assert ledger.rollouts(Fate.FAILED) == 0
    assert sum(log.get("neyman/rollouts/timeout", 0.0) for log in run.logs) == ledger.rollouts(Fate.TIMEOUT)
    assert not any("neyman/rollouts/failed" in log for log in run.logs)


def test_a_reward_that_always_hangs_stops_the_run_with_the_limit_in_the_message(bench: Any) -> None:
    release = threading.Event()
    run = bench.build(
        GRPOTrainer,
        neyman.preset("uniform"),
        rewards=Sometimes(bench, lambda: release.wait(60.0), 1.0),
        ours={"reward_timeout": 0.02},
    )
    try:
        with pytest.raises(RunFailedError, match=r"'sometimes' failed on all 32 .*no answer within 0.02 s"):
            run.trainer.train()
    finally:
        release.set()


def test_calls_that_cannot_be_ended_are_bounded(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_limit, "_MOST_STUCK", 3)
    release = threading.Event()
    run = bench.build(
        GRPOTrainer,
        neyman.preset("uniform"),
        rewards=Sometimes(bench, lambda: release.wait(60.0), 0.3),
        ours={"reward_timeout": LIMIT},
    )
    before = threading.active_count()
    try:
        with pytest.raises(RunFailedError, match=r"3 calls .* hang and cannot be ended.*KillableVerifier"):
            run.trainer.train()
        assert threading.active_count() <= before + 3
    finally:
        release.set()


@pytest.mark.parametrize("wrong", [0, -1.0, float("nan"), "soon"])
def test_a_limit_that_is_no_time_is_refused(bench: Any, wrong: Any) -> None:
    with pytest.raises(ArgumentError, match="reward_timeout must be a"):
        bench.build(GRPOTrainer, neyman.preset("uniform"), ours={"reward_timeout": wrong})


@pytest.mark.parametrize("fault", ["raises", "hangs"])
def test_async_reward_functions_are_guarded_as_plain_ones(bench: Any, fault: str) -> None:
    plain = Sometimes(bench, raising, 0.1)

    async def reward(prompts: list[str], completions: list[str], **columns: Any) -> list[float]:
        plain.calls += 1
        if plain.calls == 1:
            plain.find_a_seed(prompts, completions)
        if any(plain.is_hit(p, c) for p, c in zip(prompts, completions, strict=True)):
            await (asyncio.sleep(60.0) if fault == "hangs" else asyncio.sleep(0.0))
            raising()
        return [bench.grade(p, c) for p, c in zip(prompts, completions, strict=True)]

    run = bench.train(
        GRPOTrainer, neyman.preset("uniform"), rewards=reward, max_steps=1, ours={"reward_timeout": LONG}
    )
    (_, batch), (rows,) = run.batches[0], run.trained()
    hit = [plain.is_hit(p, c) for p, c in rows]
    assert np.isnan(batch.rewards).tolist() == hit
    assert any(hit)
    fate = Fate.TIMEOUT if fault == "hangs" else Fate.FAILED
    assert balanced(run).rollouts(fate) >= sum(hit)


@pytest.mark.parametrize("returned", [[1.0], [1.0] * 33, [], None, 0.5])
def test_a_wrong_number_of_rewards_at_the_first_call_is_an_error(bench: Any, returned: Any) -> None:
    run = bench.build(GRPOTrainer, neyman.preset("uniform"), rewards=lambda **columns: returned)
    with pytest.raises(ContractError, match=r"reward function '<lambda>' returned .* 32 completions"):
        run.trainer.train()


def test_a_wrong_number_of_rewards_later_is_scored_again_row_by_row(bench: Any) -> None:
    calls: list[int] = []

    def careless(prompts: list[str], completions: list[str], **columns: Any) -> list[float]:
        calls.append(len(prompts))
        graded = [bench.grade(p, c) for p, c in zip(prompts, completions, strict=True)]
        return graded[1:] if calls.count(32) == 2 and len(prompts) > 1 else graded

    run = bench.train(GRPOTrainer, neyman.preset("uniform"), rewards=careless, max_steps=2)
    assert calls == [32, 32, *[1] * 32]
    for (_, batch), rows in zip(run.batches, run.trained(), strict=True):
        assert batch.rewards.tolist() == [bench.grade(p, c) for p, c in rows]


#: What comes in the place of a list of rewards.
NUMBERS: dict[str, Callable[[list[float]], Any]] = {
    "too few": lambda values: values[1:],
    "too many": lambda values: [*values, 1.0],
    "none": lambda values: [],
    "no list": lambda values: None,
}


class Miscounting(Sometimes):
    """From its second call on returns another number of rewards wherever one of the rows is hit."""

    def __call__(self, prompts: list[str], completions: list[str], **columns: Any) -> list[Any]:
        self.calls += 1
        values = [self.bench.grade(p, c) for p, c in zip(prompts, completions, strict=True)]
        if self.calls == 2:
            self.find_a_seed(prompts, completions)
        if self.calls == 1 or not any(map(self.is_hit, prompts, completions)):
            return values
        wrong: Any = NUMBERS[self.name](values)
        return wrong


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("number", NUMBERS)
def test_a_row_with_which_the_number_of_rewards_is_always_wrong_is_missing(
    bench: Any, number: str, rate: float
) -> None:
    reward = Miscounting(bench, raising, rate, name=number)
    ours = {"retries": 0.0} if rate == min(RATES) else {}
    run = bench.train(GRPOTrainer, counting(), rewards=reward, max_steps=2, ours=ours)
    hit = rows_that_lack_a_reward(run, reward, since=1)
    assert hit > 0
    expect_missing(run, hit, Fate.FAILED)
    said = "returned None, not a list" if number == "no list" else "rewards for 1 completions"
    assert said in (run.trainer.controller.first_error or "")


def test_a_number_of_rewards_that_stays_wrong_stops_the_run_after_ten_steps(bench: Any) -> None:
    reward = Miscounting(bench, raising, 1.0, name="too few")
    run = bench.build(GRPOTrainer, neyman.preset("uniform"), rewards=reward, max_steps=40)
    with pytest.raises(
        RunFailedError, match=r"to step 10.*returned 0 rewards for 1 completions.*last checkpoint"
    ):
        run.trainer.train()
    assert run.trainer.state.global_step == 10


def length(completions: list[str], **columns: Any) -> list[float]:
    return [0.1 * len(c) for c in completions]


def test_where_one_of_two_functions_fails_no_part_of_the_sum_trains(bench: Any) -> None:
    reward = Sometimes(bench, raising, 0.2)
    run = bench.train(
        GRPOTrainer,
        neyman.preset("uniform"),
        rewards=[reward, length],
        max_steps=1,
        ours={"success": ("sometimes", 0.5), "retries": 0.0},
    )
    (inputs, batch), (rows,) = run.batches[0], run.trained()
    hit = np.array([reward.is_hit(p, c) for p, c in rows])
    assert hit.any()
    assert np.isnan(batch.rewards).tolist() == hit.tolist()
    assert not inputs["advantages"].numpy()[hit].any()


def test_a_success_that_fails_makes_the_result_missing_too(bench: Any) -> None:
    judge = Sometimes(bench, raising, 0.2)
    run = bench.train(
        GRPOTrainer,
        neyman.preset("uniform"),
        rewards=length,
        max_steps=1,
        ours={"success": judge, "retries": 0.0},
    )
    (_, batch), (rows,) = run.batches[0], run.trained()
    assert np.isnan(batch.rewards).tolist() == [judge.is_hit(p, c) for p, c in rows]
    assert balanced(run).rollouts(Fate.FAILED) == int(np.isnan(batch.rewards).sum()) > 0


def test_timeouts_of_a_killable_verifier_reach_the_ledger_as_timeouts(bench: Any) -> None:
    with KillableVerifier("reliability.judges:hangs_on_long", timeout_seconds=0.3) as verifier:
        run = bench.train(
            GRPOTrainer,
            neyman.preset("uniform"),
            rewards=reward_function(verifier, name="verified"),
            max_steps=1,
            per_device_train_batch_size=8,
            num_generations=4,
            ours={"retries": 0.0},
        )
        counts = dict(verifier.counts)
    assert counts["timeouts"] > 0
    assert balanced(run).rollouts(Fate.TIMEOUT) == counts["timeouts"]
    assert balanced(run).rollouts(Fate.FAILED) == 0
    assert run.logs[0]["neyman/rollouts/timeout"] == counts["timeouts"]


def test_a_missing_reward_survives_a_pickle_and_is_nan_to_everybody() -> None:
    reward = pickle.loads(pickle.dumps(MissingReward("no verdict", "timeout")))
    assert (reward.why, reward.status, np.isnan(reward)) == ("no verdict", "timeout", True)
    with pytest.raises(ArgumentError, match="status must be one of 'failed'"):
        MissingReward("fine", "ok")
