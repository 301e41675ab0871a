"""REINFORCE++ under GRPOTrainer: advantages centred and scaled over the whole batch, over groups of any size."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from trl import GRPOTrainer, RLOOTrainer

import neyman
from neyman.errors import ArgumentError
from neyman.formulas import group_advantages
from neyman.modulation import WReinforce

RAGGED = (13, 15, 2, 2)


def check(inputs: dict[str, Any], batch: Any, rewards: Any = None) -> np.ndarray[Any, Any]:
    """Check a training batch against the formula; return the advantages, the weights left out."""
    values = batch.rewards if rewards is None else rewards
    whitened = group_advantages(values, batch.groups, estimator="reinforce++")
    actual = inputs["advantages"].double().numpy()
    np.testing.assert_allclose(actual, whitened * batch.weights, rtol=1e-5, atol=1e-6)
    # The formula of the paper, written out.
    valid = values[~np.isnan(values)]
    by_hand = np.nan_to_num((values - valid.mean()) / (valid.std(ddof=1) + 1e-4))
    np.testing.assert_allclose(whitened, by_hand, rtol=1e-9, atol=1e-12)
    return whitened


@pytest.mark.parametrize("options", [{}, {"loss_type": "grpo"}, {"loss_type": "dr_grpo", "beta": 0.1}])
def test_ragged_groups_are_whitened_over_the_batch_and_weighed_by_prompt(bench: Any, options: Any) -> None:
    run = bench.train(GRPOTrainer, bench.ragged(RAGGED, estimator="reinforce++"), **options)
    for inputs, batch in run.batches:
        whitened = check(inputs, batch)
        assert batch.estimator == "reinforce++"
        assert len(set(batch.weights.tolist())) == 3
        assert whitened.sum() == pytest.approx(0.0, abs=1e-9)
        by_group = group_advantages(batch.rewards, batch.groups) * batch.weights
        assert np.abs(inputs["advantages"].numpy() - by_group).max() > 0.1
    assert list(run.trainer._logs["advantages"]) == pytest.approx(
        run.batches[-1][0]["advantages"].tolist(), abs=1e-6
    )


@pytest.mark.parametrize("baseline", ["rows", "group"])
def test_equal_groups_are_not_left_to_trls_own_advantages(bench: Any, baseline: str) -> None:
    strategy = neyman.preset("uniform", estimator="reinforce++", baseline=baseline)
    run = bench.train(GRPOTrainer, strategy)
    for inputs, batch in run.batches:
        assert (batch.weights == 1.0).all()
        check(inputs, batch)
    # Groups without spread train too: the batch is what they are compared with.
    dead = [
        inputs["advantages"].numpy()[batch.groups == group]
        for inputs, batch in run.batches
        for group in range(4)
        if len(set(batch.success[batch.groups == group])) == 1
    ]
    assert dead
    assert all((advantages != 0.0).all() for advantages in dead)


def test_rows_that_only_fill_the_batch_and_missing_rewards_are_in_no_statistic(bench: Any) -> None:
    def some(prompts: list[str], completions: list[str], **columns: Any) -> list[float | None]:
        pairs = zip(prompts, completions, strict=True)
        return [None if c.startswith("7") else bench.grade(p, c) for p, c in pairs]

    options: dict[str, Any] = {"rewards": some, "ours": {"retries": 0.0}, "loss_type": "grpo"}
    strategy = neyman.preset("sara", estimator="reinforce++")
    run = bench.train(GRPOTrainer, strategy, dataset=bench.dataset(6), **options)
    filled = 0
    for inputs, batch in run.batches:
        check(inputs, batch)
        filled += int((batch.groups < 0).sum())
        assert (inputs["advantages"].numpy()[~batch.counted] == 0.0).all()
    assert filled > 0
    lost = bench.train(GRPOTrainer, bench.ragged(RAGGED, estimator="reinforce++"), **options)
    assert any(np.isnan(batch.rewards).any() for _, batch in lost.batches)
    for inputs, batch in lost.batches:
        check(inputs, batch)


def test_several_reward_functions_are_summed_by_their_weights_first(bench: Any) -> None:
    def right(prompts: list[str], completions: list[str], **columns: Any) -> list[float]:
        return [bench.grade(p, c) for p, c in zip(prompts, completions, strict=True)]

    def short(completions: list[str], **columns: Any) -> list[float]:
        return [-float(len(c)) for c in completions]

    run = bench.train(
        GRPOTrainer,
        bench.ragged(RAGGED, estimator="reinforce++"),
        rewards=[right, short],
        reward_weights=[1.0, 0.1],
        ours={"success": ("right", 0.5)},
    )
    for (inputs, batch), rows in zip(run.batches, run.trained(), strict=True):
        totals = np.array([bench.grade(*row) - 0.1 * len(row[1]) for row in rows])
        check(inputs, batch, totals)


@pytest.mark.parametrize("named", ["rloo", "dr_grpo", "grpo"])
def test_among_group_baselines_the_trainers_settings_decide(bench: Any, named: str) -> None:
    strategy = neyman.preset("sara", estimator=named)
    assert bench.build(GRPOTrainer, strategy).trainer.controller.strategy.estimator == "grpo"
    unscaled = bench.build(GRPOTrainer, strategy, scale_rewards="none")
    assert unscaled.trainer.controller.strategy.estimator == "dr_grpo"
    assert bench.build(RLOOTrainer, strategy).trainer.controller.strategy.estimator == "rloo"


@pytest.mark.parametrize(
    ("cls", "options", "ours", "message"),
    [
        (RLOOTrainer, {}, {}, "RLOOTrainer compares .* use GRPOTrainer, or leave estimator out"),
        (GRPOTrainer, {"scale_rewards": "none"}, {}, "scale_rewards='none' .* leave scale_rewards out, or"),
        (GRPOTrainer, {"scale_rewards": "batch"}, {}, "scale_rewards='batch' .* leave scale_rewards out, or"),
        (
            GRPOTrainer,
            {"multi_objective_aggregation": "normalize_then_sum"},
            {},
            "multi_objective_aggregation='normalize_then_sum' .* leave it out, or",
        ),
        (GRPOTrainer, {}, {"modulation": WReinforce()}, r"WReinforce\(\) .* leave the modulation out, or"),
    ],
)
def test_settings_that_ask_for_other_advantages_are_refused_with_the_way_out(
    bench: Any, cls: Any, options: Any, ours: Any, message: str
) -> None:
    with pytest.raises(ArgumentError, match=message):
        bench.build(cls, neyman.preset("sara", estimator="reinforce++"), ours=ours, **options)
