"""Success is judged, reward is trained."""

from __future__ import annotations

import numpy as np
import pytest

import neyman
from neyman import Budget, Controller, preset
from neyman.controller import advantages
from neyman.errors import ArgumentError
from strategies import (
    Host,
    assert_same_batch,
    outcome,
    run_step,
    simple,
)


def test_success_is_judged_and_reward_is_trained():
    controller = simple("dynamic-sampling", 8)
    controller.begin(["long", "mixed"])
    rewards = {"long": [-0.1, -0.5, -0.2, -0.9], "mixed": [0.9, -0.1, -0.1, 0.8]}
    for r in controller.ask():
        controller.tell(
            outcome(i, r.prompt_id, x, success=x > 0.5)
            for i, x in zip(r.rollout_ids, rewards[r.prompt_id], strict=True)
        )
    batch = controller.finish()
    assert batch.prompt_ids == ("mixed",) * 4
    assert batch.success.tolist() == [1, 0, 0, 1]
    assert batch.rewards.tolist() == [0.9, -0.1, -0.1, 0.8]


def test_final_rewards_of_the_host_replace_what_was_told():
    controller = simple(rollouts=8)
    batch, _ = run_step(controller, Host(rates={"a": 0.5, "b": 0.5}), ["a", "b"])
    final = np.arange(8.0)
    again = batch.with_rewards(final)
    expected = neyman.group_advantages(final, batch.groups, estimator="grpo")
    assert expected.tolist() == again.advantages.tolist()
    assert again.weights is batch.weights
    with pytest.raises(ArgumentError, match="one entry per row"):
        batch.with_rewards([1.0])


def test_final_rewards_of_copies_are_in_no_statistic():
    controller = simple("dynamic-sampling", 16, train_rows=16)
    batch, _ = run_step(
        controller, Host(rates={"a": 0.5, "b": 0.0, "c": 0.0, "d": 0.0}), ["a", "b", "c", "d"]
    )
    again = batch.with_rewards(np.arange(16.0))
    assert (~again.counted).any()
    assert np.isnan(again.rewards[~again.counted]).all()
    assert not again.advantages[~again.counted].any()


def test_a_batch_travels_between_processes():
    import pickle

    batch, _ = run_step(simple(rollouts=8), Host(), ["a", "b"])
    assert_same_batch(batch, pickle.loads(pickle.dumps(batch)).with_rewards(batch.rewards))


def test_advantages_are_one_function_of_the_batch_and_its_rewards_spares_in_the_baseline_included():
    """Rows and spares: the statistics hold both, the result one or both."""
    strategy = preset("reinforce-ada", step=4, most=8, rows=2, estimator="rloo")
    controller = Controller(strategy, Budget(rollouts=16), train_rows=4)
    controller.begin(["a", "b"])
    while not controller.is_done and (requests := controller.ask()):
        controller.tell(
            outcome(i, request.prompt_id, float(place % 3 == 0), success=place % 3 == 0)
            for request in requests
            for place, i in enumerate(request.rollout_ids)
        )
    batch = controller.finish()
    assert len(batch.spare_ids)
    np.testing.assert_array_equal(advantages(batch, batch.rewards), batch.advantages)
    everything = advantages(batch, batch.rewards, with_spares=True)
    groups = np.concatenate([batch.groups, batch.spare_groups])
    rewards = np.concatenate([batch.rewards, batch.spare_rewards])
    np.testing.assert_array_equal(everything, neyman.group_advantages(rewards, groups, estimator="rloo"))
    shifted = advantages(batch, batch.rewards + 1.0, spare_rewards=batch.spare_rewards + 1.0)
    np.testing.assert_allclose(shifted, batch.advantages, atol=1e-12)
    with pytest.raises(ArgumentError, match="one entry per row"):
        advantages(batch, batch.rewards[:-1])
