"""Reward functions as users write them: missing, several, shaped, async, logging, and wrong ones."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import trl
from packaging.version import Version
from trl import GRPOTrainer, RLOOTrainer

import neyman
from neyman.errors import ArgumentError, ContractError
from neyman.step.ledger import Fate

CLASSES = [GRPOTrainer, RLOOTrainer]


def uniform(**options: Any) -> Any:
    return neyman.preset("uniform", **options)


def graded(bench: Any, **kwargs: Any) -> list[float]:
    return [bench.grade(p, c) for p, c in zip(kwargs["prompts"], kwargs["completions"], strict=True)]


def missing_every(bench: Any, period: int) -> tuple[Callable[..., list[float | None]], Counter[str]]:
    """Return a reward function that cannot score every ``period``-th completion it sees, and its counts."""
    seen: Counter[str] = Counter()

    def sometimes(prompts: list[str], completions: list[str], **columns: Any) -> list[float | None]:
        rewards: list[float | None] = []
        for prompt, completion in zip(prompts, completions, strict=True):
            seen["scored"] += 1
            missing = period and seen["scored"] % period == 0
            seen["missing"] += bool(missing)
            rewards.append(None if missing else bench.grade(prompt, completion))
        return rewards

    return sometimes, seen


@pytest.mark.parametrize("cls", CLASSES)
def test_missing_rewards_are_drawn_again_within_the_allowance(bench: Any, cls: Any) -> None:
    reward, seen = missing_every(bench, 16)  # two of 32 are missing; three may be drawn again
    run = bench.train(cls, uniform(), rewards=reward, max_steps=1)
    ledger = run.trainer.controller.ledger
    _, batch = run.batches[0]
    assert (seen["scored"], seen["missing"]) == (34, 2)
    assert (ledger.requested, ledger.retries) == (34, 2)
    assert ledger.rollouts(Fate.FAILED) == 2
    assert not np.isnan(batch.rewards).any()
    assert run.logs[0]["neyman/rollouts"] == 34.0


@pytest.mark.parametrize("cls", CLASSES)
def test_what_stays_missing_has_no_weight_and_is_never_reward_zero(bench: Any, cls: Any) -> None:
    reward, _ = missing_every(bench, 4)
    run = bench.train(cls, uniform(), rewards=reward, max_steps=1, ours={"retries": 0.0})
    inputs, batch = run.batches[0]
    missing = np.isnan(batch.rewards)
    assert missing.sum() == 8
    assert run.trainer.controller.ledger.requested == 32
    assert (inputs["advantages"].numpy()[missing] == 0.0).all()
    assert (batch.weights[missing] == 0.0).all()
    expected = [bench.grade(p, c) for (p, c), gone in zip(run.trained()[0], missing, strict=True) if not gone]
    assert expected == batch.rewards[~missing].tolist()
    if Version(trl.__version__) >= Version("1.10"):  # older ones log a missing reward as 0
        assert run.logs[0]["reward"] == pytest.approx(float(np.mean(expected)))
    # Baselines are over what is there, and the mean of each group's advantages is zero.
    for group in range(4):
        rows = (batch.groups == group) & ~missing
        assert inputs["advantages"].numpy()[rows].sum() == pytest.approx(0.0, abs=1e-5)


def test_a_step_without_any_reward_warns_trains_nothing_and_the_run_goes_on(
    bench: Any, caplog: pytest.LogCaptureFixture
) -> None:
    steps: list[int] = []

    def reward(
        prompts: list[str], completions: list[str], trainer_state: Any, **columns: Any
    ) -> list[float | None]:
        steps.append(trainer_state.global_step)
        if trainer_state.global_step == 0:
            return [None] * len(prompts)
        return list(graded(bench, prompts=prompts, completions=completions))

    with caplog.at_level(logging.WARNING, logger="neyman"):
        run = bench.train(GRPOTrainer, uniform(), rewards=reward, max_steps=2)
    (first, first_batch), (second, _) = run.batches
    assert first["advantages"].abs().max() == 0.0
    assert (first_batch.weights == 0.0).all()
    assert run.logs[0]["grad_norm"] == 0.0
    assert run.logs[0]["loss"] == 0.0
    assert second["advantages"].abs().max() > 0.1
    assert run.logs[1]["grad_norm"] > 0.0
    (warning,) = (record.getMessage() for record in caplog.records if record.name == "neyman")
    assert "step 0: no rollout has a valid reward, of 35 drawn" in warning
    assert "(the first: every reward function returned None)" in warning
    assert "trains nothing. Steps like this so far: 1." in warning


@pytest.mark.parametrize("preset", ["uniform", "sara"])
def test_a_reward_that_is_always_none_is_warned_of_ever_less_often(
    bench: Any, caplog: pytest.LogCaptureFixture, preset: str
) -> None:
    nothing = lambda prompts, **columns: [None] * len(prompts)  # noqa: E731
    nothing.__name__ = "nothing"
    bench.train(GRPOTrainer, neyman.preset(preset), rewards=nothing, max_steps=9)
    warnings = [record.getMessage() for record in caplog.records if record.name == "neyman"]
    assert [warning.partition(":")[0] for warning in warnings] == ["step 0", "step 1", "step 3", "step 7"]
    assert "so far: 8." in warnings[-1]


def test_batches_mostly_of_filler_are_warned_of_once_with_the_way_out(
    bench: Any, caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[int] = []

    def hardly(prompts: list[str], **columns: Any) -> list[float]:
        calls.append(len(prompts))
        return [float(len(calls) == 1 and place == 0) for place in range(len(prompts))]

    causes = {
        40: "max_rollouts=128 were spent: raise max_rollouts; or raise num_generations=8",
        6: "no further prompt was left to draw: bring more prompts; or raise num_generations=8",
    }
    for prompts, why in causes.items():
        caplog.clear()
        calls.clear()
        bench.train(
            GRPOTrainer, neyman.preset("sara"), rewards=hardly, dataset=bench.dataset(prompts), max_steps=2
        )
        (warning,) = (record.getMessage() for record in caplog.records if record.name == "neyman")
        assert warning.startswith("step 0: 24 of 32 rows are copies of weight zero")
        assert f"as 1 groups had both outcomes and {why}" in warning


def test_a_batch_half_full_is_not_warned_of(bench: Any, caplog: pytest.LogCaptureFixture) -> None:
    run = bench.train(GRPOTrainer, neyman.preset("sara"), max_steps=2)
    assert max(log["neyman/rows_filled"] for log in run.logs) <= 16
    assert caplog.records == []


@pytest.mark.parametrize("preset", ["sara", "dynamic-sampling"])
def test_a_sequential_step_without_any_reward_ends_too(bench: Any, preset: str) -> None:
    run = bench.train(
        GRPOTrainer,
        neyman.preset(preset),
        rewards=lambda prompts, **columns: [None] * len(prompts),
        max_steps=1,
    )
    inputs, batch = run.batches[0]
    assert len(batch) == 32
    assert inputs["advantages"].abs().max() == 0.0
    assert run.trainer.controller.ledger.requested - run.trainer.controller.ledger.retries <= 128


def exact(prompts: list[str], completions: list[str], **columns: Any) -> list[float]:
    """Return 1 where the answer has at least four digits."""
    return [float(len(c) >= 4) for c in completions]


def brevity(prompts: list[str], completions: list[str], **columns: Any) -> list[float]:
    """Return a shaped reward that differs between any two lengths."""
    return [-0.3 * len(c) for c in completions]


def long_enough(prompts: list[str], completions: list[str], **columns: Any) -> list[bool]:
    return [len(c) >= 4 for c in completions]


def test_several_reward_functions_without_success_are_refused_with_both_ways_out(bench: Any) -> None:
    with pytest.raises(ArgumentError, match=r"exact, brevity.*success=\('exact', 0.5\).*success=f"):
        bench.build(GRPOTrainer, uniform(), rewards=[exact, brevity])


@pytest.mark.parametrize("wrong", [("exat", 0.5), "exact", ("exact",), 0.5])
def test_a_success_rule_that_names_nothing_is_refused(bench: Any, wrong: Any) -> None:
    with pytest.raises(ArgumentError, match=r"success must be .*\['exact', 'brevity'\]"):
        bench.build(GRPOTrainer, uniform(), rewards=[exact, brevity], ours={"success": wrong})


def test_an_async_success_is_refused_with_the_way_out(bench: Any) -> None:
    async def later(**columns: Any) -> list[bool]:
        return []

    with pytest.raises(ArgumentError, match="plain callable"):
        bench.build(GRPOTrainer, uniform(), ours={"success": later})


@pytest.mark.parametrize("rule", [("exact", 0.5), long_enough], ids=["threshold", "callable"])
@pytest.mark.parametrize("cls", CLASSES)
def test_success_is_judged_apart_from_the_reward_that_trains(bench: Any, cls: Any, rule: Any) -> None:
    run = bench.train(
        cls,
        uniform(),
        rewards=[exact, brevity],
        reward_weights=[1.0, 0.5],
        max_steps=1,
        ours={"success": rule},
    )
    _, batch = run.batches[0]
    texts = [completion for _, completion in run.trained()[0]]
    assert [float(len(text) >= 4) for text in texts] == batch.success.tolist()
    assert [float(len(text) >= 4) - 0.15 * len(text) for text in texts] == pytest.approx(
        batch.rewards.tolist()
    )


def test_the_callable_gets_what_reward_functions_get(bench: Any) -> None:
    seen: dict[str, Any] = {}

    def success(
        prompts: list[str], completions: list[str], completion_ids: Any, **columns: Any
    ) -> list[bool]:
        seen.update(columns, n=len(prompts), ids=completion_ids)
        return [True] * len(prompts)

    bench.train(GRPOTrainer, uniform(), max_steps=1, ours={"success": success})
    assert {"answer", "number", "n", "ids"} == set(seen)
    assert 32 == seen["n"] == len(seen["ids"]) == len(seen["answer"])


def test_verdicts_that_cannot_be_told_are_missing_results(bench: Any) -> None:
    def unsure(prompts: list[str], completions: list[str], **columns: Any) -> list[bool | None]:
        return [None if len(c) == 2 else len(c) > 2 for c in completions]

    run = bench.train(
        GRPOTrainer, uniform(), rewards=brevity, max_steps=1, ours={"success": unsure, "retries": 0.0}
    )
    inputs, batch = run.batches[0]
    untold = np.array([len(completion) == 2 for _, completion in run.trained()[0]])
    assert 0 < untold.sum() < 32
    assert untold.tolist() == np.isnan(batch.success).tolist()
    advantages = inputs["advantages"].numpy()
    assert (advantages[untold] == 0.0).all()
    for group in range(4):  # what cannot be told is in no baseline
        assert advantages[batch.groups == group].sum() == pytest.approx(0.0, abs=1e-5)
    assert int(untold.sum()) == run.trainer.controller.ledger.rollouts(Fate.FAILED)


def test_a_wrong_number_of_verdicts_is_an_error(bench: Any) -> None:
    run = bench.build(GRPOTrainer, uniform(), ours={"success": lambda **columns: [True]})
    with pytest.raises(ContractError, match="1 verdicts for 32 completions"):
        run.trainer.train()


def test_a_wrong_number_of_rewards_is_an_error_under_every_trl(bench: Any) -> None:
    """TRL before 1.10 gives one reward to all completions."""
    run = bench.build(GRPOTrainer, uniform(), rewards=lambda **columns: [1.0])
    with pytest.raises(
        ContractError, match=r"reward function '<lambda>' returned 1 rewards for 32 completions"
    ):
        run.trainer.train()


@pytest.mark.parametrize("preset", ["uniform", "sara"])
def test_a_reward_that_is_not_binary_is_an_error_at_the_first_step_with_both_ways_out(
    bench: Any, preset: str
) -> None:
    run = bench.build(GRPOTrainer, neyman.preset(preset), rewards=brevity)
    with pytest.raises(ContractError, match=r"brevity.*not binary.*success=\('brevity', 0.5\).*success=f"):
        run.trainer.train()


def test_a_weight_on_the_only_reward_function_leaves_it_binary(bench: Any) -> None:
    run = bench.train(
        GRPOTrainer, uniform(), rewards=exact, reward_weights=[3.0], max_steps=1, scale_rewards="none"
    )
    _, batch = run.batches[0]
    assert {0.0, 3.0} == set(batch.rewards.tolist())
    assert {0.0, 1.0} == set(batch.success.tolist())


def test_minus_one_is_a_failure(bench: Any) -> None:
    run = bench.train(
        GRPOTrainer,
        uniform(),
        rewards=lambda completions, **columns: [1.0 if len(c) >= 4 else -1.0 for c in completions],
        max_steps=1,
    )
    _, batch = run.batches[0]
    assert [(r + 1.0) / 2.0 for r in batch.rewards.tolist()] == batch.success.tolist()


def test_spread_of_a_shaped_reward_does_not_make_an_all_wrong_group_effective(bench: Any) -> None:
    run = bench.train(
        GRPOTrainer,
        neyman.preset("dynamic-sampling"),
        rewards=brevity,
        max_steps=1,
        ours={"success": lambda completions, **columns: [False] * len(completions)},
    )
    inputs, _ = run.batches[0]
    assert run.logs[0]["neyman/effective_groups"] == 0.0
    assert run.logs[0].get("neyman/rollouts/trained", 0.0) == 0.0
    assert inputs["advantages"].abs().max() == 0.0


@pytest.mark.parametrize("cls", CLASSES)
def test_async_reward_functions_train_as_plain_ones(bench: Any, cls: Any) -> None:
    async def exactly(**columns: Any) -> list[float]:
        return exact(**columns)

    strategy = neyman.preset("sara")
    ours = {"success": ("exact", 0.5)}
    plain = bench.train(cls, strategy, rewards=[exact, brevity], max_steps=2, ours=ours)
    asynchronous = bench.train(
        cls, strategy, rewards=[exactly, brevity], max_steps=2, ours={"success": ("exactly", 0.5)}
    )
    assert plain.trained() == asynchronous.trained()
    assert [log["loss"] for log in plain.logs] == [log["loss"] for log in asynchronous.logs]


@pytest.mark.parametrize("preset", ["uniform", "sara"])
def test_logged_columns_stand_beside_the_completions_that_train(bench: Any, preset: str) -> None:
    def reward(
        prompts: list[str], completions: list[str], log_extra: Any, log_metric: Any, **columns: Any
    ) -> list[float]:
        log_extra("prompt and completion", [f"{p}|{c}" for p, c in zip(prompts, completions, strict=True)])
        log_metric("digits", float(np.mean([len(c) for c in completions])))
        return graded(bench, prompts=prompts, completions=completions)

    run = bench.train(GRPOTrainer, neyman.preset(preset), rewards=reward, max_steps=3)
    table = run.trainer._logs
    joined = [f"{p}|{c}" for p, c in zip(table["prompt"], table["completion"], strict=True)]
    assert len(joined) == 32
    assert joined == list(table["extra"]["prompt and completion"])
    graded_rows = [bench.grade(p, c) for p, c in zip(table["prompt"], table["completion"], strict=True)]
    assert graded_rows == list(table["rewards"]["reward"])
    assert all(0.0 < log["digits"] <= 6.0 for log in run.logs)


def test_columns_that_only_some_rewards_log_are_empty_elsewhere(bench: Any) -> None:
    calls: list[int] = []

    def reward(prompts: list[str], completions: list[str], log_extra: Any, **columns: Any) -> list[float]:
        calls.append(len(prompts))
        if len(calls) == 1:
            log_extra("first round", completions)
        return graded(bench, prompts=prompts, completions=completions)

    run = bench.train(GRPOTrainer, neyman.preset("sara"), rewards=reward, max_steps=1)
    assert len(calls) > 1
    table = run.trainer._logs
    column = list(table["extra"]["first round"])
    assert {None} < set(column)
    assert all(said in (None, text) for said, text in zip(column, table["completion"], strict=True))


def test_a_threshold_is_reached_though_trl_keeps_rewards_in_float32(bench: Any) -> None:
    """The reward .9 comes back as 0.899999976 from TRL's gather, and is at the threshold .9 all the same."""

    def nine(completions: list[str], **columns: Any) -> list[float]:
        return [0.9 if len(c) >= 4 else 0.1 for c in completions]

    run = bench.train(GRPOTrainer, uniform(), rewards=nine, max_steps=1, ours={"success": ("nine", 0.9)})
    _, batch = run.batches[0]
    assert set(batch.success.tolist()) == {0.0, 1.0}


def test_the_cause_of_a_result_that_success_cannot_judge_is_reported(bench: Any) -> None:
    run = bench.train(
        GRPOTrainer,
        uniform(),
        rewards=exact,
        max_steps=1,
        ours={"success": lambda completions, **columns: [None] * len(completions)},
    )
    assert run.trainer.controller.first_error == "success could not judge the completion"
