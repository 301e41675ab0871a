"""Rollout functions are served row by row; tools, environments and images keep TRL's own single call."""

from __future__ import annotations

import inspect
import string
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from datasets import Dataset
from trl import GRPOTrainer, RLOOTrainer

import neyman
from neyman.errors import ArgumentError, ContractError
from neyman.step.ledger import Fate
from neyman.tasks import tiny_policy
from neyman.trl._own_prompts import check_own_prompts
from neyman.trl._session import Session

DIGITS = 10
END = len(tiny_policy.PolicyConfig().alphabet)


class Rollouts:
    """A rollout function that writes digits, says where they come from and masks the first token."""

    def __init__(self, *, logprobs: bool = True) -> None:
        self._logprobs = logprobs
        self.made: dict[tuple[str, tuple[int, ...], str], list[int]] = {}
        self.batches: list[int] = []

    def __call__(self, prompts: list[str], trainer: Any) -> dict[str, Any]:
        tokenizer = trainer.processing_class
        self.batches.append(len(prompts))
        rows: dict[str, list[Any]] = {
            "prompt_ids": [],
            "completion_ids": [],
            "logprobs": [],
            "source": [],
            "env_mask": [],
        }
        for prompt in prompts:
            length = int(torch.randint(1, 6, ()))
            ids = [*torch.randint(0, DIGITS, (length,)).tolist(), END]
            source = f"{prompt}#{len(self.made)}"
            mask = [0, *[1] * length]
            self.made[prompt, tuple(ids), source] = mask
            rows["prompt_ids"].append(tokenizer(prompt)["input_ids"])
            rows["completion_ids"].append(ids)
            rows["logprobs"].append([-float(token) for token in ids])
            rows["source"].append(source)
            rows["env_mask"].append(mask)
        return {**rows, "logprobs": rows["logprobs"] if self._logprobs else None, "everywhere": "same"}


class Sources:
    """A reward function that keeps what reaches it from the rollout function."""

    __name__ = "sources"

    def __init__(self, bench: Any) -> None:
        self._bench = bench
        self.given: list[tuple[Any, ...]] = []
        self.columns: set[str] = set()

    def __call__(self, prompts: Any, completions: Any, completion_ids: Any, **columns: Any) -> list[float]:
        self.columns |= set(columns)
        for row in zip(prompts, completion_ids, columns["source"], columns["everywhere"], strict=True):
            self.given.append((row[0], tuple(int(token) for token in row[1]), *row[2:]))
        return [self._bench.grade(p, c) for p, c in zip(prompts, completions, strict=True)]


@pytest.mark.parametrize("logprobs", [True, False])
def test_a_rollout_function_under_uniform_equals_the_stock_trainer(bench: Any, logprobs: bool) -> None:
    runs = []
    for strategy in (None, neyman.preset("uniform")):
        reward = Sources(bench)
        rollouts = Rollouts(logprobs=logprobs)
        run = bench.train(GRPOTrainer, strategy, rewards=reward, max_steps=2, host={"rollout_func": rollouts})
        runs.append((run.comparable_logs(), reward.given, reward.columns, run.trained(), rollouts.batches))
    assert runs[0] == runs[1]
    assert "env_mask" not in runs[0][2]


def test_a_rollout_functions_fields_stay_with_their_rows_in_rounds(bench: Any) -> None:
    reward, rollouts = Sources(bench), Rollouts()
    run = bench.train(
        GRPOTrainer, neyman.preset("sara"), rewards=reward, max_steps=2, host={"rollout_func": rollouts}
    )
    assert len(rollouts.batches) > 2
    assert sum(rollouts.batches) == len(reward.given) == run.trainer.controller.ledger.requested
    assert {(prompt, ids, source) for prompt, ids, source, _ in reward.given} == set(rollouts.made)
    assert {everywhere for *_, everywhere in reward.given} == {"same"}
    assert "env_mask" not in reward.columns
    masks = {ids: mask for (_, ids, _), mask in rollouts.made.items()}
    for inputs, _ in run.batches:
        for row in range(32):
            length = int(inputs["completion_mask"][row].sum())
            ids = inputs["completion_ids"][row, :length].tolist()
            assert inputs["tool_mask"][row, :length].tolist() == masks[tuple(ids)]
            assert inputs["sampling_per_token_logps"][row, :length].tolist() == [-float(i) for i in ids]


