"""What users of RL trainers ran into, with TRL as the host."""

from __future__ import annotations

import logging
from collections import Counter
from typing import Any

import numpy as np
import pytest
from datasets import Dataset
from trl import GRPOTrainer, RLOOTrainer

import neyman
from neyman.errors import ArgumentError
from neyman.ledger import Fate


def never(completions: list[Any], **columns: Any) -> list[float]:
    """Score every completion 0."""
    return [0.0] * len(completions)


def rows(bench: Any, count: int) -> Dataset:
    """Return the first prompts of the default dataset."""
    return bench.dataset(count)


@pytest.mark.parametrize("preset", ["sara", "dynamic-sampling"])
def test_case_01_a_batch_that_never_fills_trains_short_and_says_why(bench: Any, preset: str) -> None:
    """CASE 1. For presets that discard groups, on prompts of which 95 % are never solved."""
    solved = {row["prompt"] for row in bench.dataset(100).select(range(0, 100, 20))}

    def rare(prompts: list[str], completions: list[str], **columns: Any) -> list[float]:
        return [float(p in solved and len(c) % 2) for p, c in zip(prompts, completions, strict=True)]

    run = bench.train(
        strategy=neyman.preset(preset),
        rewards=rare,
        dataset=rows(bench, 100),
        max_steps=2,
        ours={"max_rollouts": 64},
    )
    for batch in (batch for _, batch in run.batches):
        assert batch.stop_reason is neyman.StopReason.BUDGET
        assert set(np.array(batch.prompt_ids)[batch.counted]) <= set(range(0, 100, 20))
    assert [log["neyman/rows"] for log in run.logs] == [32.0, 32.0]
    assert all(log["neyman/rows_filled"] > 0 for log in run.logs)


def test_case_02_batches_delivered_prompts_drawn_and_progress_agree(bench: Any) -> None:
    """CASE 2. For a bound of three times the batch, over one epoch of TRL's."""
    run = bench.train(
        strategy=neyman.preset("dynamic-sampling"),
        ours={"max_rollouts": 96},
        max_steps=-1,
        num_train_epochs=1,
    )
    trainer, ledger = run.trainer, run.trainer.controller.ledger
    assert trainer.state.global_step == ledger.steps == len(run.batches) == 10
    assert all(log["neyman/rollouts"] <= 96 for log in run.logs)
    visits = sum(ledger.visits(i) for i in range(40))
    assert visits == sum(log["neyman/groups_opened"] for log in run.logs)
    assert run.logs[-1]["neyman/coverage"] == ledger.coverage(40) == 1.0


@pytest.mark.parametrize("preset", ["uniform", "vip", "sara", "dynamic-sampling", "neyman"])
def test_case_08_a_prompt_that_is_never_scored_is_given_up_and_never_trained(bench: Any, preset: str) -> None:
    """CASE 8. For every preset, the first step's first prompt never gets a reward."""
    first: list[str] = []

    def raises(prompts: list[str], completions: list[str], **columns: Any) -> list[float | None]:
        first.append(prompts[0])
        return [
            None if p == first[0] else bench.grade(p, c) for p, c in zip(prompts, completions, strict=True)
        ]

    run = bench.train(strategy=neyman.preset(preset), rewards=raises, max_steps=1, ours={"retries": 1.0})
    (batch,) = (batch for _, batch in run.batches)
    prompts = [bench.dataset()[i]["prompt"] for i in batch.prompt_ids]
    assert not any(p == first[0] and w > 0 for p, w in zip(prompts, batch.weights, strict=True))
    report = next(
        g for g in run.trainer.controller.group_reports if bench.dataset()[g.prompt_id]["prompt"] == first[0]
    )
    assert report.trials == 0
    tries = run.trainer.controller.ledger.rollouts(Fate.FAILED)
    assert tries == report.rollouts <= 3 * 8


def test_case_18_the_budget_is_generated_once_however_the_engine_repeats(bench: Any) -> None:
    """CASE 18. For unequal groups: TRL repeats prompts in its sampler, and nothing repeats them again."""
    run = bench.build(strategy=bench.ragged((14, 9, 6, 3)))
    generated: list[int] = []
    original = run.trainer.base_generate
    run.trainer.base_generate = lambda prompts: generated.append(len(prompts)) or original(prompts)
    run.trainer.train()
    assert generated == [32] * 3
    for _, batch in run.batches:
        assert sorted(Counter(batch.prompt_ids).values()) == [3, 6, 9, 14]


