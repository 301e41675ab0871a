"""Reward functions that would end more than a call: exits, cancelled tasks, blocked loops, values without a repr."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from trl import GRPOTrainer

import neyman
from neyman.errors import ContractError, RunFailedError
from neyman.step.ledger import Fate

#: Longer than ten limits, and than the test may take where they are not kept.
HANG = 120.0
#: Within it whatever does not hang is done, on a loaded machine too.
LIMIT = 3.0


class Ended(BaseException):
    """Derived from no Exception."""


class Unprintable(Exception):
    """Its message cannot be read."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


class Shapeless:
    """Is no number, and has no repr."""

    def __repr__(self) -> str:
        raise RuntimeError("no repr")


def raising(error: BaseException) -> Callable[[], Any]:
    def fault() -> Any:
        raise error

    return fault


class Once:
    """Right, except that its second call, and that call's first row by itself, meet a fault."""

    def __init__(self, bench: Any, fault: Callable[[], Any]) -> None:
        self.bench, self.fault, self.calls = bench, fault, 0

    def values(self, prompts: list[str], completions: list[str]) -> list[Any]:
        self.calls += 1
        graded: list[Any] = [self.bench.grade(p, c) for p, c in zip(prompts, completions, strict=True)]
        if self.calls in {2, 3}:
            graded[0] = self.fault()
        return graded


def trained(bench: Any, reward: Any, **ours: Any) -> Any:
    """Train three steps, and return the ledger, in which every rollout has its fate."""
    run = bench.train(
        GRPOTrainer,
        neyman.preset("uniform"),
        rewards=reward,
        max_steps=3,
        ours={"retries": 0.0, **ours},
    )
    assert len(run.logs) == 3
    assert all(bool(torch.isfinite(value).all()) for value in run.weights().values())
    ledger = run.trainer.controller.ledger
    assert ledger.requested == ledger.rollouts() == 96
    return ledger


def in_time(work: Callable[[], Any], finally_do: Callable[[], None] = lambda: None) -> Any:
    """Return what the work returns; in a thread, so that work that never ends fails its test and no other."""
    ended: list[Any] = []
    thread = threading.Thread(target=lambda: ended.append(work()), daemon=True)
    thread.start()
    thread.join(HANG / 2)
    finally_do()
    assert ended, (
        "it failed in its thread" if not thread.is_alive() else "the training still waits for a call"
    )
    return ended[0]


ENDS = {
    "exit": SystemExit(0),
    "cancelled": asyncio.CancelledError(),
    "generator": GeneratorExit(),
    "bare": Ended("the end"),
    "unprintable": Unprintable(),
}


@pytest.mark.parametrize("limit", [None, 60.0])
@pytest.mark.parametrize("end", ENDS)
def test_what_would_end_the_run_is_a_missing_result(bench: Any, end: str, limit: float | None) -> None:
    once = Once(bench, raising(ENDS[end]))

    def reward(prompts: list[str], completions: list[str], **columns: Any) -> list[Any]:
        return once.values(prompts, completions)

    assert trained(bench, reward, reward_timeout=limit).rollouts(Fate.FAILED) == 1


@pytest.mark.parametrize("limit", [None, 60.0])
@pytest.mark.parametrize("error", [SystemExit(0), asyncio.CancelledError(), KeyboardInterrupt(), Ended()])
def test_what_would_end_an_event_loop_is_a_missing_result(
    bench: Any, error: BaseException, limit: float | None
) -> None:
    once = Once(bench, raising(error))

    async def reward(prompts: list[str], completions: list[str], **columns: Any) -> list[Any]:
        await asyncio.sleep(0.0)
        return once.values(prompts, completions)

    ledger = in_time(lambda: trained(bench, reward, reward_timeout=limit))
    assert ledger.rollouts(Fate.FAILED) == 1


async def _gathered(judge: Callable[[], list[Any]]) -> list[Any]:
    async def judged() -> list[Any]:
        return judge()

    (values,) = await asyncio.gather(judged())
    return values


async def _left_behind(judge: Callable[[], list[Any]]) -> list[Any]:
    """Start a task that is waited for, but not asked what came of it."""

    async def judged() -> None:
        values.extend(judge())

    values: list[Any] = []
    await asyncio.wait([asyncio.create_task(judged())])
    return values