def test_the_users_rollout_function_is_put_back_after_each_step(bench: Any) -> None:
    rollouts = Rollouts()
    run = bench.train(
        GRPOTrainer,
        neyman.preset("sara"),
        rewards=Sources(bench),
        max_steps=1,
        host={"rollout_func": rollouts},
    )
    assert run.trainer.rollout_func is rollouts


class Careless(Rollouts):
    """A rollout function that from its second call on loses, doubles, swaps or shortens rows, or dies."""

    def __init__(self, fault: str) -> None:
        super().__init__()
        self._fault = fault

    def __call__(self, prompts: list[str], trainer: Any) -> dict[str, Any]:
        rows = super().__call__(prompts, trainer)
        if len(self.batches) == 1:
            return rows
        if self._fault == "dies":
            raise ConnectionError("the engine died")
        if self._fault == "logprobs":
            return {**rows, "logprobs": rows["logprobs"][1:]}
        order = list(range(len(prompts)))
        other = next(i for i in order if prompts[i] != prompts[0])
        given = {
            "fewer": order[1:],
            "twice": [0, *order],
            "swapped": [other, *order[1:other], 0, *order[other + 1 :]],
            "turned": order[::-1],
        }[self._fault]
        return {
            name: [part[i] for i in given] if isinstance(part, list) else part for name, part in rows.items()
        }


@pytest.mark.parametrize(
    ("fault", "error", "cause"),
    [
        ("fewer", ContractError, "31 rows of prompt_ids for 32 prompts"),
        ("twice", ContractError, "33 rows of prompt_ids for 32 prompts"),
        ("logprobs", ContractError, "31 rows of logprobs for 32 prompts"),
        (
            "swapped",
            ContractError,
            r"prompt_ids of other prompts in 2 of 32 rows: row 0 was asked prompt (\d+) and has those of prompt (\d+); "
            r"row \d+ was asked prompt \2 and has those of prompt \1\. It must return one row for each prompt",
        ),
        (
            "turned",
            ContractError,
            r"in \d+ of 32 rows: (row \d+ was asked .*; ){2}row .*, and \d+ more\. It must",
        ),
        ("dies", ConnectionError, "the engine died"),
    ],
)
def test_a_generation_with_other_rows_than_asked_for_stops_the_run_before_any_is_used(
    bench: Any, fault: str, error: type[Exception], cause: str
) -> None:
    run = bench.build(
        GRPOTrainer,
        neyman.preset("uniform"),
        rewards=Sources(bench),
        max_steps=3,
        host={"rollout_func": Careless(fault)},
    )
    with pytest.raises(error, match=cause):
        run.trainer.train()
    ledger = run.trainer.controller.ledger
    assert (ledger.requested, ledger.rollouts()) == (64, 32), (
        "the second round is out, and nothing of it counts"
    )
    assert run.trainer.state.global_step == 1


class Own(Rollouts):
    """A rollout function with prompt ids of its own making, of which some equal another prompt's."""

    def __init__(self, make: Any) -> None:
        super().__init__()
        self._make = make

    def __call__(self, prompts: list[str], trainer: Any) -> dict[str, Any]:
        rows = super().__call__(prompts, trainer)
        return {**rows, "prompt_ids": [self._make(ids) for ids in rows["prompt_ids"]]}


