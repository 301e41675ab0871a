"""What users of RL trainers ran into: dynamic sampling with a strict bound, which changes nothing while it is off."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neyman import Budget, Controller, preset
from neyman.formulas import group_advantages
from strategies import PRESETS, Host, run_step

prompts = st.lists(st.integers(0, 999) | st.text(max_size=3), min_size=1, max_size=8, unique=True)


@given(steps=st.lists(prompts, min_size=1, max_size=3), size=st.integers(2, 8), seed=st.integers(0, 99))
def test_case_31_switched_off_the_hosts_prompts_are_drawn_as_they_came_and_nothing_is_weighted(
    steps, size, seed
):
    """CASE 31. For every stream of prompts, beside a pool: the preset uniform has no choice and learns nothing."""
    controllers = {}
    for brought in steps:  # one controller per number of prompts, as a host has batches of one size
        controller = controllers.setdefault(
            len(brought),
            Controller(preset("uniform"), budget=Budget(rollouts=size * len(brought)), pool=range(1000)),
        )
        batch, asked = run_step(controller, Host(seed=seed), brought)
        assert [(r.prompt_id, len(r.rollout_ids)) for r in asked] == [(prompt, size) for prompt in brought]
        assert list(batch.prompt_ids) == [prompt for prompt in brought for _ in range(size)]
        assert (batch.weights == 1.0).all()
        np.testing.assert_array_equal(batch.advantages, group_advantages(batch.rewards, batch.groups))


@pytest.mark.parametrize("name", PRESETS)
@settings(max_examples=8)
@given(
    rollouts=st.sampled_from([32, 48, 64]),
    retries=st.sampled_from([0.0, 0.1, 1.0]),
    failing=st.sampled_from([0.0, 0.3]),
    solved=st.booleans(),
)
def test_case_31_the_upper_bound_is_kept_where_nothing_is_ever_mixed(
    name, rollouts, retries, failing, solved
):
    """CASE 31. For every strategy and bound, in the worst case: no group ever has signal, and results fail."""
    controller = Controller(
        PRESETS[name](), budget=Budget(rollouts=rollouts), pool=range(400), retries=retries
    )
    host = Host(rates=dict.fromkeys(range(400), float(solved)), failing=failing)
    for step in range(2):
        _, asked = run_step(controller, host, range(6 * step, 6 * step + 6))
        drawn = [i for r in asked for i in r.rollout_ids]
        assert len(drawn) == len(set(drawn)) <= rollouts + int(retries * rollouts)
