"""What users of RL trainers ran into: mastered prompts, and a policy for choosing prompts that any trainer can use."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from neyman import Budget, Controller, preset
from neyman.beliefs import Counts
from strategies import Host, run_step

MASTERED = 0


def visits(revisit, *, pool, brought, steps, seed):
    """Return the steps in which the preset ``neyman`` drew the mastered prompt."""
    strategy = preset("neyman", belief=Counts(), prompts=1.0, revisit=revisit)
    controller = Controller(strategy, budget=Budget(rollouts=4 * brought), pool=range(pool), seed=seed)
    host = Host(rates={MASTERED: 1.0}, seed=seed)
    rng, order, drawn = np.random.default_rng(seed), np.arange(0), []
    for step in range(steps):
        if len(order) < brought:
            order = rng.permutation(pool)
        candidates, order = order[:brought].tolist(), order[brought:]
        run_step(controller, host, candidates)
        if any(g.prompt_id == MASTERED for g in controller.group_reports):
            drawn.append(step)
    return drawn


@settings(max_examples=25)
@given(
    revisit=st.sampled_from([0.5, 1.0, 2.0]),
    pool=st.integers(6, 24),
    brought=st.integers(1, 6),
    seed=st.integers(0, 10_000),
)
def test_case_07_a_mastered_prompt_is_tested_again_within_the_stated_passes(revisit, pool, brought, seed):
    """CASE 7. For every pool, limit and order of the host's prompts, a prompt that is always solved."""
    a_pass = pool / brought  # steps
    backlog = math.ceil(
        pool / math.ceil(0.5 * brought)
    )  # all are due at once, and half of the picks are theirs
    window = math.ceil(revisit * a_pass) + backlog + 1
    steps = min(2 * window, 60)
    drawn = visits(revisit, pool=pool, brought=brought, steps=steps, seed=seed)
    assert np.diff([-1, *drawn, steps]).max() <= window


def test_case_07_a_mastered_prompt_is_drawn_less_often_once_it_is_known():
    """CASE 7. For a prompt solved in every one of its visits, beside forty of other difficulties."""
    runs = [visits(4.0, pool=40, brought=8, steps=150, seed=seed) for seed in range(6)]
    early = sum(step < 5 for drawn in runs for step in drawn) / 5
    late = sum(step >= 100 for drawn in runs for step in drawn) / 50
    assert 0 < late < 0.5 * early


def test_without_a_pool_nothing_is_due_and_the_hosts_prompts_are_ranked():
    """CASE 7. For hosts without a pool, which decide themselves what comes again."""
    controller = Controller(preset("neyman", belief=Counts()), budget=Budget(rollouts=16))
    batch, _ = run_step(controller, Host(), range(4))
    assert len(batch) == 16
