"""Every strategy trains exactly TRL's rows, each joined to its own prompt, and accounts for every rollout."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from trl import GRPOTrainer, RLOOTrainer

import neyman
from neyman import Strategy
from neyman.beliefs import Counts
from neyman.step.ledger import Fate

STRATEGIES: dict[str, Callable[[], Strategy]] = {
    "uniform": lambda: neyman.preset("uniform"),
    "vip": lambda: neyman.preset("vip", lower=3, upper=16, belief=Counts()),
    "sara": lambda: neyman.preset("sara"),
    "sara, fixed spend": lambda: neyman.preset("sara", close="fixed_spend"),
    "dynamo": lambda: neyman.preset("dynamo", lower=2, upper=24),
    "dynamic-sampling": lambda: neyman.preset("dynamic-sampling"),
    "neyman": lambda: neyman.preset("neyman", belief=Counts()),
    "vip's belief under sara's verdicts": lambda: neyman.preset("sara", belief=Counts(prior=(0.5, 0.5))),
}
FIXED_TRAIN = {"sara", "dynamic-sampling", "vip's belief under sara's verdicts"}
LEARNING = {"vip", "dynamo"}  # few prompts, so that some are met again and beliefs differ
STEPS = 4


@pytest.fixture(scope="module")
def trained(bench: Any) -> Callable[[str], Any]:
    """Return the run of a strategy, trained once."""
    runs: dict[str, Any] = {}

    def run(name: str) -> Any:
        if name not in runs:
            dataset = bench.dataset(12 if name in LEARNING else 40)
            runs[name] = bench.train(GRPOTrainer, STRATEGIES[name](), dataset=dataset, max_steps=STEPS)
        return runs[name]

    return run


@pytest.mark.parametrize("name", STRATEGIES)
def test_the_batch_has_exactly_the_trainers_rows(trained: Any, name: str) -> None:
    run = trained(name)
    assert STEPS == len(run.batches) == len(run.logs)
    for inputs, batch in run.batches:
        assert len(batch) == 32
        assert len(inputs["completion_ids"]) == len(inputs["advantages"]) == 32


@pytest.mark.parametrize("name", STRATEGIES)
def test_every_trained_row_is_a_completion_of_its_own_prompt_with_its_own_reward(
    bench: Any, trained: Any, name: str
) -> None:
    run = trained(name)
    prompt_of = {row: bench.dataset()[row]["prompt"] for row in range(40)}
    for (_, batch), rows in zip(run.batches, run.trained(), strict=True):
        assert [prompt_of[i] for i in batch.prompt_ids] == [prompt for prompt, _ in rows]
        real = batch.groups >= 0
        drawn = Counter(row for row, is_real in zip(rows, real, strict=True) if is_real)
        assert drawn <= run.drawn()
        graded = [bench.grade(p, c) for (p, c), is_real in zip(rows, real, strict=True) if is_real]
        assert graded == batch.rewards[real].tolist()
        assert graded == batch.success[real].tolist()
        # One group is one prompt.
        pairs = {
            (group, i) for group, i in zip(batch.groups.tolist(), batch.prompt_ids, strict=True) if group >= 0
        }
        assert len(pairs) == len({group for group, _ in pairs}) == len({i for _, i in pairs})


@pytest.mark.parametrize("name", STRATEGIES)
def test_rewards_are_asked_for_once_per_rollout_and_every_rollout_is_accounted_for(
    trained: Any, name: str
) -> None:
    run = trained(name)
    ledger = run.trainer.controller.ledger
    scored = sum(run.drawn().values())
    assert scored == ledger.requested == ledger.rollouts()
    assert scored == sum(log["neyman/rollouts"] for log in run.logs)
    assert [sum(len(p) for p, _ in run.calls)] == [run.logs[-1]["neyman/rollouts_total"]]
    tokens = sum(len(c) + 1 if len(c) < 6 else 6 for _, cs in run.calls for c in cs)
    assert tokens == ledger.tokens() == run.logs[-1]["neyman/tokens_total"]
    if name not in FIXED_TRAIN:
        assert scored == 32 * STEPS
        assert all(log["neyman/rollouts"] == 32 for log in run.logs)
    else:
        assert all(log["neyman/rollouts"] <= 128 for log in run.logs)


@pytest.mark.parametrize("name", STRATEGIES)
def test_advantages_have_mean_zero_in_each_group_and_vanish_on_copies(trained: Any, name: str) -> None:
    for inputs, batch in trained(name).batches:
        advantages = inputs["advantages"].numpy()
        assert np.isfinite(advantages).all()
        assert (advantages[batch.groups < 0] == 0.0).all()
        for group in range(int(batch.groups.max()) + 1):
            assert advantages[batch.groups == group].sum() == pytest.approx(0.0, abs=1e-5)
        assert batch.weights.sum() == pytest.approx(32.0)


@pytest.mark.parametrize("name", STRATEGIES)
def test_trls_token_count_is_the_tokens_of_every_rollout(trained: Any, name: str) -> None:
    run = trained(name)
    prompt_tokens = sum(len(prompt) for prompts, _ in run.calls for prompt in prompts)
    assert run.logs[-1]["num_tokens"] == prompt_tokens + run.logs[-1]["neyman/tokens_total"]
    assert run.trainer.state.num_input_tokens_seen == run.logs[-1]["num_tokens"]


@pytest.mark.parametrize("name", STRATEGIES)
def test_trls_own_metrics_and_table_are_of_the_rows_that_train(bench: Any, trained: Any, name: str) -> None:
    run = trained(name)
    for (inputs, batch), rows, log in zip(run.batches, run.trained(), run.logs, strict=True):
        lengths = inputs["completion_mask"].sum(1).float()
        assert log["completions/mean_length"] == pytest.approx(float(lengths.mean()))
        assert log["completions/max_length"] == float(lengths.max())
        assert log["reward"] == pytest.approx(float(np.mean([bench.grade(*row) for row in rows])))
        real = batch.groups >= 0
        mixed = [0.0 < batch.rewards[batch.groups == group].mean() < 1.0 for group in batch.groups[real]]
        assert log["frac_reward_zero_std"] == pytest.approx(1.0 - float(np.mean(mixed)))
    inputs, _ = run.batches[-1]
    assert list(run.trainer._logs["advantages"]) == pytest.approx(inputs["advantages"].tolist(), abs=1e-6)
    assert [*zip(run.trainer._logs["prompt"], run.trainer._logs["completion"], strict=True)] == run.trained()[
        -1
    ]


def test_rounds_stay_out_of_metrics_that_span_several_steps(bench: Any) -> None:
    run = bench.train(GRPOTrainer, STRATEGIES["sara"](), max_steps=2, logging_steps=2)
    assert len(run.calls) > 2
    lengths = [float(inputs["completion_mask"].sum(1).float().mean()) for inputs, _ in run.batches]
    assert run.logs[0]["completions/mean_length"] == pytest.approx(float(np.mean(lengths)))


@pytest.mark.parametrize("name", sorted(FIXED_TRAIN))
def test_fixed_train_fills_the_batch_with_effective_groups(trained: Any, name: str) -> None:
    run = trained(name)
    for (_, batch), log in zip(run.batches, run.logs, strict=True):
        real = batch.groups >= 0
        assert 32 - real.sum() == log["neyman/rows_filled"]
        for group in range(int(batch.groups.max()) + 1):
            assert 0.0 < batch.success[batch.groups == group].mean() < 1.0
            assert (batch.groups == group).sum() == 8
    fates = {fate: run.trainer.controller.ledger.rollouts(fate) for fate in Fate}
    assert fates[Fate.TRAINED] == sum((batch.groups >= 0).sum() for _, batch in run.batches)
    assert sum(fates.values()) == run.trainer.controller.ledger.requested


@pytest.mark.parametrize("name", [*sorted(LEARNING), "neyman"])
def test_groups_differ_in_size_once_beliefs_do(trained: Any, name: str) -> None:
    sizes = [set(np.bincount(batch.groups).tolist()) for _, batch in trained(name).batches]
    assert any(len(step) > 1 for step in sizes), "unequal groups are what this strategy is for"


def test_sequential_strategies_draw_in_rounds(trained: Any) -> None:
    run = trained("sara")
    assert max(log["neyman/rounds"] for log in run.logs) >= 2
    assert len(run.calls) == sum(log["neyman/rounds"] for log in run.logs)


@pytest.mark.parametrize("name", ["sara", "neyman"])
def test_prompts_beyond_the_hosts_come_from_the_pool(trained: Any, name: str) -> None:
    assert max(log["neyman/groups_opened"] for log in trained(name).logs) > 4
    assert trained(name).trainer.controller.ledger.prompts_visited > 4 * STEPS


@pytest.mark.parametrize("name", ["vip", "sara", "neyman"])
def test_rloo_trains_the_same_contract(bench: Any, name: str) -> None:
    run = bench.train(RLOOTrainer, STRATEGIES[name](), max_steps=2, beta=0.05)
    prompt_of = {row: bench.dataset()[row]["prompt"] for row in range(40)}
    for (inputs, batch), rows in zip(run.batches, run.trained(), strict=True):
        assert [prompt_of[i] for i in batch.prompt_ids] == [prompt for prompt, _ in rows]
        advantages = inputs["advantages"].numpy()
        for group in range(int(batch.groups.max()) + 1):
            assert advantages[batch.groups == group].sum() == pytest.approx(0.0, abs=1e-5)
    assert sum(run.drawn().values()) == run.trainer.controller.ledger.requested


def test_rloo_folds_the_kl_penalty_into_ragged_groups(bench: Any) -> None:
    run = bench.train(RLOOTrainer, bench.ragged((14, 9, 6, 3)), max_steps=2, beta=0.5, learning_rate=2e-2)
    inputs, batch = run.batches[1]  # the policy has left its reference
    trainer = run.trainer
    ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], 1)
    mask = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], 1)
    with torch.no_grad():
        reference = trainer._get_per_token_logps_and_entropies(
            trainer.ref_model, ids, mask, inputs["completion_ids"].size(1)
        )[0]
    kl = inputs["old_logps"] - (reference * inputs["completion_mask"]).sum(1)
    assert kl.abs().max() > 0.05
    rewards = batch.rewards - 0.5 * kl.double().numpy()
    expected = np.zeros(32)
    for group in range(int(batch.groups.max()) + 1):
        rows = batch.groups == group
        n = rows.sum()
        expected[rows] = (rewards[rows] - (rewards[rows].sum() - rewards[rows]) / (n - 1)) * batch.weights[
            rows
        ]
    assert expected.tolist() == pytest.approx(inputs["advantages"].tolist(), abs=2e-5)


def test_the_same_seed_gives_the_same_run(bench: Any, trained: Any) -> None:
    again = bench.train(GRPOTrainer, STRATEGIES["sara"](), max_steps=STEPS)
    assert trained("sara").comparable_logs() == again.comparable_logs()
    assert trained("sara").trained() == again.trained()


def test_several_steps_per_generation_draw_once_per_generation(bench: Any) -> None:
    run = bench.train(
        GRPOTrainer,
        STRATEGIES["sara"](),
        per_device_train_batch_size=8,
        steps_per_generation=4,
        num_iterations=2,
        max_steps=8,
    )
    assert len(run.batches) == 1
    assert len(run.batches[0][1]) == 32
