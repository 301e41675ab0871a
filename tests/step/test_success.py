"""Success is judged, reward is trained."""

from __future__ import annotations

import numpy as np
import pytest

import neyman
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
