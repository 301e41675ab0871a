"""Beliefs weighted by the likelihood of their predictions."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from neyman.beliefs import BinomialResidual, Counts, ModelAverage, default
from neyman.errors import ArgumentError, StateError


def told(belief, rates, steps, seed=0):
    """Update a belief with 8 rollouts of every prompt a step; ``rates(step)`` are the true success rates."""
    rng = np.random.default_rng(seed)
    losses = []
    for step in range(steps):
        p = rates(step)
        s = rng.binomial(8, p)
        mean = np.clip(belief.predict(range(len(p)))[0], 1e-9, 1 - 1e-9)
        losses.append(float(-(s * np.log(mean) + (8 - s) * np.log1p(-mean)).mean() / 8))
        belief.update(range(len(p)), s, np.full(len(p), 8))
        belief.advance()
    return float(np.mean(losses[steps // 2 :]))


def still(step):
    return np.linspace(0.05, 0.95, 40)


def moving(step):
    return 0.5 + 0.45 * np.sin(np.arange(40) + 0.3 * step)


@pytest.mark.parametrize(("rates", "best"), [(still, 0), (moving, 1)])
def test_it_follows_the_member_that_foretells_best(rates, best):
    def members():
        return [Counts(discount=1.0, fade=1.0), Counts(discount=0.05, fade=1.0)]

    alone = [told(member, rates, 30) for member in members()]
    average = ModelAverage(members())
    loss = told(average, rates, 30)
    assert np.argmin(alone) == np.argmax(average.weights) == best
    assert loss < min(alone) + 0.005


def test_the_weights_are_the_members_likelihoods():
    first, second = Counts(prior=(1.0, 1.0)), Counts(prior=(2.0, 6.0))
    average = ModelAverage([first, second], memory=1.0)
    average.update(["a", "b"], [1, 3], [4, 4])
    likelihood = [
        np.prod([stats.betabinom(4, a, b).pmf(s) for s in (1, 3)]) for a, b in [(1.0, 1.0), (2.0, 6.0)]
    ]
    np.testing.assert_allclose(average.weights, np.array(likelihood) / np.sum(likelihood), rtol=1e-9)


def test_moments_are_those_of_the_mixture():
    low, high = Counts(prior=(1.0, 9.0)), Counts(prior=(9.0, 1.0))
    mean, variance = ModelAverage([low, high]).predict(["a"])
    draws = ModelAverage([low, high]).sample(["a"] * 40_000, np.random.default_rng(0))
    assert mean[0] == pytest.approx(0.5)
    assert variance[0] == pytest.approx(0.16 + 0.09 / 11)
    assert draws.mean() == pytest.approx(0.5, abs=5 * 0.41 / 200)
    assert draws.var() == pytest.approx(variance[0], abs=0.005)


def test_what_speaks_against_members_is_refused():
    with pytest.raises(ArgumentError, match="two or more beliefs of their own, got 1"):
        ModelAverage([Counts()])
    with pytest.raises(ArgumentError, match="one of them twice"):
        ModelAverage([belief := Counts(), belief])


def test_a_state_of_other_members_changes_nothing():
    average, other = default(), ModelAverage([BinomialResidual(), Counts()])
    average.update(["a"], [3], [4])
    other.update(["a"], [1], [4])
    before = average.predict(["a"])
    with pytest.raises(StateError, match="configured otherwise"):
        average.load_state_dict(other.state_dict())
    damaged = average.state_dict()
    damaged["members"] = [damaged["members"][0], {**damaged["members"][1], "clock": -1}]
    with pytest.raises(StateError, match="clock"):
        average.load_state_dict(damaged)
    np.testing.assert_array_equal(average.predict(["a"]), before)


class Asked(Counts):
    """Counts that record requests for a prediction."""

    asked = False

    def beta_parameters(self, ids):
        self.asked = True
        return super().beta_parameters(ids)


@pytest.mark.parametrize("loser", [0, 1])
def test_a_member_that_no_prediction_depends_on_is_not_asked_and_changes_no_bit(loser):
    """Draws alone use members without weight before the last one with some, so that random numbers stay the same."""
    right, wrong = Asked(prior=(5.0, 5.0)), Asked(prior=(1e-3, 1e-3))
    members = [wrong, right] if loser == 0 else [right, wrong]
    belief = ModelAverage(members)
    ids = [f"p{i}" for i in range(40)]
    belief.update(ids, [4] * 40, [8] * 40)
    assert 0.0 < belief.weights[loser] < 1e-30
    every = [member.predict(ids) for member in members]
    mean = belief.weights @ np.stack([mean for mean, _ in every])
    variance = belief.weights @ np.stack([v + (m - mean) ** 2 for m, v in every])
    spread = belief.weights @ np.stack([member.expected_variance(ids) for member in members])
    mixed = belief.weights @ np.stack([member.mixed_probability(ids, 8) for member in members])
    rng = np.random.default_rng(1)
    draws = [member.sample(ids, rng) for member in members]
    wrong.asked = False
    assert [array.tolist() for array in belief.predict(ids)] == [mean.tolist(), variance.tolist()]
    assert belief.expected_variance(ids).tolist() == spread.tolist()
    assert belief.mixed_probability(ids, 8).tolist() == mixed.tolist()
    assert not wrong.asked
    assert belief.sample(ids, np.random.default_rng(1)).tolist() == draws[1 - loser].tolist()
    assert wrong.asked == (loser == 0)