async def _called_back(judge: Callable[[], list[Any]]) -> list[Any]:
    def judged() -> None:
        try:
            answer.set_result(judge())
        except BaseException:
            answer.set_exception(ValueError("it ended"))
            raise

    answer = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon(judged)
    values: list[Any] = await answer
    return values


@pytest.mark.parametrize("limit", [None, 60.0])
@pytest.mark.parametrize("error", [SystemExit(0), KeyboardInterrupt()])
@pytest.mark.parametrize("within", [_gathered, _left_behind, _called_back])
def test_an_exit_in_what_an_async_function_starts_ends_no_loop(
    bench: Any, within: Any, error: BaseException, limit: float | None
) -> None:
    once = Once(bench, raising(error))

    async def reward(prompts: list[str], completions: list[str], **columns: Any) -> list[Any]:
        found: list[Any] = await within(lambda: once.values(prompts, completions))
        return found

    ledger = in_time(lambda: trained(bench, reward, reward_timeout=limit))
    assert ledger.rollouts(Fate.FAILED) == 1


def test_async_functions_without_a_limit_stay_in_the_trainers_own_loop(bench: Any) -> None:
    seen: list[Any] = []

    async def reward(prompts: list[str], completions: list[str], **columns: Any) -> list[float]:
        seen.append((asyncio.get_running_loop(), threading.current_thread()))
        return [bench.grade(p, c) for p, c in zip(prompts, completions, strict=True)]

    run = bench.train(GRPOTrainer, neyman.preset("uniform"), rewards=reward, max_steps=2)
    loop, thread = run.trainer.async_loop, run.trainer.async_loop_thread
    assert seen == [(loop, thread)] * 2
    loop.call_soon_threadsafe(loop.stop)
    thread.join(60.0)
    assert not thread.is_alive()


def test_a_function_that_always_exits_stops_the_run_with_an_error(bench: Any) -> None:
    def reward(**columns: Any) -> list[float]:
        sys.exit(0)

    run = bench.build(GRPOTrainer, neyman.preset("uniform"), rewards=reward)
    with pytest.raises(RunFailedError, match="SystemExit: 0, which a reward function must not raise"):
        run.trainer.train()


def _blocking(once: Once) -> Any:
    async def reward(prompts: list[str], completions: list[str], **columns: Any) -> list[Any]:
        return once.values(prompts, completions)

    return reward


def _stubborn(once: Once) -> Any:
    async def reward(prompts: list[str], completions: list[str], **columns: Any) -> list[Any]:
        end = time.monotonic() + HANG
        if once.calls == 1:
            once.calls += 1
            while time.monotonic() < end:
                try:
                    await asyncio.sleep(HANG)
                except asyncio.CancelledError:
                    continue
        return once.values(prompts, completions)

    return reward


def _generator(once: Once) -> Any:
    def reward(prompts: list[str], completions: list[str], **columns: Any) -> Iterator[Any]:
        yield from once.values(prompts, completions)

    return reward


@pytest.mark.parametrize("kind", [_blocking, _stubborn, _generator])
def test_a_limit_holds_for_functions_that_do_not_cooperate(bench: Any, kind: Any) -> None:
    release = threading.Event()
    reward = kind(Once(bench, lambda: release.wait(HANG)))
    ledger = in_time(lambda: trained(bench, reward, reward_timeout=LIMIT), release.set)
    assert ledger.rollouts(Fate.TIMEOUT) == 1


def test_a_limited_async_function_keeps_its_event_loop_from_call_to_call(bench: Any) -> None:
    loops: list[Any] = []

    async def reward(prompts: list[str], completions: list[str], **columns: Any) -> list[float]:
        loops.append(asyncio.get_running_loop())
        if len(loops) == 2:
            await asyncio.sleep(HANG)
        return [bench.grade(p, c) for p, c in zip(prompts, completions, strict=True)]

    assert trained(bench, reward, reward_timeout=LIMIT).rollouts(Fate.TIMEOUT) == 0
    assert len(set(map(id, loops))) == 1
    assert len(loops) == 3 + 32


