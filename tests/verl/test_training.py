"""Whole trainings on real Ray workers: PPO with a critic and GRPO under strategies, against verl without neyman."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import neyman
from neyman.errors import RunFailedError

PPO, GRPO = {"algorithm__adv_estimator": "gae"}, {"algorithm__adv_estimator": "grpo"}
# What says that two trainings are the same one, to the order in which rows are summed.
COMPARED = (
    "actor/grad_norm",
    "actor/entropy",
    "critic/grad_norm",
    "critic/vf_loss",
    "critic/score/mean",
    "response_length/mean",
)


def test_uniform_trains_ppo_as_verl_does(bench: Any) -> None:
    stock = bench.train(**PPO)
    ours = bench.train(**PPO, neyman={"strategy": "uniform"})
    assert len(stock.steps) == len(ours.steps) == 2
    for there, here in zip(stock.steps, ours.steps, strict=True):
        assert Counter(there.numbers) == Counter(here.numbers)
        for name in COMPARED:
            assert here.metrics[name] == pytest.approx(there.metrics[name], rel=1e-4), name


def test_sara_trains_ppo_on_two_ranks_though_a_fifth_of_all_verdicts_fails(bench: Any) -> None:
    run = bench.train(
        **PPO,
        trainer__n_gpus_per_node=2,
        actor_rollout_ref__rollout__agent__num_workers=2,
        actor_rollout_ref__actor__ppo_mini_batch_size=2,
        reward__custom_reward_function__name="faulty",
        neyman={"strategy": "neyman_cpu_rewards:damped", "options": {"group_size": 8}, "retries": 1.0},
    )
    failed = 0
    for step in run.steps:
        numbers, real = np.array(step.numbers), np.array(step.numbers) >= 0
        assert len(numbers) % 32 == 0
        assert set(step.rewards[real]) <= {0.0, 1.0}  # a verdict that failed is no 0
        assert np.isfinite(step.advantages).all()
        assert not step.mask[~real].any()
        for number in set(numbers[real]):
            assert 0 < step.rewards[numbers == number].mean() < 1
            assert (numbers == number).sum() <= 8  # fewer where the allowance for failures was used up
        assert step.advantages == pytest.approx(_damped(step, numbers), abs=1e-5)
        assert step.metrics["critic/vf_loss"] > 0
        assert step.metrics["actor/grad_norm"] > 0
        failed += int(step.metrics["neyman/rollouts/failed"])
    ledger = run.trainer.controller.ledger
    assert failed > 0
    assert ledger.requested == run.steps[-1].metrics["neyman/rollouts_total"]


def _damped(step: Any, numbers: np.ndarray) -> np.ndarray:
    """Return verl's own advantages times the prompts' weights in a mean over tokens, times DynaMO's factor.

    The mean is over the tokens of each of two mini-batches, to which two ranks bring every other quarter of the rows.
    """
    import torch

    from neyman.modulation import Modulation, batch_extremes, token_change, token_factors

    tokens = step.mask.sum(1)
    weights = neyman.formulas.prompt_weights(numbers, tokens, aggregation="token_mean", trained=numbers >= 0)
    if (weights != 1).any():
        mini = np.arange(len(numbers)) * 4 // len(numbers) % 2
        weights = weights * (np.bincount(mini, weights=tokens) * 2 / tokens.sum())[mini]
    mask, modulation = torch.as_tensor(step.mask), Modulation(variant="published")
    entropy, logp = torch.as_tensor(step.entropies), torch.as_tensor(step.logps)
    weighed = torch.as_tensor(step.stock * weights[:, None]).float()
    change = token_change(modulation, logp=logp, entropy=entropy, advantages=weighed, mask=mask)
    found = batch_extremes([(entropy, change, mask * (weighed != 0))])
    factor = token_factors(
        modulation, entropy=entropy, change=change, advantages=weighed, mask=mask, extremes=found
    )
    assert (factor != 1).any()
    return (weighed * factor).numpy()


@pytest.fixture(scope="module")
def long(bench: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    """Train GRPO under `neyman` for four steps, with a checkpoint at the second."""
    folder = tmp_path_factory.mktemp("long")
    return bench.train(**_long(folder)), folder


def _long(folder: Path) -> dict[str, Any]:
    return {
        **GRPO,
        "trainer__default_local_dir": folder,
        "trainer__total_training_steps": 4,
        "trainer__save_freq": 2,
        "reward__custom_reward_function__name": "shaped",
        "actor_rollout_ref__actor__loss_agg_mode": "seq-mean-token-mean",
        "neyman": {"strategy": "neyman", "success": "acc", "barrier": True},
    }


def test_ragged_groups_have_verl_s_advantages_times_the_prompts_weights(long: tuple[Any, Path]) -> None:
    run, _ = long
    sizes = set()
    for step in run.steps:
        numbers = np.array(step.numbers)
        assert len(numbers) == 32
        sizes |= set(Counter(step.numbers).values())
        advantages = neyman.group_advantages(step.rewards, numbers, eps=1e-6)
        counts = Counter(step.numbers)
        weights = np.array([len(numbers) / (len(counts) * counts[number]) for number in step.numbers])
        expected = (advantages * weights)[:, None] * step.mask
        assert step.advantages == pytest.approx(expected, abs=1e-4)
    assert len(sizes) > 2


def test_a_resumed_run_goes_on_as_if_it_had_never_stopped(
    long: tuple[Any, Path], bench: Any, tmp_path: Path
) -> None:
    run, folder = long
    shutil.copytree(folder / "global_step_2", tmp_path / "global_step_2")
    (tmp_path / "latest_checkpointed_iteration.txt").write_text("2")
    resumed = bench.train(**_long(tmp_path))
    assert len(resumed.steps) == 2
    for there, here in zip(run.steps[2:], resumed.steps, strict=True):
        assert _rewards(here) == _rewards(there)
        assert here.metrics["actor/grad_norm"] == pytest.approx(there.metrics["actor/grad_norm"], rel=1e-4)
        assert here.metrics["neyman/rollouts_total"] == there.metrics["neyman/rollouts_total"]


def _rewards(step: Any) -> list[tuple[int, float]]:
    """Return (prompt, reward) of all rows: which session of a prompt writes first is the engine's business."""
    return sorted(
        (number, round(float(reward), 4)) for number, reward in zip(step.numbers, step.rewards, strict=True)
    )


def test_a_verifier_that_is_down_ends_the_run_with_its_cause(bench: Any) -> None:
    with pytest.raises(
        RunFailedError, match=r"10 steps in a row, to step 9, had nothing .*its agent loop raised"
    ):
        bench.train(reward__custom_reward_function__name="broken", neyman={"strategy": "vip", "retries": 0.0})
