"""Budgets: what a step may spend, and what it refuses."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neyman import Budget, Controller, StopReason, preset
from neyman.beliefs import Counts
from neyman.errors import ArgumentError, InfeasibleError
from strategies import (
    PRESETS,
    Host,
    assert_consistent,
    assert_sound_batch,
    controllers,
    feasible,
    hosts,
    outcome,
    run_step,
    simple,
)

PROMPTS = list(range(8))


@given(make=controllers(), host=hosts(), count=st.integers(1, 8), steps=st.integers(1, 3))
def test_every_step_of_every_preset_ends_in_a_sound_batch_inside_its_budget(make, host, count, steps):
    controller = feasible(make, range(count))
    known = {}
    for step in range(steps):
        batch, asked = run_step(controller, host, range(count), begin=step > 0)
        ids = [i for r in asked for i in r.rollout_ids]
        engine = controller._engine.state
        assert len(ids) == len(set(ids)) == engine.asked
        assert engine.asked <= engine.budget.planned_rollouts * (1 + engine.retry_share)
        known |= {i: r.prompt_id for r in asked for i in r.rollout_ids}
        if controller.strategy.close != "streaming":
            assert_sound_batch(controller, batch, known)
        assert_consistent(controller)
        assert batch.report["rollouts"] == engine.asked


def test_fixed_spend_never_trains_more_rows_than_the_host_has():
    with pytest.raises(ArgumentError, match="must be <= train_rows=32, got 64"):
        simple("uniform", 64, train_rows=32)


def test_fixed_train_needs_a_budget_that_can_fill_its_rows():
    with pytest.raises(ArgumentError, match="must be >= that, got 16"):
        simple("sara", 16, train_rows=32)


def test_a_budget_that_the_bounds_do_not_allow_leaves_the_controller_as_it_was():
    controller = Controller(preset("vip", lower=4, upper=8, belief=Counts()), budget=Budget(rollouts=64))
    before = controller.state_dict()
    with pytest.raises(InfeasibleError, match=r"choose a budget in \[8, 16\]"):
        controller.begin(["a", "b"], step=5)
    after = controller.state_dict()
    assert not controller.is_open
    assert before["step"] == after["step"]
    assert before["ledger"] == after["ledger"]
    controller.begin(PROMPTS, step=5)
    assert controller.step == 5


def test_a_second_count_that_could_not_be_met_is_refused_before_the_first_rollout():
    controller = Controller(preset("neyman", upper=8, belief=Counts()), budget=Budget(rollouts=64))
    with pytest.raises(InfeasibleError, match="budget=64"):
        controller.begin(["a", "b"])


def test_after_a_refused_step_any_later_number_may_begin():
    controller = Controller(preset("vip", lower=4, upper=8, belief=Counts()), budget=Budget(rollouts=64))
    with pytest.raises(InfeasibleError):
        controller.begin(["a", "b"], step=5)
    controller.begin(PROMPTS, step=3)
    assert controller.step == 3


def test_counts_are_taken_again_when_all_probes_are_in():
    controller = simple("vip, probe", 16)
    controller.begin(["a", "b"])
    probes = controller.ask()
    assert [(r.prompt_id, len(r.rollout_ids)) for r in probes] == [("a", 2), ("b", 2)]
    controller.tell(outcome(i, "a", float(n)) for n, i in enumerate(probes[0].rollout_ids))
    assert controller.ask() == []
    controller.tell(outcome(i, "b", 1.0) for i in probes[1].rollout_ids)
    counts = {r.prompt_id: len(r.rollout_ids) for r in controller.ask()}
    assert sum(counts.values()) == 12
    assert counts["a"] > counts["b"], "the mixed one is more uncertain"


def test_a_size_that_does_not_fit_the_budget_says_what_would():
    controller = Controller(preset("uniform", group_size=4), budget=Budget(rollouts=32))
    with pytest.raises(InfeasibleError, match="set the budget to 12, or bring 8 prompts"):
        controller.begin(range(3))


@pytest.mark.parametrize("name", list(PRESETS))
def test_what_a_token_budget_allows_is_never_exceeded_when_the_length_is_the_longest(name):
    controller = Controller(
        PRESETS[name](), budget=Budget(tokens=1500, tokens_per_rollout=50), pool=range(40)
    )
    for _ in range(2):
        batch, _ = run_step(controller, Host(failing=0.2), range(6))
        assert 0 < batch.report["tokens"] <= 1500


def test_a_token_budget_that_runs_out_ends_the_step_and_says_so():
    controller = Controller(preset("uniform"), budget=Budget(tokens=1000, tokens_per_rollout=100))
    controller.begin(["a", "b"])
    requests = controller.ask(5)
    controller.tell(outcome(i, r.prompt_id, 1.0, n_tokens=200) for r in requests for i in r.rollout_ids)
    assert controller.ask() == []
    assert controller.is_done
    batch = controller.finish()
    assert batch.stop_reason is StopReason.BUDGET
    assert len(batch) == 5


def test_rollouts_that_are_out_are_charged_to_the_token_budget():
    controller = Controller(preset("uniform"), budget=Budget(tokens=1000, tokens_per_rollout=100))
    controller.begin(["a", "b"])
    first = controller.ask(6)
    ids = [(i, r.prompt_id) for r in first for i in r.rollout_ids]
    controller.tell([outcome(*ids[0], 1.0, n_tokens=300)])
    assert sum(len(r.rollout_ids) for r in controller.ask()) == 2  # 1000 - 300 - 5 x 100 leaves two
