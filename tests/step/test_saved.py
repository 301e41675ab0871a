"""Save, restore, continue: the same as never stopped."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neyman.errors import StateError
from strategies import (
    Host,
    assert_same_batch,
    controllers,
    feasible,
    hosts,
    outcome,
    run_step,
    simple,
    through_json,
)

PROMPTS = list(range(8))


@given(
    make=controllers(),
    host=hosts(),
    count=st.integers(1, 8),
    stop=st.integers(0, 12),
    between=st.booleans(),
    cut=st.integers(1, 9),
    capacity=st.none() | st.integers(1, 12),
)
def test_save_load_continue_equals_never_stopped(make, host, count, stop, between, cut, capacity):
    def run(interrupted):
        controller = feasible(make, range(count))
        trace, moves, waiting = [], 0, []
        for step in range(3):
            if step:
                controller.begin(range(count))
            while not controller.is_done:
                waiting += host.answer(controller.ask(capacity))
                if interrupted and moves == stop:
                    fresh = make()
                    fresh.load_state_dict(through_json(controller.state_dict()))
                    controller = fresh
                    # The host lost what was out: it gets the same ids and seeds, hence the same results.
                    again = host.answer(controller.ask(len(controller._engine.state.lost)))
                    lost = {o.rollout_id: o for o in waiting}
                    assert all(lost[o.rollout_id] == o for o in again)
                moves += 1
                told, waiting = waiting[:cut], waiting[cut:]
                controller.tell(told)
            batch = controller.finish()
            waiting = []
            trace.append(batch)
            if interrupted and between:
                fresh = make()
                fresh.load_state_dict(through_json(controller.state_dict()))
                controller = fresh
        return trace, controller.state_dict()

    (left, left_state), (right, right_state) = run(False), run(True)
    for one, two in zip(left, right, strict=True):
        assert_same_batch(one, two)
    assert through_json(left_state) == through_json(right_state)


def test_what_is_asked_again_keeps_its_ids_and_seeds_around_what_was_told():
    controller = simple(rollouts=4)
    controller.begin(["a"])
    (request,) = controller.ask()
    controller.tell([outcome(request.rollout_ids[1], "a", 1.0)])
    fresh = simple(rollouts=4)
    fresh.load_state_dict(through_json(controller.state_dict()))
    again = [(i, r.seed + j) for r in fresh.ask() for j, i in enumerate(r.rollout_ids)]
    assert again == [(i, request.seed + j) for j, i in enumerate(request.rollout_ids) if j != 1]


def test_a_state_of_another_prompt_set_version_or_shape_is_refused_and_changes_nothing():
    controller = simple("sara", 64, pool=range(40))
    run_step(controller, Host(), PROMPTS)
    good = through_json(controller.state_dict())
    other = simple("sara", 64, pool=range(41))
    with pytest.raises(StateError, match="another prompt set"):
        other.load_state_dict(good)
    fresh = simple("sara", 64, pool=range(40))
    before = fresh.state_dict()
    for bad, message in [
        ({**good, "version": 99}, "version 99"),
        ({**good, "version": True}, "version True"),
        ({k: v for k, v in good.items() if k != "late"}, "lacks \\['late'\\]"),
        ({**good, "belief": {}}, "belief"),
        ({**good, "carried": [{"prompt_id": 1}]}, "a group that this neyman cannot read"),
        ({**good, "yield": {}}, "yield state must have"),
    ]:
        with pytest.raises(StateError, match=message):
            fresh.load_state_dict(bad)
        assert before == fresh.state_dict()
    with pytest.raises(StateError, match="other fields"):
        fresh.load_state_dict({**good, "open": {}})
    assert before == fresh.state_dict()


def test_a_state_survives_a_prediction_that_is_not_known():
    from neyman.step._group import Group, Slot
    from neyman.step.messages import Reason

    group = Group(prompt_id="a", size=2, reason=Reason.PROBE, slots=[Slot()])
    again = Group.from_state(through_json(group.state_dict()))
    assert math.isnan(again.predicted)
    assert math.isnan(again.slots[0].reward)
    assert group.state_dict() == again.state_dict()
