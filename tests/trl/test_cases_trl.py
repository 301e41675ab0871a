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
from neyman.beliefs import Counts
from neyman.errors import ArgumentError
from neyman.step.ledger import Fate


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


@pytest.mark.parametrize("preset", ["uniform", "vip", "sara", "dynamic-sampling", "neyman"])
def test_case_03_a_step_of_uniform_groups_alone_trains_nothing_and_the_run_goes_on(
    bench: Any, preset: str
) -> None:
    """CASE 3. For every kind of strategy, prompts of which a step finds each always or never solved."""

    def at_first_uniform(
        prompts: list[str], completions: list[str], trainer_state: Any, **columns: Any
    ) -> list[float]:
        if trainer_state.global_step == 0:
            return [float(p[1] in "01234") for p in prompts]
        return [float(len(c) % 2) for c in completions]

    run = bench.train(strategy=neyman.preset(preset), rewards=at_first_uniform, max_steps=2)
    (first, _), (second, _) = run.batches
    assert not first["advantages"].any()
    assert run.logs[0]["neyman/effective_groups"] == run.logs[0]["grad_norm"] == 0.0
    assert second["advantages"].any()
    assert run.logs[1]["grad_norm"] > 0.0


def test_case_04_a_rejected_group_asks_for_one_group_and_for_no_full_wave(bench: Any) -> None:
    """CASE 4. For refills as small as what is missing: what is requested is what is kept and rejected."""
    run = bench.train(
        strategy=neyman.preset("dynamic-sampling", over_provision=1.0), max_steps=3, ours={"retries": 0.0}
    )
    ledger = run.trainer.controller.ledger
    kept = sum(int(batch.counted.sum()) for _, batch in run.batches)
    assert ledger.requested == kept + ledger.rollouts(Fate.ABANDONED)
    assert ledger.rollouts(Fate.ABANDONED) > 0
    assert min(len(prompts) for prompts, _ in run.calls) == 8


def test_case_05_surplus_trains_in_the_next_step_and_keeps_its_policy_version(bench: Any) -> None:
    """CASE 5. For groups that a round drew beyond the batch: drawn and scored once, first in the next batch."""
    run = bench.train(
        strategy=neyman.preset("dynamic-sampling", over_provision=4.0, max_age=1),
        max_steps=4,
        ours={"retries": 0.0},
    )
    carried = 0
    for step, (_, batch) in enumerate(run.batches):
        real = batch.groups >= 0
        assert (batch.policy_version[real] == step - batch.age[real]).all()
        assert set(batch.age.tolist()) <= {0, 1}
        assert (np.diff(batch.age[real]) <= 0).all(), "what was carried over comes first"
        carried += int((batch.age == 1).sum())
    ledger = run.trainer.controller.ledger
    assert carried > 0
    assert ledger.rollouts(Fate.SURPLUS) == 0
    assert sum(run.drawn().values()) == ledger.requested


@pytest.mark.parametrize("preset", ["sara", "dynamic-sampling"])
def test_case_06_a_dataset_that_ends_in_the_middle_of_a_step_loses_no_group_with_signal(
    bench: Any, preset: str
) -> None:
    """CASE 6. For fewer prompts than the batch needs after the rejected ones."""
    solvable = {row["prompt"] for row in bench.dataset(6).select([1, 4])}

    def two_of_six(prompts: list[str], **columns: Any) -> list[float]:
        return [float(p in solvable and i % 2) for i, p in enumerate(prompts)]

    run = bench.train(strategy=neyman.preset(preset), rewards=two_of_six, dataset=rows(bench, 6), max_steps=2)
    for _, batch in run.batches:
        assert batch.stop_reason is neyman.StopReason.POOL
        assert set(np.array(batch.prompt_ids)[batch.counted].tolist()) == {1, 4}