@pytest.mark.parametrize("cls", [GRPOTrainer, RLOOTrainer])
@pytest.mark.parametrize("preset", ["uniform", "vip", "dynamic-sampling"])
def test_case_23_fewer_prompts_than_a_batch_takes_are_refused_with_what_is_legal(
    bench: Any, cls: Any, preset: str
) -> None:
    """CASE 23. For datasets of which TRL would drop the only, incomplete, batch and train nothing."""
    with pytest.raises(ArgumentError, match=r"3 prompts.*4 different prompts.*generation_batch_size to 24"):
        bench.build(cls, neyman.preset(preset), dataset=rows(bench, 3))
    bench.build(cls, neyman.preset(preset), dataset=rows(bench, 4))


def test_case_23_prompts_that_an_unshuffled_run_never_brings_are_warned_of(
    bench: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """CASE 23. For 9 prompts in batches of 4: the tail that TRL drops is another in every epoch, if it shuffles."""
    said = {}
    for shuffles in (True, False):
        caplog.clear()
        with caplog.at_level(logging.WARNING, logger="neyman"):
            run = bench.train(
                strategy=neyman.preset("uniform"),
                dataset=rows(bench, 9),
                max_steps=-1,
                num_train_epochs=4,
                shuffle_dataset=shuffles,
            )
        said[shuffles] = [r.getMessage() for r in caplog.records if "never brings" in r.getMessage()]
        assert run.trainer.controller.ledger.prompts_visited == (9 if shuffles else 8)
    assert said[True] == []
    (message,) = said[False]
    assert "the last 1 of 9 prompts" in message
    assert "8 or 12" in message


@pytest.mark.parametrize("preset", ["vip", "neyman"])
def test_case_23_a_pool_draws_what_the_tail_of_an_epoch_leaves_out(bench: Any, preset: str) -> None:
    """CASE 23. For strategies that draw beyond the host's prompts, and those that do not, over shuffled epochs."""
    run = bench.train(
        strategy=neyman.preset(preset), dataset=rows(bench, 9), max_steps=-1, num_train_epochs=3
    )
    assert run.trainer.controller.ledger.prompts_visited == 9


@pytest.mark.parametrize("cls", [GRPOTrainer, RLOOTrainer])
def test_case_31_switched_off_the_index_stream_is_the_stock_trainers(bench: Any, cls: Any) -> None:
    """CASE 31. For both trainers: the sampler's indices without training, under no strategy and under uniform."""
    streams = []
    for strategy in (None, neyman.preset("uniform")):
        trainer = bench.build(cls, strategy).trainer
        sampler = trainer._get_train_sampler()
        streams.append([list(sampler) for _ in range(2)])
    assert streams[0] == streams[1]


@pytest.mark.parametrize("preset", ["sara", "dynamic-sampling"])
@pytest.mark.parametrize("bound", [32, 40, 64])
def test_case_31_dynamic_sampling_keeps_its_upper_bound_where_nothing_is_ever_mixed(
    bench: Any, preset: str, bound: int
) -> None:
    """CASE 31. For the worst case of every bound, multiples of the batch or not."""
    run = bench.train(
        strategy=neyman.preset(preset), rewards=never, max_steps=2, ours={"max_rollouts": bound}
    )
    assert all(bound - 8 < log["neyman/rollouts"] <= bound for log in run.logs)
    assert run.trainer.controller.ledger.requested <= 2 * bound


@pytest.mark.parametrize("preset", ["uniform", "sara"])
def test_case_30_generation_is_timed_apart_from_the_whole_step(bench: Any, preset: str) -> None:
    """CASE 30. For one round and for several: what is spent on updates is what is left of TRL's step time."""
    run = bench.train(strategy=neyman.preset(preset), max_steps=2)
    for log in run.logs:
        assert 0 < log["neyman/generation_seconds"] < log["step_time"]
    assert run.trainer.controller.ledger.seconds() == 0.0, "no state depends on a clock"
