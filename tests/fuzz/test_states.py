"""Saved states changed in any way: refused as a StateError that changes nothing, or taken over whole."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given

from fuzz.mutations import changed, same
from fuzz.tally import count
from neyman import Budget, Controller
from neyman.beliefs import Belief
from neyman.errors import StateError
from neyman.testing import Host, run_step
from strategies import BELIEFS, POOL, PRESETS, assert_consistent, through_json

FEATURES = np.random.default_rng(3).normal(size=(len(POOL), 5)).astype(np.float32)


def taught(make: Callable[[], Belief]) -> Belief:
    """Return a belief with a few visits behind it."""
    belief = make()
    belief.register(POOL, FEATURES)  # type: ignore[attr-defined]
    rng = np.random.default_rng(5)
    for _ in range(4):
        ids = [POOL[k] for k in rng.choice(len(POOL), 4, replace=False)]
        trials = rng.integers(0, 9, 4)
        belief.update(ids, rng.binomial(trials, 0.4), trials)
        belief.advance(int(rng.integers(0, 4)))
    return belief


def loaded(target: Any, state: Any) -> bool:
    """Load a state; where it is refused nothing may have changed."""
    before = through_json(target.state_dict())
    try:
        target.load_state_dict(state)
    except StateError as error:
        said = str(error)
    else:
        return True
    assert said
    assert same(through_json(target.state_dict()), before), "a refused state changed something"
    return False


@pytest.mark.parametrize("name", BELIEFS)
def test_changed_states_of_beliefs(name: str) -> None:
    belief = taught(BELIEFS[name])
    valid = through_json(belief.state_dict())

    @given(changed(valid))
    def try_one(state: Any) -> None:
        assume(not same(state, valid))
        other = taught(BELIEFS[name])
        if not loaded(other, state):
            count("belief states", "refused")
            return
        count("belief states", "taken over")
        # What is registered since is moved to its features and may be saved otherwise; but then for good.
        once = through_json(other.state_dict())
        again = taught(BELIEFS[name])
        assert loaded(again, once)
        assert same(through_json(again.state_dict()), once)
        mean, variance = other.predict(POOL)
        assert ((mean >= 0.0) & (mean <= 1.0)).all()
        assert (np.isfinite(variance) & (variance >= 0.0)).all()

    try_one()


#: Controllers between two steps and in the middle of one, of every way in which groups live on.
CONTROLLERS = ["uniform", "vip, probe", "sara, carry", "ar3po", "neyman, recounts", "uniform, streaming"]


def controller_of(name: str) -> Controller:
    return Controller(PRESETS[name](), Budget(rollouts=32), pool=range(40), retries=0.25, seed=1)


def saved(name: str, *, is_open: bool) -> Any:
    """Return a controller's state after two steps, with some results late, and perhaps a third one open."""
    controller, host = controller_of(name), Host(failing=0.1)
    run_step(controller, host, range(8))
    controller.begin(range(8, 16))
    controller.tell(host.answer(controller.ask(6)))
    controller.ask(3)
    controller.finish()
    if is_open:
        controller.begin(range(16, 24))
        controller.tell(host.answer(controller.ask(7))[:5])
    return through_json(controller.state_dict())


@pytest.mark.parametrize("is_open", [False, True], ids=["between steps", "within a step"])
@pytest.mark.parametrize("name", CONTROLLERS)
def test_changed_states_of_controllers(name: str, is_open: bool) -> None:
    valid = saved(name, is_open=is_open)
    # The belief's state is tried above, for every belief.
    outer = {key: value for key, value in valid.items() if key != "belief"}

    @given(changed(outer))
    def try_one(state: Any) -> None:
        assume(not same(state, outer))
        if isinstance(state, dict):
            state = {**state, "belief": valid["belief"]}
        other = controller_of(name)
        if not loaded(other, state):
            count("controller states", "refused")
            return
        count("controller states", "taken over")
        assert same(through_json(other.state_dict()), state)
        assert_consistent(other)

    try_one()


def test_the_states_themselves_are_taken_over() -> None:
    for name in CONTROLLERS:
        for is_open in (False, True):
            state = saved(name, is_open=is_open)
            other = controller_of(name)
            other.load_state_dict(json.loads(json.dumps(state)))
            assert same(through_json(other.state_dict()), state)
            assert_consistent(other)
