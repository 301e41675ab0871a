"""The oracle is a belief like any other, and it is right."""

import copy

import numpy as np
import pytest

import neyman
from neyman.beliefs import Belief
from neyman.errors import StateError
from neyman.lab.oracle import ExactRates, OracleBelief, ToldBelief
from neyman.lab.strategies import build_strategy
from neyman.lab.task import draw_prompts


@pytest.fixture
def known():
    rates = {0: 0.0, 1: 0.25, 2: 0.5, 3: 1.0}
    return OracleBelief(lambda ids: np.array([rates[i] for i in ids]))


def test_it_is_a_belief(known):
    assert isinstance(known, Belief)
    known.register([0, 1], None)
    mean, variance = known.predict([1, 2])
    np.testing.assert_array_equal(mean, [0.25, 0.5])
    np.testing.assert_array_equal(variance, [0.0, 0.0])
    np.testing.assert_array_equal(known.expected_variance([0, 1, 2, 3]), [0.0, 0.1875, 0.25, 0.0])
    np.testing.assert_array_equal(known.sample([2, 1], np.random.default_rng(0)), [0.5, 0.25])
    np.testing.assert_allclose(known.mixed_probability([0, 2, 3], 4), [0.0, 0.875, 0.0])


def test_outcomes_and_time_change_nothing(known):
    known.update([1], [4], [4])
    known.advance(10)
    assert known.predict([1])[0][0] == 0.25


def test_its_state_goes_into_its_own_kind_only(known):
    known.load_state_dict(known.state_dict())
    with pytest.raises(StateError, match="counts"):
        known.load_state_dict(neyman.beliefs.Counts().state_dict())


def test_copies_speak_of_the_same_policy(policy):
    prompts, _ = draw_prompts(10, 1)
    rates = ExactRates(policy, prompts)
    belief = OracleBelief(rates)
    copied = copy.deepcopy(belief)
    before = copied.predict([0])[0][0]
    policy.head.weight.data.mul_(0.2)
    assert copied.predict([0])[0][0] == before  # computed once per policy
    rates.forget()
    expected = policy.success_rates(prompts.tokens[:1], prompts.answers[:1])
    np.testing.assert_allclose(copied.predict([0])[0], expected, rtol=1e-5)
    assert expected[0] != before


def test_the_oracle_gives_more_rollouts_to_rates_next_to_one_half(known):
    strategy = neyman.preset("vip", lower=2, upper=20, belief=known)
    controller = neyman.Controller(strategy, neyman.Budget(rollouts=24))
    controller.begin([0, 1, 2, 3])
    counts = {request.prompt_id: len(request.rollout_ids) for request in controller.ask()}
    assert counts[0] == counts[3] == 2
    assert counts[2] > counts[1] > 2


def test_who_is_told_knows_the_rates_of_what_was_tried_and_of_nothing_else(known):
    told = build_strategy("neyman-told", {}, estimator="rloo", group_size=4, oracle=known).belief
    assert isinstance(told, Belief)
    told.register([0, 1, 2, 3], None)
    told.update([1], [2], [2])  # both right, at a rate of .25
    mean, variance = told.predict([1, 2])
    assert mean[0] == pytest.approx(0.25, abs=0.01)
    assert mean[1] < 0.45  # not tried: judged by what was, at a rate of .5 of its own
    assert variance[0] < 0.1 * variance[1]


def test_who_is_told_nothing_new_learns_nothing(known):
    told = ToldBelief(neyman.beliefs.Counts(), known)
    told.update([1, 2], [0, 0], [0, 0])
    assert told.state_dict() == neyman.beliefs.Counts().state_dict()