def test_case_07_a_mastered_prompt_is_drawn_less_often_and_tested_again(bench: Any) -> None:
    """CASE 7. For prompts that are always solved, beside others: the memory outlives the steps."""
    mastered = {row["prompt"] for row in bench.dataset(16).select(range(8))}

    def half(prompts: list[str], completions: list[str], **columns: Any) -> list[float]:
        return [float(p in mastered or len(c) % 2) for p, c in zip(prompts, completions, strict=True)]

    run = bench.train(
        strategy=neyman.preset("neyman", revisit=2.0), rewards=half, dataset=rows(bench, 16), max_steps=24
    )
    ledger = run.trainer.controller.ledger
    visits = [ledger.visits(i) for i in range(16)]
    assert sum(visits[:8]) < 0.6 * sum(visits[8:])
    assert min(visits[:8]) >= 2, "tested again"


def test_case_14_one_valid_row_among_eight_has_no_advantage_and_nothing_is_nan(bench: Any) -> None:
    """CASE 14. For groups with a single reward, and groups without any, beside whole ones."""
    seen: Counter[str] = Counter()

    def once(prompts: list[str], completions: list[str], **columns: Any) -> list[float | None]:
        rewards: list[float | None] = []
        for p, c in zip(prompts, completions, strict=True):
            seen[p] += 1
            kind = sorted(set(prompts)).index(p)
            rewards.append(None if kind == 0 or (kind == 1 and seen[p] > 1) else float(len(c) % 2))
        return rewards

    run = bench.train(strategy=neyman.preset("uniform"), rewards=once, max_steps=1, ours={"retries": 0.0})
    ((inputs, batch),) = run.batches
    advantages = inputs["advantages"].numpy()
    sizes = {g: int((batch.counted & (batch.groups == g)).sum()) for g in range(4)}
    assert sorted(sizes.values()) == [0, 1, 8, 8]
    assert np.isfinite(advantages).all()
    assert not advantages[np.isin(batch.groups, [g for g, n in sizes.items() if n < 2])].any()
    assert advantages.any()
    assert np.isfinite([run.logs[0]["loss"], run.logs[0]["grad_norm"]]).all()


def test_case_17_prompts_without_rollouts_are_absent_and_rows_keep_theirs(bench: Any) -> None:
    """CASE 17. For unequal groups with an empty one among them."""
    run = bench.train(strategy=bench.ragged((20, 0, 9, 3)), max_steps=2)
    for (_, batch), trained in zip(run.batches, run.trained(), strict=True):
        assert sorted(Counter(batch.prompt_ids).values()) == [3, 9, 20]
        prompts = bench.dataset()["prompt"]
        assert [prompts[i] for i in batch.prompt_ids] == [prompt for prompt, _ in trained]


def test_case_24_a_group_size_that_leaves_most_groups_dead_is_warned_of(
    bench: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """CASE 24. For num_generations=2 on hard prompts: said after 64 groups, with what larger groups promise."""
    rare = lambda completions, **columns: [float(len(c) == 6) for c in completions]  # noqa: E731
    with caplog.at_level(logging.WARNING, logger="neyman"):
        bench.train(strategy=neyman.preset("uniform"), rewards=rare, num_generations=2, max_steps=5)
    (message,) = [r.getMessage() for r in caplog.records if "no signal" in r.getMessage()]
    assert "at 2.0 rollouts a group" in message
    assert "Raise the group size" in message


class DropsSolved:
    """A user's own rule: what is solved for certain is not drawn again."""

    def pick(self, view: Any, count: int) -> list[Any]:
        offered = [*view.candidates, *view.fresh(40)]
        rate, _ = view.belief.predict(offered)
        return [prompt for prompt, p in zip(offered, rate, strict=True) if p < 0.85][:count]


def test_case_32_a_users_own_rule_drops_solved_prompts_across_epochs(bench: Any) -> None:
    """CASE 32. For an object with one method, in a real trainer."""
    solved = {row["prompt"] for row in bench.dataset(12).select(range(4))}

    def some(prompts: list[str], completions: list[str], **columns: Any) -> list[float]:
        return [float(p in solved or i % 2) for i, p in enumerate(prompts)]

    strategy = neyman.preset("uniform", select=DropsSolved(), belief=Counts(prior=(1.0, 1.0)))
    run = bench.train(strategy=strategy, rewards=some, dataset=rows(bench, 12), max_steps=9)
    visits = [run.trainer.controller.ledger.visits(i) for i in range(12)]
    assert visits[:4] == [1] * 4
    assert min(visits[4:]) >= 2