@pytest.mark.parametrize(
    "make",
    [
        lambda ids: [END, *ids, END],
        lambda ids: ids[-1:],
        lambda ids: ids[:1],
        lambda ids: [END],
        lambda ids: ids[::-1] * 2,
    ],
    ids=["added", "last", "first", "same", "other"],
)
def test_a_rollout_functions_own_way_with_prompts_is_accepted(bench: Any, make: Any) -> None:
    run = bench.train(
        GRPOTrainer,
        neyman.preset("uniform"),
        rewards=Sources(bench),
        max_steps=1,
        host={"rollout_func": Own(make)},
    )
    assert run.trainer.controller.ledger.rollouts() == 32


class Words:
    """A tokenizer of single characters, with a start and a template, as `check_own_prompts` uses one."""

    def __call__(self, text: str, add_special_tokens: bool) -> dict[str, list[int]]:
        return {"input_ids": [1] * add_special_tokens + [ord(c) for c in text]}

    def apply_chat_template(self, messages: Any, add_generation_prompt: bool, **_: Any) -> list[int]:
        if any(not isinstance(m["content"], str) for m in messages):
            raise TypeError("no text")
        return [2, *(ord(c) for m in messages for c in m["content"]), *[3] * add_generation_prompt]


class Host:
    """A trainer with nothing but a tokenizer."""

    processing_class = Words()


class Mute:
    """A trainer with a tokenizer that takes nothing."""

    processing_class = None


def said_of(prompts: list[str], returned: list[list[int]], *, chat: bool = False) -> str:
    """Return what is refused; empty where nothing is."""
    asked: list[Any] = [[{"role": "user", "content": p}] for p in prompts] if chat else prompts
    try:
        check_own_prompts(Host(), asked, [f"id {p}" for p in prompts], returned)
    except ContractError as error:
        return str(error)
    return ""


def codes(text: str) -> list[int]:
    return [ord(c) for c in text]


@pytest.mark.parametrize("around", [([], []), ([1], [])])
def test_rows_of_another_prompt_are_named_in_either_form(around: Any) -> None:
    before, after = around
    returned = [[*before, *codes(text), *after] for text in ("ab", "cd", "cd", "ab")]
    assert said_of(["ab", "cd", "cd", "ab"], returned) == ""
    said = said_of(["ab", "cd", "ab", "ab"], returned)
    assert "1 of 4 rows: row 2 was asked prompt 'id ab' and has those of prompt 'id cd'. It must" in said


@pytest.mark.parametrize("end", [[], [3]])
def test_rows_of_another_conversation_are_named(end: list[int]) -> None:
    returned = [[2, *codes(text), *end] for text in ("cd", "ab")]
    assert said_of(["cd", "ab"], returned, chat=True) == ""
    said = said_of(["ab", "cd"], returned, chat=True)
    assert "2 of 2 rows: row 0 was asked prompt 'id ab' and has those of prompt 'id cd'; row 1" in said


@pytest.mark.parametrize(
    ("prompts", "returned"),
    [
        (["12+3", "2+3"], ["2+3", "2+3"]),  # cut short from the left
        (["12+3", "12"], ["12", "12"]),  # from the right
        (["1+1", "1+1+1"], ["1+1+1", "1+1+1"]),  # tokens added
        (["ab", "ab"], ["ab", "ab"]),  # one text under two rows
        (["ab", "cd"], ["xy", "xy"]),  # of no prompt that was asked
        (["ab", "", "cd"], ["", "", ""]),  # of nothing
        (["ab", "cd"], ["cd"]),  # of another length, which is refused elsewhere
    ],
)
def test_rows_that_merely_differ_are_accepted(prompts: list[str], returned: list[str]) -> None:
    assert said_of(prompts, [codes(text) for text in returned]) == ""


def test_prompts_that_cannot_be_rendered_are_not_judged() -> None:
    picture = [{"role": "user", "content": [{"type": "image"}]}]
    check_own_prompts(Host(), [picture, picture], ["a", "b"], [[2, 3], [2, 3]])
    check_own_prompts(Mute(), ["ab", "cd"], ["a", "b"], [codes("cd"), codes("ab")])


