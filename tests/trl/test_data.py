"""Datasets as users have them: plain and conversational, streamed, with their own ids and columns."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from datasets import Dataset, IterableDataset
from trl import GRPOTrainer, RLOOTrainer

import neyman
from neyman.errors import ArgumentError

PLAIN_TEMPLATE = "{% for message in messages %}{{ message['content'] }}{% endfor %}"


class Seen:
    """A reward function that keeps the columns it was given."""

    __name__ = "seen"

    def __init__(self, bench: Any) -> None:
        self._bench = bench
        self.calls: list[dict[str, Any]] = []

    def __call__(self, **columns: Any) -> list[float]:
        self.calls.append(columns)
        return [
            self._bench.grade(_text(p), _text(c))
            for p, c in zip(columns["prompts"], columns["completions"], strict=True)
        ]

    def columns(self) -> set[str]:
        """Return the names of what was given, without what TRL gives to every reward function."""
        own = {"prompts", "completions", "completion_ids", "trainer_state", "log_extra", "log_metric"}
        return set(self.calls[0]) - own


def _text(value: Any) -> str:
    return value if isinstance(value, str) else value[-1]["content"]


def conversations(bench: Any) -> Dataset:
    rows = [{**row, "prompt": [{"role": "user", "content": row["prompt"]}]} for row in bench.dataset()]
    return Dataset.from_list(rows)


def stream(bench: Any) -> IterableDataset:
    rows = list(bench.dataset())
    return IterableDataset.from_generator(lambda: iter(rows))


@pytest.mark.parametrize("preset", ["uniform", "sara"])
def test_columns_reach_reward_functions_beside_their_prompts(bench: Any, preset: str) -> None:
    seen = Seen(bench)
    bench.train(GRPOTrainer, neyman.preset(preset), rewards=seen, max_steps=2)
    assert seen.columns() == {"answer", "number"}
    answer_of = {row["prompt"]: (row["answer"], row["number"]) for row in bench.dataset()}
    for call in seen.calls:
        given = list(zip(call["answer"], call["number"], strict=True))
        assert [answer_of[prompt] for prompt in call["prompts"]] == given


def test_an_id_column_of_the_users_own_reaches_reward_functions_and_the_ledger(bench: Any) -> None:
    seen = Seen(bench)
    named = bench.dataset().map(lambda row: {"qid": f"q{row['number']}"})
    run = bench.train(
        GRPOTrainer,
        neyman.preset("sara"),
        rewards=seen,
        dataset=named,
        max_steps=2,
        ours={"id_column": "qid"},
    )
    assert seen.columns() == {"answer", "number", "qid"}
    for call in seen.calls:
        assert [f"q{number}" for number in call["number"]] == call["qid"]
    _, batch = run.batches[0]
    assert all(prompt_id.startswith("q") for prompt_id in batch.prompt_ids)
    assert run.trainer.controller.ledger.visits(batch.prompt_ids[0]) >= 1


def test_a_neyman_id_of_the_users_own_stays_theirs(bench: Any) -> None:
    seen = Seen(bench)
    numbered = bench.dataset().map(lambda row: {"neyman_id": 100 + row["number"]})
    run = bench.train(GRPOTrainer, neyman.preset("uniform"), rewards=seen, dataset=numbered, max_steps=1)
    assert seen.columns() == {"answer", "number", "neyman_id"}
    assert min(run.batches[0][1].prompt_ids) >= 100


def test_ids_that_stand_twice_are_refused(bench: Any) -> None:
    doubled = bench.dataset().map(lambda row: {"qid": row["number"] // 2})
    with pytest.raises(ArgumentError, match=r"'qid' must name each row once, but 20 ids stand twice"):
        bench.build(GRPOTrainer, neyman.preset("uniform"), dataset=doubled, ours={"id_column": "qid"})


def test_ids_that_are_neither_strings_nor_integers_are_refused(bench: Any) -> None:
    broken = bench.dataset().map(lambda row: {"qid": row["number"] + 0.5})
    with pytest.raises(ArgumentError, match=r"'qid' must hold strings or integers, got 0.5"):
        bench.build(GRPOTrainer, neyman.preset("uniform"), dataset=broken, ours={"id_column": "qid"})


def test_a_column_that_does_not_exist_is_refused_with_those_that_do(bench: Any) -> None:
    with pytest.raises(ArgumentError, match=r"id_column='qdi' is no column.*'prompt', 'answer', 'number'"):
        bench.build(GRPOTrainer, neyman.preset("uniform"), ours={"id_column": "qdi"})


@pytest.mark.parametrize("strategy", [None, "uniform", "sara"])
def test_removed_columns_are_kept_from_reward_functions_as_the_stock_trainer_does(
    bench: Any, strategy: str | None
) -> None:
    seen = Seen(bench)
    bench.train(
        GRPOTrainer,
        None if strategy is None else neyman.preset(strategy),
        rewards=seen,
        max_steps=1,
        remove_unused_columns=True,
    )
    assert seen.columns() == set()


@pytest.mark.since_trl("1.10", "iterable datasets")
@pytest.mark.parametrize("cls", [GRPOTrainer, RLOOTrainer])
def test_a_stream_under_uniform_equals_the_stock_trainer(bench: Any, cls: Any) -> None:
    stock = bench.train(cls, None, dataset=stream(bench))
    ours = bench.train(cls, neyman.preset("uniform"), dataset=stream(bench))
    assert stock.comparable_logs() == ours.comparable_logs()
    assert stock.calls == ours.calls


@pytest.mark.since_trl("1.10", "iterable datasets")
@pytest.mark.parametrize("preset", ["vip", "sara", "dynamic-sampling"])
def test_a_stream_has_no_pool_and_still_trains_whole_batches(bench: Any, preset: str) -> None:
    seen = Seen(bench)
    options = {"belief": neyman.beliefs.Counts()} if preset == "vip" else {}
    run = bench.train(
        GRPOTrainer, neyman.preset(preset, **options), rewards=seen, dataset=stream(bench), max_steps=3
    )
    assert [len(batch) for _, batch in run.batches] == [32] * 3
    answer_of = {row["prompt"]: row["answer"] for row in bench.dataset()}
    for call in seen.calls:
        assert [answer_of[prompt] for prompt in call["prompts"]] == call["answer"]
    for (_, batch), rows in zip(run.batches, run.trained(), strict=True):
        prompt_of = dict(zip(batch.prompt_ids, (prompt for prompt, _ in rows), strict=True))
        assert [prompt_of[i] for i in batch.prompt_ids] == [prompt for prompt, _ in rows]
    assert seen.columns() == {"answer", "number"}


def repeating(bench: Any) -> IterableDataset:
    """Return a stream whose batches of 4 hold a prompt twice or thrice, with answers of their own."""
    rows = list(bench.dataset())
    order = [0, 1, 0, 2, 3, 3, 3, 4, 5, 6, 7, 5]
    again = [{**rows[i], "answer": f"{rows[i]['answer']}, row {place}"} for place, i in enumerate(order * 4)]
    return IterableDataset.from_generator(lambda: iter(again))


@pytest.mark.since_trl("1.10", "iterable datasets")
@pytest.mark.parametrize("cls", [GRPOTrainer, RLOOTrainer])
@pytest.mark.parametrize("data", [stream, repeating])
def test_uniform_on_a_stream_equals_the_stock_trainer_to_the_bit(bench: Any, cls: Any, data: Any) -> None:
    runs = []
    for strategy in (None, neyman.preset("uniform")):
        seen = Seen(bench)
        run = bench.train(cls, strategy, rewards=seen, dataset=data(bench), max_steps=4)
        runs.append((run, [(call["prompts"], call["completions"], call["answer"]) for call in seen.calls]))
    (stock, expected), (ours, actual) = runs
    assert expected == actual
    assert stock.comparable_logs() == ours.comparable_logs()
    for (batch, _), (adapted, decided) in zip(stock.batches, ours.batches, strict=True):
        assert batch["advantages"].tolist() == adapted["advantages"].tolist()
        assert np.bincount(decided.groups).tolist() == [8, 8, 8, 8]
    weights, after = stock.weights(), ours.weights()
    assert all((weights[key] == after[key]).all() for key in weights)


@pytest.mark.since_trl("1.10", "iterable datasets")
@pytest.mark.parametrize("preset", ["sara", "vip", "neyman"])
def test_equal_prompts_of_a_stream_are_groups_of_their_own(bench: Any, preset: str) -> None:
    run = bench.train(GRPOTrainer, neyman.preset(preset), dataset=repeating(bench), max_steps=3)
    assert [log["neyman/groups_opened"] for log in run.logs] == [4.0, 4.0, 4.0]
    assert [len(batch) for _, batch in run.batches] == [32] * 3
    assert min(len({prompt for prompt, _ in rows}) for rows in run.trained()) < 4, (
        "prompts stood twice in a batch"
    )


@pytest.mark.since_trl("1.10", "iterable datasets")
@pytest.mark.parametrize(
    ("strategy", "said"),
    [
        (
            neyman.preset("sara"),
            "fresh prompts.*none beside the batch's own.*weight zero.*map-style.*fixed_spend",
        ),
        (neyman.preset("dynamic-sampling"), "fresh prompts.*none beside the batch's own"),
        (neyman.preset("neyman"), "chooses prompts.*offers none.*map-style"),
        (neyman.preset("mopps"), "chooses prompts.*offers none.*map-style"),
        (neyman.preset("sara", close="fixed_spend"), None),
        (neyman.preset("vip"), None),
        (neyman.preset("uniform"), None),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_what_a_stream_cannot_give_is_said_at_once(
    bench: Any, caplog: Any, strategy: neyman.Strategy, said: str | None
) -> None:
    bench.build(GRPOTrainer, strategy, dataset=stream(bench))
    messages = [record.getMessage() for record in caplog.records if record.name == "neyman"]
    if said is None:
        assert messages == []
    else:
        (message,) = messages
        assert re.search(said, message)


@pytest.mark.since_trl("1.10", "iterable datasets")
def test_rollouts_of_a_stream_are_not_kept_for_later_steps(bench: Any) -> None:
    with pytest.raises(
        ArgumentError, match=r"keeps rollouts for 2 steps.*set max_age=0, or load a map-style"
    ):
        bench.build(GRPOTrainer, neyman.preset("sara", max_age=2), dataset=stream(bench))


@pytest.mark.since_trl("1.10", "iterable datasets")
def test_features_for_a_stream_are_refused(bench: Any) -> None:
    with pytest.raises(ArgumentError, match="streams: pass a map-style dataset"):
        bench.build(
            GRPOTrainer, neyman.preset("uniform"), dataset=stream(bench), ours={"features": [[1.0]] * 40}
        )


@pytest.mark.parametrize("cls", [GRPOTrainer, RLOOTrainer])
def test_conversations_under_uniform_equal_the_stock_trainer(bench: Any, cls: Any) -> None:
    runs = []
    for strategy in (None, neyman.preset("uniform")):
        tokenizer = bench.tokenizer()
        tokenizer.chat_template = PLAIN_TEMPLATE
        seen = Seen(bench)
        run = bench.train(cls, strategy, rewards=seen, dataset=conversations(bench), tokenizer=tokenizer)
        runs.append((run, [(call["prompts"], call["completions"]) for call in seen.calls]))
    (stock, expected), (ours, actual) = runs
    assert expected == actual
    assert expected[0][0][0][0]["role"] == "user"
    assert expected[0][1][0][0]["role"] == "assistant"
    assert stock.comparable_logs() == ours.comparable_logs()


def test_conversations_are_joined_to_their_prompts_in_rounds(bench: Any) -> None:
    tokenizer = bench.tokenizer()
    tokenizer.chat_template = PLAIN_TEMPLATE
    seen = Seen(bench)
    run = bench.train(
        GRPOTrainer,
        neyman.preset("sara"),
        rewards=seen,
        dataset=conversations(bench),
        tokenizer=tokenizer,
        max_steps=2,
    )
    drawn = {
        (_text(p), _text(c))
        for call in seen.calls
        for p, c in zip(call["prompts"], call["completions"], strict=True)
    }
    for (_, batch), rows in zip(run.batches, run.trained(), strict=True):
        assert set(rows) <= drawn
        graded = [bench.grade(p, c) for (p, c), group in zip(rows, batch.groups, strict=True) if group >= 0]
        assert graded == batch.rewards[batch.groups >= 0].tolist()


def test_a_reward_function_may_write_into_its_rows(bench: Any) -> None:
    def scribble(
        prompts: list[Any], completions: list[str], answer: list[str], **columns: Any
    ) -> list[float]:
        graded = [bench.grade(p, c) for p, c in zip(prompts, completions, strict=True)]
        prompts[:] = ["spoiled"] * len(prompts)
        answer[:] = ["spoiled"] * len(answer)
        return graded

    run = bench.train(GRPOTrainer, neyman.preset("sara"), rewards=scribble, max_steps=2)
    known = set(bench.dataset()["prompt"])
    assert all(prompt in known for rows in run.trained() for prompt, _ in rows)
