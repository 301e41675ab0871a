"""Rival methods inside TRL: rows, baselines and behaviour log-probabilities are the ones that their rules say."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from trl import GRPOTrainer, RLOOTrainer

import neyman
from neyman import formulas
from neyman.errors import ArgumentError


def ada(**options: Any) -> Any:
    return neyman.preset("reinforce-ada", step=8, most=16, rows=4, **options)


@pytest.mark.parametrize("name", ["grpo", "dr_grpo", "rloo"])
def test_the_baseline_is_over_all_that_a_prompt_drew(bench: Any, name: str) -> None:
    cls = RLOOTrainer if name == "rloo" else GRPOTrainer
    options = {"scale_rewards": "none"} if name == "dr_grpo" else {}
    run = bench.train(cls, ada(), max_steps=2, num_generations=4, **options)
    for inputs, batch in run.batches:
        assert len(batch) == 32
        assert len(batch.spare_ids) > 0
        rewards = np.concatenate([batch.rewards, batch.spare_rewards])
        groups = np.concatenate([batch.groups, batch.spare_groups])
        expected = formulas.group_advantages(rewards, groups, estimator=name)[: len(batch)] * batch.weights
        np.testing.assert_allclose(inputs["advantages"].numpy(), expected, atol=1e-5)
        sums = [abs(float(expected[batch.groups == g].sum())) for g in range(int(batch.groups.max()) + 1)]
        assert max(sums) > 0.1, "the rows alone would have mean zero"
    ledger = run.trainer.controller.ledger
    assert ledger.requested == ledger.rollouts() == sum(run.drawn().values())


def test_a_kl_penalty_in_the_reward_cannot_have_a_baseline_over_rows_that_do_not_train(bench: Any) -> None:
    with pytest.raises(ArgumentError, match="set beta=0, use GRPOTrainer"):
        bench.build(RLOOTrainer, ada(), num_generations=4, beta=0.1)


@pytest.mark.parametrize("cls", [GRPOTrainer, RLOOTrainer])
def test_a_replayed_answer_trains_with_the_log_probabilities_of_the_policy_that_gave_it(
    bench: Any, cls: Any
) -> None:
    # Right at the first visit of a prompt and never again, so that every later visit replays an answer.
    seen: dict[str, int] = {}

    def once(prompts: list[str], completions: list[str], **columns: Any) -> list[float]:
        grades = []
        for prompt in prompts:
            seen[prompt] = seen.get(prompt, 0) + 1
            grades.append(float(seen[prompt] == 2))
        return grades

    strategy = neyman.preset("ar3po", stage=4, stages=2, replay_age=6)
    dataset = bench.dataset(4)
    run = bench.train(cls, strategy, rewards=once, dataset=dataset, max_steps=3, learning_rate=3e-2)
    inputs, batch = run.batches[-1]
    assert batch.report["rows_replayed"] == 4.0
    old = np.flatnonzero(batch.age > 0)
    assert len(old) == 4
    assert (batch.success[old] == 1.0).all()
    assert (inputs["advantages"].numpy()[old] > 0.0).all()
    store = run.trainer._neyman.generation.store
    for row in old:
        noted = torch.tensor(store[int(batch.rollout_ids[row])].behaviour)
        if cls is RLOOTrainer:
            assert float(inputs["old_logps"][row]) == pytest.approx(float(noted.sum()), abs=1e-4)
        else:
            kept = inputs["old_per_token_logps"][row][: len(noted)]
            torch.testing.assert_close(kept, noted.to(kept.dtype))


@pytest.mark.parametrize("cls", [GRPOTrainer, RLOOTrainer])
def test_replaced_groups_give_the_gradient_of_their_copies(bench: Any, cls: Any) -> None:
    options = {} if cls is RLOOTrainer else {"loss_type": "grpo"}
    run = bench.train(cls, neyman.preset("polaris", replace_above=0.0), max_steps=3, **options)
    for inputs, batch in run.batches:
        copies = np.array([batch.copies[batch.groups == g][0] for g in range(4)])
        assert copies.sum() == 4
        plain = formulas.group_advantages(
            batch.rewards, batch.groups, estimator="rloo" if cls is RLOOTrainer else "grpo"
        )
        np.testing.assert_allclose(inputs["advantages"].numpy(), plain * copies[batch.groups], atol=1e-5)
    assert sum(log["neyman/groups_replaced"] for log in run.logs) > 0


@pytest.mark.parametrize("name", ["speed", "pilot-commit"])
def test_screened_groups_fill_the_trainers_batch(bench: Any, name: str) -> None:
    options = (
        {"pass_lower": 0.25, "pass_upper": 0.25, "pilot": 4, "commit": 4} if name == "pilot-commit" else {}
    )
    run = bench.train(GRPOTrainer, neyman.preset(name, max_age=2, **options), max_steps=3)
    for _, batch in run.batches:
        assert len(batch) == 32
        real = batch.groups[batch.groups >= 0]
        assert set(np.bincount(real)) == {8}


def test_replaced_groups_weigh_as_their_copies_where_tokens_are_averaged(bench: Any) -> None:
    run = bench.train(GRPOTrainer, neyman.preset("polaris", replace_above=0.0), max_steps=2, loss_type="dapo")
    for inputs, batch in run.batches:
        tokens = inputs["completion_mask"].sum(1).numpy()
        plain = formulas.group_advantages(batch.rewards, batch.groups)
        copied = tokens.sum() / (tokens * batch.copies).sum() * plain * batch.copies
        np.testing.assert_allclose(inputs["advantages"].numpy(), copied, atol=1e-5)