# Renders a call as its name and arguments, a tool's answer as its content.
TOOL_TEMPLATE = (
    "{% for m in messages %}{% if m.tool_calls %}{% for c in m.tool_calls %}"
    "{{ c.function.name }}{{ c.function.arguments | tojson }}{% endfor %}{% else %}{{ m.content }}{% endif %}"
    "{% if m.role == 'assistant' %}{{ eos_token }}{% endif %}{% endfor %}"
)


def double(x: int) -> str:
    """Double a number.

    Args:
        x: the number.
    """
    return str(2 * x)


class Room:
    """An environment with one tool; it keeps what it was reset with."""

    resets: list[dict[str, Any]] = []  # noqa: RUF012 (shared by all rooms of a run on purpose)

    def reset(self, **row: Any) -> str | None:
        Room.resets.append(row)
        self.doubled = 0
        return "7"

    def double(self, x: int) -> str:
        """Double a number.

        Args:
            x: the number.
        """
        self.doubled += 1
        return double(x)


class Caller:
    """Reads a tool call into every completion of even length."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer

    def __call__(self, ids: list[int], **_: Any) -> dict[str, Any]:
        text = self._tokenizer.decode(ids, skip_special_tokens=True)
        message: dict[str, Any] = {"role": "assistant", "content": text}
        if len(text) % 2 == 0 and text:
            call = {"name": "double", "arguments": {"x": len(text)}}
            message["tool_calls"] = [{"type": "function", "function": call}]
        return message


@pytest.fixture(scope="module")
def speaker(bench: Any) -> Path:
    """Return a policy that reads and writes printable ASCII, as tool calls need."""
    config = tiny_policy.PolicyConfig(
        alphabet="".join(c for c in string.printable if c == "\n" or c >= " "), steps=25, batch=64
    )
    return tiny_policy.build_policy(config, bench.babble, name="babble-ascii", cache=bench.folder.parent)


@pytest.fixture
def tool_user(bench: Any, speaker: Path) -> Any:
    """Return a function that trains on conversations with a tool-calling tokenizer."""

    def train(strategy: Any, *, build: bool = False, **options: Any) -> Any:
        _, tokenizer = tiny_policy.load_policy(speaker)
        tokenizer.chat_template = TOOL_TEMPLATE
        tokenizer.response_template = {"set": "so that TRL parses completions"}
        tokenizer.parse_response = Caller(tokenizer)
        rows = [{**row, "prompt": [{"role": "user", "content": row["prompt"]}]} for row in bench.dataset()]

        def reward(prompts: Any, completions: Any, **columns: Any) -> list[float]:
            run_calls.append([(p[0]["content"], str(c)) for p, c in zip(prompts, completions, strict=True)])
            return [bench.grade(p[0]["content"], str(c)) for p, c in zip(prompts, completions, strict=True)]

        run_calls: list[Any] = []
        host = {"model": str(speaker), "train_dataset": Dataset.from_list(rows), **options.pop("host", {})}
        options = {"rewards": reward, "max_completion_length": 16, "max_steps": 2, **options}
        run = (bench.build if build else bench.train)(
            GRPOTrainer, strategy, tokenizer=tokenizer, host=host, **options
        )
        return run, run_calls

    return train


@pytest.mark.since_trl("1.10", "chat templates of one's own for tools")
def test_tools_under_uniform_equal_the_stock_trainer(tool_user: Any) -> None:
    stock, expected = tool_user(None, host={"tools": [double]})
    ours, actual = tool_user(neyman.preset("uniform"), host={"tools": [double]})
    assert stock.logs[0]["tools/call_frequency"] > 0.1
    assert stock.comparable_logs() == ours.comparable_logs()
    assert expected == actual


@pytest.mark.since_trl("1.10", "chat templates of one's own for tools")
def test_tools_work_under_unequal_groups_of_one_round(bench: Any, tool_user: Any) -> None:
    run, calls = tool_user(bench.ragged((14, 9, 6, 3)), host={"tools": [double]})
    assert len(calls) == 2
    for (inputs, batch), rows in zip(run.batches, calls, strict=True):
        assert inputs["tool_mask"].min() == 0
        prompts = [bench.dataset()[i]["prompt"] for i in batch.prompt_ids]
        assert prompts == [prompt for prompt, _ in rows]
        assert [bench.grade(p, c) for p, c in rows] == batch.rewards.tolist()
        assert sorted(torch.bincount(torch.tensor(batch.groups)).tolist()) == [3, 6, 9, 14]
    assert run.trainer.controller.ledger.requested == 64


@pytest.mark.since_trl("1.10", "chat templates of one's own for tools")
@pytest.mark.parametrize(
    "weight", [1e30, 1e10]
)  # beyond float32 itself, and only in the square of a deviation
def test_a_weighted_sum_that_overflows_is_missing_where_trl_generates_at_once(
    tool_user: Any, weight: float
) -> None:
    def large(completions: Any, **columns: Any) -> list[float]:
        return [1e14, *(float(i % 2) / weight for i in range(1, len(completions)))]

    run, _ = tool_user(
        neyman.preset("uniform"),
        host={"tools": [double]},
        rewards=large,
        reward_weights=[weight],
        ours={"success": ("large", 1e-40)},
    )
    for inputs, batch in run.batches:
        assert np.flatnonzero(np.isnan(batch.rewards)).tolist() == [0]
        assert bool(torch.isfinite(inputs["advantages"]).all())
        assert inputs["advantages"].any()
    ledger = run.trainer.controller.ledger
    assert ledger.rollouts(Fate.FAILED) == 2
    assert "the weighted sum of rewards is" in (run.trainer.controller.first_error or "")


@pytest.mark.since_trl("1.10", "chat templates of one's own for tools")
def test_an_async_tool_that_exits_ends_no_loop(tool_user: Any) -> None:
    """TRL's loop serves tools too: where it ended, the run would wait for its answer for ever."""
    calls: list[int] = []

    async def halve(x: int) -> str:
        """Halve a number.

        Args:
            x: the number.
        """
        calls.append(x)
        if len(calls) == 1:
            raise SystemExit(0)
        return str(x // 2)

    halve.__name__ = "double"  # what the model's words are read as
    trainer = tool_user(neyman.preset("uniform"), build=True, host={"tools": [halve]})[0].trainer
    thread = threading.Thread(target=trainer.train, daemon=True)
    thread.start()
    thread.join(60.0)
    assert not thread.is_alive(), "the training still waits for the tool"
    assert trainer.state.global_step == 2
    assert len(calls) > 1


@pytest.mark.parametrize("is_direct", [False, True])
def test_the_controller_is_told_the_rewards_that_advantages_see_clipped_as_rloo_clips_them(
    bench: Any, monkeypatch: pytest.MonkeyPatch, is_direct: bool
) -> None:
    monkeypatch.setattr(Session, "needs_direct_path", property(lambda _: is_direct))
    run = bench.train(
        RLOOTrainer, neyman.preset("uniform"), max_steps=2, reward_clip_range=(0.25, 0.75), beta=0.0
    )
    told = np.concatenate([batch.rewards for _, batch in run.batches])
    success = np.concatenate([batch.success for _, batch in run.batches])
    assert {0.0, 1.0} == set(success.tolist())
    assert told.tolist() == np.where(success == 1.0, 0.75, 0.25).tolist()
    for inputs, batch in run.batches:
        assert inputs["advantages"].numpy() == pytest.approx(batch.advantages, abs=1e-6)


@pytest.mark.since_trl("1.10", "chat templates of one's own for tools")
def test_environments_under_uniform_equal_the_stock_trainer(tool_user: Any) -> None:
    runs = []
    for strategy in (None, neyman.preset("uniform")):
        Room.resets = []
        run, calls = tool_user(strategy, host={"environment_factory": Room})
        runs.append((run.comparable_logs(), calls, [sorted(row) for row in Room.resets]))
    assert runs[0] == runs[1]
    assert runs[0][2][0] == ["answer", "number", "prompt"]


@pytest.mark.since_trl("1.10", "chat templates of one's own for tools")
def test_an_environment_that_owns_the_data_needs_no_dataset(tool_user: Any) -> None:
    def visits(prompts: Any, environments: Any, **columns: Any) -> list[float]:
        return [float(room.doubled > 0) for room in environments]

    host = {"environment_factory": Room, "train_dataset": None}
    stock, _ = tool_user(None, host=host, rewards=visits)
    ours, _ = tool_user(neyman.preset("uniform"), host=host, rewards=visits)
    assert stock.comparable_logs() == ours.comparable_logs()
    assert ours.logs[-1]["neyman/groups"] == 4


@pytest.mark.since_trl("1.10", "chat templates of one's own for tools")
@pytest.mark.parametrize("preset", ["sara", "dynamic-sampling", "neyman"])
@pytest.mark.parametrize(
    "host", [{"tools": [double]}, {"environment_factory": Room}], ids=["tools", "environment"]
)
def test_strategies_of_several_rounds_are_refused_where_trl_must_generate_at_once(
    tool_user: Any, preset: str, host: dict[str, Any]
) -> None:
    options = {"belief": neyman.beliefs.Counts()} if preset == "neyman" else {}
    with pytest.raises(ArgumentError, match=r"several rounds.*'vip', 'dynamo' or 'uniform'"):
        tool_user(neyman.preset(preset, **options), build=True, host=host)


def test_images_are_refused_under_strategies_of_several_rounds(bench: Any) -> None:
    pictured = bench.dataset().map(lambda row: {"image": None})
    with pytest.raises(ArgumentError, match=r"'sara' draws in several rounds.*images"):
        bench.build(GRPOTrainer, neyman.preset("sara"), dataset=pictured)


@pytest.mark.parametrize("cls", [GRPOTrainer, RLOOTrainer])
def test_engines_are_told_that_every_row_is_a_prompt_of_its_own(bench: Any, cls: Any) -> None:
    told: list[tuple[Any, int]] = []

    class Told(cls):
        def _generate_single_turn(
            self, prompt_ids: Any, images: Any, multimodal_fields: Any, *rest: Any
        ) -> Any:
            told.append((rest, self.num_generations))
            return super()._generate_single_turn(prompt_ids, images, multimodal_fields, *rest)

    class Grpo(Told):  # the newest TRL passes the number
        def _generate_single_turn(
            self, prompt_ids: Any, images: Any, multimodal_fields: Any, num_generations: int, **rest: Any
        ) -> Any:
            return super()._generate_single_turn(prompt_ids, images, multimodal_fields, num_generations)

    passed = "num_generations" in inspect.signature(cls._generate_single_turn).parameters
    run = bench.train(Grpo if passed else Told, neyman.preset("sara"), max_steps=1)
    assert set(told) == {((1,), 1) if passed else ((), 1)}
    assert run.trainer.num_generations == 8


def test_a_sleeping_engine_wakes_once_for_all_rounds_of_a_step(bench: Any) -> None:
    class Engine:
        """Stands in for TRL's colocated vLLM, whose every sleep would cost a push of all weights."""

        mode, enable_sleep_mode = "colocate", True

        def __init__(self) -> None:
            self.llm, self.calls = self, []

        def wake_up(self) -> None:
            self.calls.append("wake")

        def sleep(self, level: int) -> None:
            self.calls.append(f"sleep {level}")

    run = bench.build(GRPOTrainer, neyman.preset("sara"), max_steps=2)
    engine = run.trainer.vllm_generation = Engine()
    run.trainer.train()
    assert run.trainer.controller.ledger.steps == 2
    assert engine.calls == ["wake", "sleep 2"] * 2
    assert engine.enable_sleep_mode
