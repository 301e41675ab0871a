"""A controller's state with any part missing or of another kind is refused as such, and changes nothing."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

import neyman
from neyman import Budget, Controller
from neyman.errors import StateError
from strategies import PRESETS, Host, run_step, through_json

STRATEGIES = {
    "sara, carried over": lambda: neyman.preset("sara", max_age=2),
    "ar3po": PRESETS["ar3po"],
    "neyman": PRESETS["neyman"],
}


def make(name):
    return Controller(STRATEGIES[name](), budget=Budget(rollouts=48), pool=range(60), seed=4)


def saved(name):
    """Return a state in the middle of a step, with results told and others out."""
    controller, host = make(name), Host(failing=0.2, seed=1)
    for _ in range(3):
        run_step(controller, host, [])
    controller.begin([])
    controller.tell(host.answer(controller.ask())[:20])
    return through_json(controller.state_dict())


STATES = {name: saved(name) for name in STRATEGIES}


def places(value, path=()):
    """Yield the path of everything within nested containers."""
    for key in value if isinstance(value, dict) else range(len(value)):
        yield (*path, key)
        if isinstance(value[key], dict | list):
            yield from places(value[key], (*path, key))


def damaged(state, path, junk):
    """Return a copy of the state with one part replaced, or without it."""
    copy = inner = through_json(state)
    for key in path[:-1]:
        inner = inner[key]
    if junk == "nothing":
        del inner[path[-1]]
    else:
        inner[path[-1]] = junk
    return copy


JUNK = st.sampled_from(["nothing", None, "junk", [], {}, [[]], {"junk": 1}, float("nan"), 2**63, 10**400])


@pytest.mark.parametrize("name", STRATEGIES)
@given(data=st.data())
def test_a_damaged_part_is_refused_with_the_way_out_and_changes_nothing(name, data):
    path = data.draw(st.sampled_from(list(places(STATES[name]))))
    state = damaged(STATES[name], path, data.draw(JUNK))
    controller = make(name)
    run_step(controller, Host(seed=3), [])
    before = json.dumps(controller.state_dict())
    try:
        controller.load_state_dict(state)
    except StateError as error:
        message = str(error)
    else:  # a number or a name that could have been so
        return
    assert any(way in message for way in ("load another", "start a new", "resume with", "load it with"))
    assert json.dumps(controller.state_dict()) == before


@pytest.mark.parametrize("state", [None, [], "state", {}])
def test_what_is_no_state_is_refused(state):
    with pytest.raises(StateError, match=r"load another saved state|load it with the neyman that wrote it"):
        make("neyman").load_state_dict(state)


@pytest.mark.parametrize("key", ["policy_version", "next_rollout", "n_tokens"])
def test_a_number_that_no_batch_can_hold_is_refused(key):
    def swollen(tree):
        """Return the tree with every entry of this name beyond all bounds."""
        if isinstance(tree, list):
            return [swollen(item) for item in tree]
        if not isinstance(tree, dict):
            return tree
        return {name: 10**400 if name == key else swollen(item) for name, item in tree.items()}

    state = swollen(STATES["ar3po"])
    assert state != STATES["ar3po"]
    with pytest.raises(StateError):
        make("ar3po").load_state_dict(state)
