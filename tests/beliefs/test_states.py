"""Saved states of the built-in beliefs: damaged ones are refused by name, and change nothing."""

import json

import numpy as np
import pytest

from neyman.beliefs import BinomialResidual, Counts
from neyman.errors import StateError
from strategies import BELIEFS, POOL

FEATURES = np.random.default_rng(3).normal(size=(len(POOL), 5)).astype(np.float32)


@pytest.fixture(params=[name for name in BELIEFS if name != "average"])  # which holds states of the others
def make(request):
    return BELIEFS[request.param]


def registered(make):
    belief = make()
    belief.register(POOL, FEATURES)
    return belief


def lead(belief, seed, steps):
    """Lead a belief through a few visits."""
    rng = np.random.default_rng(seed)
    for _ in range(steps):
        ids = [POOL[k] for k in rng.choice(len(POOL), 4, replace=False)]
        n = rng.integers(0, 9, 4)
        belief.update(ids, rng.binomial(n, 0.4), n)
        belief.advance(int(rng.integers(0, 4)))


def damage(state, how):
    state = json.loads(json.dumps(state))
    column = "seen"
    if how == "kind":
        state["kind"] = "other"
    elif how == "version":
        state["version"] = 99
    elif how == "missing":
        del state["clock"]
    elif how == "unknown":
        state["surplus"] = 1
    elif how == "config":
        key = next(iter(state["config"]))
        state["config"][key] = 0.123
    elif how == "clock":
        state["clock"] = -3
    elif how == "clock beyond floats":
        state["clock"] = 10**400
    elif how == "ids twice":
        state["ids"][0] = state["ids"][1]
    elif how == "id type":
        state["ids"][0] = 1.5
    elif how == "truncated":
        state[column]["data"] = state[column]["data"][:-8]
    elif how == "not base64":
        state[column]["data"] = "%%%" + state[column]["data"][3:]
    elif how == "shape":
        state[column]["shape"] = [1]
    elif how == "dtype":
        state[column]["dtype"] = "<f2"
    elif how == "dtype list":
        state[column]["dtype"] = ["<f8"]
    elif how == "shape float":
        state[column]["shape"] = [float(n) for n in state[column]["shape"]]
    elif how == "stray bits":  # decodes to the same bytes, and so would be saved otherwise
        state[column]["data"] = "AB=="
    elif how == "no array":
        state[column] = [1, 2]
    return state


@pytest.mark.parametrize(
    ("how", "word"),
    [
        ("kind", "kind 'other'"),
        ("version", "version 99"),
        ("missing", "missing \\['clock'\\]"),
        ("unknown", "unknown \\['surplus'\\]"),
        ("config", "0.123"),
        ("clock", "clock"),
        ("clock beyond floats", "clock"),
        ("ids twice", "twice"),
        ("id type", "strings and integers"),
        ("truncated", "seen"),
        ("not base64", "seen"),
        ("shape", "seen"),
        ("dtype", "<f2"),
        ("dtype list", "<f8"),
        ("shape float", "whole numbers"),
        ("stray bits", "no base64"),
        ("no array", "seen"),
    ],
)
def test_a_state_that_does_not_fit_is_refused_by_name_and_changes_nothing(make, how, word):
    belief = registered(make)
    lead(belief, 6, 4)
    before = belief.state_dict()
    with pytest.raises(StateError, match=word):
        belief.load_state_dict(damage(before, how))
    assert before == belief.state_dict()


def test_states_of_other_beliefs_are_refused():
    with pytest.raises(StateError, match="of kind 'counts', this one is 'binomial_residual'"):
        BinomialResidual().load_state_dict(Counts().state_dict())


@pytest.mark.parametrize("value", [10**400, 1e308, 2**63, -1.0, True, "1"])
def test_counts_that_no_pool_can_have_are_refused(value):
    belief = Counts()
    lead(belief, 6, 4)
    state = belief.state_dict()
    with pytest.raises(StateError, match="pool"):
        Counts().load_state_dict({**state, "pool_successes": value})
    with pytest.raises(StateError, match="outside 0 <= successes <= trials"):
        Counts().load_state_dict({**state, "successes": state["trials"], "trials": state["successes"]})
