"""What users of RL trainers ran into: batches that never fill, refills, surplus, results that never come."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from neyman import Budget, Controller, Fate, Reason, StopReason, preset
from strategies import PRESETS, Host, assert_consistent, outcome, run_step, tell_all, through_json

FIXED_TRAIN = ["dynamic-sampling", "sara", "sara, looks", "speed", "greso", "reinforce-ada"]


@pytest.mark.parametrize("name", FIXED_TRAIN)
@settings(max_examples=25)
@given(solvable=st.sampled_from([0, 20, 5]), batches=st.integers(1, 10), seed=st.integers(0, 99))
def test_case_01_a_short_batch_says_so_and_holds_every_group_with_signal(name, solvable, batches, seed):
    """CASE 1. For every share of prompts that can give signal and every cap, in generation batches."""
    rates = {i: 0.5 if solvable and i % solvable == 0 else 0.0 for i in range(400)}
    controller = Controller(
        PRESETS[name](), budget=Budget(rollouts=16 * batches), train_rows=16, pool=range(400), retries=0.0
    )
    batch, _ = run_step(controller, Host(rates=rates, seed=seed), range(4))
    trained = {p for p, counted in zip(batch.prompt_ids, batch.counted, strict=True) if counted}
    mixed = {g.prompt_id for g in controller.group_reports if 0 < g.successes < g.trials}
    assert len(batch) == 16
    assert batch.report["rows_filled"] == 16 - batch.counted.sum()
    if batch.stop_reason is StopReason.FILLED:
        assert trained <= mixed
    else:
        assert batch.stop_reason is StopReason.BUDGET
        assert not batch.counted.all()
        assert trained == mixed, "no group with signal is lost"


@pytest.mark.parametrize("name", PRESETS)
@settings(max_examples=12)
@given(
    third=st.integers(0, 2),
    fill=st.sampled_from(["copies", "none"]),
    divisor=st.sampled_from([1, 8]),
    seed=st.integers(0, 99),
)
def test_case_03_a_step_of_uniform_groups_alone_ends_well_and_leaves_counts_only(
    name, third, fill, divisor, seed
):
    """CASE 3. For every strategy on prompts that are always or never solved, with and without filler."""

    def make():
        return Controller(
            PRESETS[name](), budget=Budget(rollouts=48), pool=range(60), fill=fill, divisor=divisor
        )

    controller, fresh = make(), through_json(make().state_dict())
    rates = {i: float(i % 3 == third) for i in range(60)}
    batch, _ = run_step(controller, Host(rates=rates, seed=seed), range(6))
    assert batch.report["effective_groups"] == 0
    assert not batch.advantages.any()
    if controller.strategy.close == "fixed_train":
        assert not batch.weights.any()
        assert not batch.counted.any()
        assert fill == "copies" or len(batch) == 0
    assert not batch.with_rewards(np.zeros(len(batch))).advantages.any()
    through_json(batch.summary())
    state = through_json(controller.state_dict())
    assert [state[key] for key in ("carried", "late", "open")] == [
        fresh[key] for key in ("carried", "late", "open")
    ]
    run_step(controller, Host(seed=seed), range(6, 12))  # and the run goes on
    assert_consistent(controller)


@given(over_provision=st.sampled_from([1.0, 1.25, 2.0, 4.0]), seed=st.integers(0, 99))
def test_case_04_a_refill_is_no_larger_than_what_is_missing_times_the_over_provision(over_provision, seed):
    """CASE 4. For every over-provision: 1 asks for one group where one was rejected."""
    controller = Controller(
        preset("dynamic-sampling", group_size=4, over_provision=over_provision),
        budget=Budget(rollouts=800),
        train_rows=16,
        pool=range(200),
    )
    host, effective = Host(seed=seed), 0
    controller.begin(range(4))
    while not controller.is_done:
        requests = controller.ask()
        assert 0 < len(requests) <= math.ceil(over_provision * (4 - effective))
        outcomes = host.answer(requests)
        solved = {r.prompt_id: [o.reward for o in outcomes if o.prompt_id == r.prompt_id] for r in requests}
        effective += sum(0 < sum(rewards) < 4 for rewards in solved.values())
        controller.tell(outcomes)
    assert controller.finish().stop_reason is StopReason.FILLED


@pytest.mark.parametrize("name", ["dynamic-sampling", "sara, looks"])
@given(size=st.integers(1, 9), seed=st.integers(0, 99))
def test_case_04_what_is_requested_is_what_is_kept_and_rejected_whatever_the_size_of_a_refill(
    name, size, seed
):
    """CASE 4. For every size in which a host takes its refills, one rollout among them."""
    controller = Controller(
        PRESETS[name](over_provision=1.0),
        budget=Budget(rollouts=800),
        train_rows=16,
        pool=range(200),
        retries=0.0,
    )
    batch, asked = run_step(controller, Host(seed=seed), range(4), capacity=size)
    assert all(len(r.rollout_ids) <= size for r in asked)
    kept, rejected = int(batch.counted.sum()), controller.ledger.rollouts(Fate.ABANDONED)
    assert sum(len(r.rollout_ids) for r in asked) == kept + rejected
    assert kept == 16


@given(spare=st.integers(1, 12), max_age=st.integers(0, 3), later=st.integers(1, 4))
def test_case_05_surplus_is_offered_first_up_to_its_age_limit_under_its_own_policy_version(
    spare, max_age, later
):
    """CASE 5. For every number of surplus groups, age limit and distance to the next step."""
    controller = Controller(
        preset("dynamic-sampling", group_size=4, over_provision=(4 + spare) / 4, max_age=max_age),
        budget=Budget(rollouts=4 * (4 + spare)),
        train_rows=16,
    )

    def mixed_step(first, step, version):
        controller.begin(range(first, first + 4 + spare), step=step, policy_version=version)
        while not controller.is_done:
            tell_all(controller, lambda place: float(place % 2))
        return controller.finish()

    mixed_step(0, 0, 10)
    assert controller.ledger.rollouts(Fate.SURPLUS) == (0 if max_age else 4 * spare)
    assert len(controller.held_rollouts) == (4 * spare if max_age else 0)
    batch = mixed_step(100, later, 20)
    offered = min(spare, 4) if later <= max_age else 0
    assert batch.prompt_ids[::4][:offered] == tuple(range(4, 4 + offered))
    assert batch.age.tolist() == [later] * 4 * offered + [0] * 4 * (4 - offered)
    assert batch.policy_version.tolist() == [10] * 4 * offered + [20] * 4 * (4 - offered)
    assert controller.ledger.rollouts(Fate.EXPIRED) == (4 * spare if 0 < max_age < later else 0)
    assert_consistent(controller)


@pytest.mark.parametrize("name", ["dynamic-sampling", "sara"])
@given(accepted=st.lists(st.booleans(), min_size=1, max_size=6), shuffle=st.integers(0, 999))
def test_case_06_every_group_in_flight_when_the_pool_ends_is_waited_for_and_returned(name, accepted, shuffle):
    """CASE 6. For every small pool, every pattern of accepted and rejected prompts, and every order of arrival."""
    prompts = len(accepted)
    controller = Controller(
        preset(name, group_size=2),
        budget=Budget(rollouts=4 * (prompts + 1)),
        train_rows=2 * (prompts + 1),
        pool=range(prompts),
    )
    controller.begin(range(prompts))
    flight, rng = [], np.random.default_rng(shuffle)
    while not controller.is_done:
        flight += [(i, r.prompt_id, n) for r in controller.ask() for n, i in enumerate(r.rollout_ids)]
        rollout_id, prompt_id, n = flight.pop(int(rng.integers(len(flight))))
        controller.tell([outcome(rollout_id, prompt_id, float(n and accepted[prompt_id]))])
    assert flight == []
    batch = controller.finish()
    assert batch.stop_reason is StopReason.POOL
    assert batch.report["groups"] == sum(accepted)
    assert {p for p, counted in zip(batch.prompt_ids, batch.counted, strict=True) if counted} == {
        i for i in range(prompts) if accepted[i]
    }


@given(max_tries=st.integers(1, 3), size=st.integers(1, 6), others=st.integers(2, 4))
def test_case_08_every_place_of_a_failing_group_gets_its_tries_and_no_more(max_tries, size, others):
    """CASE 8. For every limit of tries and size of a group; the others get what they would have got."""
    controller = Controller(
        preset("uniform", max_tries=max_tries), budget=Budget(rollouts=size * (1 + others)), retries=1.0
    )
    controller.begin(["x", *range(others)])
    tried = dict.fromkeys(["x", *range(others)], 0)
    while not controller.is_done:
        for r in controller.ask():
            tried[r.prompt_id] += len(r.rollout_ids)
            reward = None if r.prompt_id == "x" else 1.0
            controller.tell(outcome(i, r.prompt_id, reward, error="boom") for i in r.rollout_ids)
    controller.finish()
    assert tried == {"x": size * max_tries, **dict.fromkeys(range(others), size)}
    report = next(g for g in controller.group_reports if g.prompt_id == "x")
    assert (report.trials, report.reason) == (0, Reason.GIVEN_UP.value)


@pytest.mark.parametrize("name", PRESETS)
@settings(max_examples=8)
@given(retries=st.sampled_from([0.0, 0.1, 1.0]), seed=st.integers(0, 99))
def test_case_08_when_every_rollout_fails_the_step_ends_with_the_cause(name, retries, seed):
    """CASE 8. For every strategy and allowance, an executor that always raises."""
    controller = Controller(PRESETS[name](), budget=Budget(rollouts=48), pool=range(60), retries=retries)
    batch, asked = run_step(controller, Host(failing=1.0, seed=seed), range(6))
    assert batch.stop_reason is StopReason.FAILED
    assert controller.first_error == "the engine died"
    assert sum(len(r.rollout_ids) for r in asked) <= 48 * (1 + retries)
    assert not batch.weights.any()


@pytest.mark.parametrize("name", ["uniform", "dynamic-sampling", "sara"])
@given(share=st.floats(0.0, 0.3), size=st.integers(2, 16), seed=st.integers(0, 99))
def test_case_09_each_aborted_rollout_costs_one_more_request_and_no_group(name, share, size, seed):
    """CASE 9. For every share of aborts and group size: the refill is per rollout."""
    options = {} if name == "uniform" else {"group_size": size}
    controller = Controller(
        preset(name, max_tries=50, **options), budget=Budget(rollouts=8 * size), retries=1.0
    )
    host, failed = Host(failing=share, seed=seed), 0
    controller.begin(range(8))
    while not controller.is_done:
        outcomes = host.answer(controller.ask())
        failed += sum(o.reward is None for o in outcomes)
        controller.tell(outcomes)
    controller.finish()
    assume(failed <= 8 * size)  # the allowance
    reports = controller.group_reports
    assert controller.ledger.retries == failed
    assert sum(g.rollouts for g in reports) - sum(g.trials for g in reports) == failed
    assert "dropped" not in {g.outcome for g in reports}
    if name != "sara":
        assert {g.trials for g in reports} == {size}
