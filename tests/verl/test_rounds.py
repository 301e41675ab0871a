"""The way of rollouts through verl's queue, with a queue and agent loops that do what the test says."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import neyman
from neyman.errors import ContractError, RunFailedError
from neyman.step.messages import Request
from neyman.verl import _rounds
from neyman.verl._rounds import PARTITION, Rounds
from neyman.verl._success import Success


class Queue:
    """verl's queue in memory: tags and fields by key."""

    def __init__(self) -> None:
        self.tags: dict[str, dict[str, Any]] = {}
        self.fields: dict[str, dict[str, Any]] = {}

    def kv_list(self, partition_id: str) -> dict[str, Any]:
        return {partition_id: dict(self.tags)} if self.tags else {}

    def kv_batch_get(
        self, keys: list[str], partition_id: str, select_fields: list[str]
    ) -> dict[str, list[Any]]:
        return {name: [self.fields[key][name] for key in keys] for name in select_fields}

    def kv_clear(self, keys: list[str], partition_id: str) -> None:
        for key in keys:
            del self.tags[key]
            self.fields.pop(key, None)

    def put(self, key: str, reward: float, tokens: int = 3, **extra: Any) -> None:
        scores = torch.zeros(tokens)
        scores[-1] = reward
        self.tags[key] = {"status": "success", "response_len": tokens, "seq_len": tokens + 2}
        self.fields[key] = {
            "rm_scores": scores,
            "extra_fields": SimpleNamespace(data={"reward_extra_info": extra}),
        }


class Loops:
    """Agent loops that settle requests when told to, each session's reward by a rule of the test."""

    def __init__(self, queue: Queue, reward: Any) -> None:
        self.queue, self.reward = queue, reward
        self.waiting: list[tuple[str, Request]] = []
        self.submitted: list[tuple[int, int]] = []

    def submit(self, requests: Sequence[Request], uids: Sequence[str]) -> None:
        for uid, request in zip(uids, requests, strict=True):
            self.queue.tags[uid] = {"status": "pending", "is_prompt": True}
            self.waiting.append((uid, request))
            self.submitted.append((int(request.prompt_id), len(request.rollout_ids)))

    def settle(self, place: int = 0) -> None:
        uid, request = self.waiting.pop(place)
        failed = False
        for session, _ in enumerate(request.rollout_ids):
            reward = self.reward(int(request.prompt_id), session)
            if reward is None:
                failed = True
            else:
                self.queue.put(f"{uid}_{session}_0", reward)
        self.queue.tags[uid]["status"] = "failure" if failed else "finished"


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that draws a step of a strategy; time stands still, and sleeping lets a request settle."""

    def draw(
        strategy: Any,
        reward: Any,
        *,
        budget: int,
        prompts: int = 4,
        barrier: bool = False,
        last: bool = False,
        success: Success = Success(None, 0.5),  # noqa: B008 (it holds nothing)
    ) -> Any:
        queue = Queue()
        loops = Loops(queue, reward)
        monkeypatch.setattr(_rounds, "tq", queue)
        monkeypatch.setattr(
            _rounds.time, "sleep", lambda _: loops.settle(-1 if last else 0) if loops.waiting else None
        )
        controller = neyman.Controller(
            strategy,
            neyman.Budget(rollouts=budget),
            train_rows=prompts * 8,
            pool=range(20),
            fill="none",
            retries=0.5,
        )
        rounds = Rounds(controller, loops.submit, success, lambda: None, barrier=barrier)
        rounds.begin(range(prompts), policy_version=0)
        batch = rounds.finish()
        return SimpleNamespace(
            queue=queue,
            loops=loops,
            controller=controller,
            rounds=rounds,
            batch=batch,
            taken=rounds.take(batch),
        )

    return draw


def even(prompt: int, session: int) -> float:
    """Every second answer is right, whatever the prompt."""
    return float(session % 2)


def test_each_row_is_the_rollout_it_was_drawn_for(drawn: Any) -> None:
    step = drawn(neyman.preset("uniform"), lambda prompt, session: float(session < prompt), budget=32)
    assert len(step.taken.keys) == 32
    for key, prompt, reward in zip(step.taken.keys, step.batch.prompt_ids, step.batch.rewards, strict=True):
        session = int(key.split("_")[1])
        assert reward == float(session < prompt)
    assert set(step.queue.tags) == set(step.taken.keys)  # what settled is cleared, what trains is there
    assert [tag["seq_len"] for tag in step.taken.tags] == [5] * 32


def test_a_prompt_goes_on_while_others_are_awaited(drawn: Any) -> None:
    strategy = neyman.preset("sara", group_size=8, close="fixed_spend")
    free = drawn(strategy, even, budget=32, last=True)
    late = [place for place, (prompt, _) in enumerate(free.loops.submitted) if prompt == 3]
    assert len(late) == 2
    assert free.loops.submitted[4][0] == 3  # completed before the first of the others has settled
    whole = drawn(strategy, even, budget=32, last=True, barrier=True)
    assert [prompt for prompt, _ in whole.loops.submitted] == [0, 1, 2, 3] * 2


@pytest.mark.parametrize("name", ["neyman", "sara", "dynamic-sampling", "uniform"])
@pytest.mark.parametrize("fails", [False, True])
def test_with_a_barrier_the_order_of_arrival_decides_nothing(drawn: Any, name: str, fails: bool) -> None:
    def rule(prompt: int, session: int) -> float | None:
        luck = (prompt * 7 + session * 3) % 5
        return None if fails and luck == 4 else float(luck < 2)

    options = {"group_size": 8} if name in ("sara", "dynamic-sampling") else {}
    budget = 96 if options else 32
    steps = [
        drawn(neyman.preset(name, **options), rule, budget=budget, barrier=True, last=last)
        for last in (False, True)
    ]
    assert steps[0].loops.submitted == steps[1].loops.submitted
    assert steps[0].batch.rollout_ids.tolist() == steps[1].batch.rollout_ids.tolist()


def test_a_session_that_raised_is_drawn_again_and_never_zero(drawn: Any) -> None:
    failed = []

    def rule(prompt: int, session: int) -> float | None:
        if prompt == 2 and len(failed) < 3:
            failed.append(session)
            return None
        return even(prompt, session)

    step = drawn(neyman.preset("uniform"), rule, budget=32)
    assert len(failed) == 3
    assert step.loops.submitted[4:]
    assert {prompt for prompt, _ in step.loops.submitted[4:]} == {2}
    assert len(step.taken.keys) == 32
    assert step.batch.report["rollouts/failed"] == 3
    assert "agent loop raised" in step.controller.first_error


@pytest.mark.parametrize("reward", [float("nan"), float("inf")])
def test_a_reward_that_is_no_number_does_not_train(drawn: Any, reward: float) -> None:
    step = drawn(
        neyman.preset("uniform", max_tries=1),
        lambda prompt, session: reward if (prompt, session) == (1, 0) else even(prompt, session),
        budget=32,
    )
    assert len(step.taken.keys) == 31
    assert len(step.queue.tags) == 31


def test_outputs_of_one_session_are_one_rollout(drawn: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent loop that returns several outputs: the last has the reward, all train, their tokens add up."""
    settle = Loops.settle

    def doubled(self: Loops, place: int = 0) -> None:
        settle(self, place)
        for key in [key for key in self.queue.tags if key.endswith("_0")]:
            if (twin := f"{key[:-1]}1") not in self.queue.tags:
                self.queue.put(twin, float(self.queue.fields[key]["rm_scores"].sum()), tokens=5)
                self.queue.fields[key]["rm_scores"] = torch.zeros(3)

    monkeypatch.setattr(Loops, "settle", doubled)
    step = drawn(neyman.preset("uniform"), even, budget=32)
    assert len(step.taken.keys) == 64
    assert step.batch.rewards.mean() == 0.5
    assert step.controller.ledger.tokens() == 32 * 8


