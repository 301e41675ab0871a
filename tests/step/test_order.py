"""The order of calls and of arrivals: it changes no decision."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from neyman import Budget, Controller, preset
from strategies import (
    Host,
    assert_same_batch,
    controllers,
    feasible,
    hosts,
    outcome,
    run_step,
    simple,
)

PROMPTS = list(range(8))


@given(make=controllers(), host=hosts(), count=st.integers(1, 8), capacity=st.none() | st.integers(1, 9))
def test_two_controllers_told_the_same_decide_the_same_bit_for_bit(make, host, count, capacity):
    first, second = feasible(make, range(count)), feasible(make, range(count))
    for step in range(2):
        batches = []
        for controller in (first, second):
            rng = np.random.default_rng(step)
            batches.append(
                run_step(controller, host, range(count), capacity=capacity, rng=rng, begin=step > 0)
            )
        assert batches[0][1] == batches[1][1]
        assert_same_batch(batches[0][0], batches[1][0])
    assert first.state_dict() == second.state_dict()


@given(make=controllers(), host=hosts(), count=st.integers(1, 8), seed=st.integers(0, 99))
def test_the_order_inside_a_tell_does_not_matter(make, host, count, seed):
    plain, mixed = feasible(make, range(count)), feasible(make, range(count))
    rng = np.random.default_rng(seed)
    while not plain.is_done:
        requests = plain.ask()
        assert requests == mixed.ask()
        outcomes = host.answer(requests)
        plain.tell(outcomes)
        rng.shuffle(outcomes)
        mixed.tell(outcomes)
    assert_same_batch(plain.finish(), mixed.finish())
    assert plain.state_dict() == mixed.state_dict()


def test_ask_may_come_at_any_time_and_empty_is_not_done():
    controller = simple(rollouts=4)
    controller.begin(["a", "b"])
    assert controller.ask(0) == []
    requests = controller.ask()
    assert controller.ask() == []
    assert not controller.is_done
    controller.tell([])
    controller.tell(Host().answer(requests))
    assert controller.is_done
    assert controller.ask() == []


@given(capacity=st.integers(1, 20))
def test_a_capacity_bounds_what_is_asked_and_loses_nothing(capacity):
    controller = simple("sara", 64, pool=range(40))
    controller.begin(PROMPTS)
    while not controller.is_done:
        requests = controller.ask(capacity)
        assert 0 < sum(len(r.rollout_ids) for r in requests) <= capacity
        controller.tell(Host().answer(requests))


def test_seeds_differ_within_a_prompt_and_follow_prompt_and_step_alone():
    def seeds(order, capacity):
        controller = simple(rollouts=16)
        _, asked = run_step(controller, Host(), order, capacity=capacity)
        return {(r.prompt_id, r.seed + j) for r in asked for j in range(len(r.rollout_ids))}, sum(
            len(r.rollout_ids) for r in asked
        )

    one, n = seeds([1, 2, 3, 4], None)
    two, _ = seeds([4, 3, 2, 1], 3)
    assert one == two
    assert len(one) == n


@given(seed=st.integers(0, 200), speculate=st.booleans())
def test_prefix_verdicts_do_not_depend_on_the_order_of_arrival(seed, speculate):
    strategy = preset(
        "sara", group_size=8, schedule=(3, 5), threshold=0.6, speculate=speculate, over_provision=8.0
    )

    def verdicts(rng):
        controller = Controller(strategy, budget=Budget(rollouts=8 * 12), retries=0.0)
        run_step(controller, Host(seed=seed), range(12), rng=rng)
        return [(g.prompt_id, g.committed, g.stopped_at) for g in controller._engine.state.groups]

    assert verdicts(None) == verdicts(np.random.default_rng(seed))


def test_verdicts_on_arrival_use_whatever_came():
    def last_results_first(verdict_on):
        controller = Controller(
            preset("sara", group_size=4, schedule=(2,), speculate=True, verdict_on=verdict_on),
            budget=Budget(rollouts=4),
        )
        controller.begin(["a"])
        (request,) = controller.ask()
        controller.tell(outcome(i, "a", r) for i, r in zip(request.rollout_ids[2:], [1.0, 0.0], strict=True))
        return controller._engine.state.groups[0].committed

    assert last_results_first("arrival") is True
    assert last_results_first("prefix") is None