FREAKS: dict[str, Callable[[], Any]] = {
    "beyond float32": lambda: 1e39,
    "infinite in a sum": lambda: 3e38,
    "infinite in a deviation": lambda: -1e20,
    "complex": lambda: 1 + 0j,
    "numpy's complex": lambda: np.complex64(1),
    "complex tensor": lambda: torch.tensor(1j),
    "meta tensor": lambda: torch.tensor(1.0, device="meta"),
    "no repr": Shapeless,
    "digits beyond printing": lambda: 10**5000,
    "bytearray": lambda: bytearray(b"1"),
}


@pytest.mark.parametrize("freak", FREAKS)
def test_one_freak_value_is_one_missing_result(bench: Any, freak: str) -> None:
    once = Once(bench, FREAKS[freak])

    def reward(prompts: list[str], completions: list[str], **columns: Any) -> list[Any]:
        return once.values(prompts, completions)

    ledger = trained(bench, reward)
    # The second call's, and the third's: such values do not lead to scoring row by row.
    assert ledger.rollouts(Fate.FAILED) == 2


@pytest.mark.parametrize("one", [np.array(1.0), np.bool_(True), torch.tensor(1.0), True, np.float16(1)])
def test_whatever_reads_as_a_number_is_one(bench: Any, one: Any) -> None:
    def reward(prompts: list[str], completions: list[str], **columns: Any) -> list[Any]:
        return [one if bench.grade(p, c) else 0.0 for p, c in zip(prompts, completions, strict=True)]

    assert trained(bench, reward).rollouts(Fate.FAILED) == 0


@pytest.mark.parametrize(
    "weight", [1e30, 1e10]
)  # beyond float32 itself, and only in the square of a deviation
def test_a_weighted_sum_that_overflows_is_a_missing_result(bench: Any, weight: float) -> None:
    once = Once(bench, lambda: 1e14)

    def large(prompts: list[str], completions: list[str], **columns: Any) -> list[Any]:
        return once.values(prompts, completions)

    run = bench.train(
        GRPOTrainer,
        neyman.preset("sara"),
        rewards=[large, lambda completions, **_: [0.0] * len(completions)],
        max_steps=2,
        reward_weights=[weight, 1.0],
        ours={"retries": 0.0, "success": ("large", 0.5)},
    )
    ledger = run.trainer.controller.ledger
    assert ledger.requested == ledger.rollouts()
    assert ledger.rollouts(Fate.FAILED) >= 1
    assert all(bool(torch.isfinite(batch["advantages"]).all()) for batch, _ in run.batches)


@pytest.mark.parametrize("verdict", [0.3, -1, 2, "False", float("inf"), [True]])
def test_what_is_no_verdict_trains_as_no_success(bench: Any, verdict: Any) -> None:
    once = Once(bench, lambda: verdict)

    def success(prompts: list[str], completions: list[str], **columns: Any) -> list[Any]:
        return once.values(prompts, completions)

    def reward(completions: list[str], **columns: Any) -> list[float]:
        return [0.1 * len(completion) for completion in completions]

    assert trained(bench, reward, success=success).rollouts(Fate.FAILED) == 2


def test_verdicts_that_are_all_shares_stop_the_run(bench: Any) -> None:
    run = bench.build(
        GRPOTrainer,
        neyman.preset("uniform"),
        ours={"success": lambda completions, **_: [0.3] * len(completions)},
    )
    with pytest.raises(
        RunFailedError, match=r"success failed on all 32 .*it returned 0.3, which is no verdict"
    ):
        run.trainer.train()


def test_a_binary_reward_that_turns_out_graded_ends_the_run_on_purpose(bench: Any) -> None:
    once = Once(bench, lambda: 0.5)

    def reward(prompts: list[str], completions: list[str], **columns: Any) -> list[Any]:
        return once.values(prompts, completions)

    run = bench.build(GRPOTrainer, neyman.preset("uniform"), rewards=reward)
    with pytest.raises(ContractError, match=r"'reward' returned 0.5, which is not binary"):
        run.trainer.train()
    assert run.trainer.state.global_step == 1