def test_a_reward_that_is_not_binary_names_the_way_out(drawn: Any) -> None:
    with pytest.raises(ContractError, match=r"\+neyman\.success=reward"):
        drawn(neyman.preset("uniform"), lambda prompt, session: 0.3, budget=32)


def test_a_verdict_that_cannot_be_told_is_drawn_again(drawn: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The number that says success is None: the rollout is missing, as if its reward were."""
    put, told = Queue.put, []

    def with_acc(self: Queue, key: str, reward: float, tokens: int = 3) -> None:
        told.append(key)
        put(self, key, reward, tokens, acc=None if len(told) <= 3 else reward)

    monkeypatch.setattr(Queue, "put", with_acc)
    step = drawn(neyman.preset("uniform"), even, budget=32, success=Success("acc", 0.5))
    assert step.batch.report["rollouts/failed"] == 3
    assert step.controller.first_error == "the reward function returned acc=None"
    assert len(step.taken.keys) == 32


def test_a_worker_that_is_gone_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(0, 10_000, 50))
    monkeypatch.setattr(_rounds, "tq", Queue())
    monkeypatch.setattr(_rounds.time, "sleep", lambda _: None)
    monkeypatch.setattr(_rounds.time, "monotonic", lambda: next(clock))

    def gone() -> None:
        raise RunFailedError("an agent loop of verl's is gone")

    controller = neyman.Controller(neyman.preset("uniform"), neyman.Budget(rollouts=32))
    rounds = Rounds(controller, lambda requests, uids: None, Success(None, 0.5), gone, barrier=False)
    rounds.begin(range(4), policy_version=0)
    with pytest.raises(RunFailedError, match="agent loop of verl's is gone"):
        rounds.finish()


def test_surplus_is_waited_for_and_cleared(drawn: Any) -> None:
    step = drawn(neyman.preset("sara", group_size=8), even, budget=128)
    assert not step.loops.waiting
    assert len(step.taken.keys) == 32
    assert set(step.queue.tags) == set(step.taken.keys)
    assert step.taken.partition_id == PARTITION
