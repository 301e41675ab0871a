"""The account of rollouts and tokens."""

from __future__ import annotations

import math

import pytest

from neyman import Fate, Ledger
from neyman.errors import StateError
from strategies import through_json


def filled():
    ledger = Ledger()
    ledger.request(10)
    ledger.request(2, retry=True)
    ledger.settle(Fate.TRAINED, 50, 8)
    ledger.settle(Fate.FAILED, 7)
    ledger.visit(["a", 1, "a"])
    return ledger


def test_it_counts_rollouts_and_tokens_by_fate():
    ledger = filled()
    assert (ledger.requested, ledger.retries) == (12, 2)
    assert ledger.rollouts() == 9
    assert ledger.rollouts(Fate.TRAINED) == 8
    assert ledger.tokens() == 57
    assert ledger.tokens(Fate.FAILED) == 7
    assert ledger.account()["trained"] == {"rollouts": 8, "tokens": 50}


def test_a_step_is_reported_once_and_the_run_adds_up():
    ledger = filled()
    assert ledger.close_step() == {
        "rollouts/trained": 8.0,
        "rollouts/failed": 1.0,
        "tokens/trained": 50.0,
        "tokens/failed": 7.0,
    }
    assert ledger.close_step() == {}
    assert ledger.steps == 2
    assert ledger.rollouts() == 9


def test_visits_epochs_and_coverage():
    ledger = filled()
    assert (ledger.visits("a"), ledger.visits(1), ledger.visits("1")) == (2, 1, 0)
    assert ledger.prompts_visited == 2
    assert ledger.coverage(4) == 0.5
    assert ledger.coverage(1) == 1.0
    assert ledger.epochs(3) == 1.0
    assert math.isnan(ledger.coverage(0))
    assert math.isnan(ledger.epochs(0))


def test_a_restored_ledger_goes_on_as_if_never_stopped():
    ledger, again = filled(), Ledger()
    again.load_state_dict(through_json(ledger.state_dict()))
    assert ledger.state_dict() == again.state_dict()
    assert again.visits(1) == 1
    assert ledger.close_step() == again.close_step()


def test_a_state_with_other_keys_is_refused():
    with pytest.raises(StateError, match="ledger state must have the keys"):
        Ledger().load_state_dict({"requested": 1})


DAMAGES = {
    "a fate is missing": lambda state: state["account"].pop("trained"),
    "a fate holds no numbers": lambda state: state["account"].update(failed=3),
    "tokens are missing": lambda state: state["account"]["failed"].pop("tokens"),
    "the step lacks a fate": lambda state: state["step"].pop("late"),
    "the step has one number": lambda state: state["step"].update(late=[1]),
    "visits are no pairs": lambda state: state.update(visits=[["a"]]),
    "seconds are missing": lambda state: state["seconds"].clear(),
    "a count is a word": lambda state: state.update(requested="many"),
    "a count is missing": lambda state: state.update(steps=None),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_state_is_refused_and_changes_nothing(damage):
    state, ledger = through_json(filled().state_dict()), filled()
    ledger.close_step()
    before = ledger.state_dict()
    damage(state)
    with pytest.raises(StateError, match=r"ledger state is damaged \(.*load another saved state"):
        ledger.load_state_dict(state)
    assert before == ledger.state_dict()


def test_its_repr_says_where_the_rollouts_went():
    assert (
        repr(filled())
        == "Ledger(steps=0, prompts=2, requested=12, retries=2, tokens=57, trained=8, failed=1)"
    )
