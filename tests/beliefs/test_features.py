"""Features: checked, kept, and taken in early or late."""

import json

import numpy as np
import pytest

from neyman.beliefs import BinomialResidual, default
from neyman.errors import ArgumentError, StateError
from strategies import BELIEFS, POOL

FEATURES = np.random.default_rng(3).normal(size=(len(POOL), 5)).astype(np.float32)


def registered(make):
    belief = make()
    belief.register(POOL, FEATURES)
    return belief


FEATURED = ["counts with gp", "residual", "residual, 3 landmarks", "published", "published, low rank"]


@pytest.mark.parametrize("kind", FEATURED)
def test_a_state_with_other_features_is_refused(kind):
    belief = registered(BELIEFS[kind])
    belief.update(POOL[:4], [0, 3, 4, 8], [8] * 4)
    other = BELIEFS[kind]()
    with pytest.raises(StateError, match="register the same prompts"):
        other.load_state_dict(belief.state_dict())
    changed = FEATURES.copy()
    changed[:, 0] += 1.0
    other.register(POOL, changed)
    with pytest.raises(StateError, match="other features"):
        other.load_state_dict(belief.state_dict())


@pytest.mark.parametrize("kind", FEATURED)
def test_features_are_checked_and_kept(kind):
    belief = registered(BELIEFS[kind])
    belief.register(POOL, FEATURES)  # the same again is no news
    with pytest.raises(ArgumentError, match="'a' differ"):
        belief.register(["a"], FEATURES[1:2])
    with pytest.raises(ArgumentError, match="shape \\(2, F\\)"):
        belief.register(["x", "y"], FEATURES[:1])
    with pytest.raises(ArgumentError, match="5 columns"):
        belief.register(["x"], [[1.0]])
    with pytest.raises(ArgumentError, match="row 0"):
        belief.register(["x"], [[np.nan] * 5])


@pytest.mark.parametrize("kind", FEATURED)
def test_features_may_come_late(kind):
    # Evidence that came before the features is not lost, and from then on tells about neighbours.
    belief = BELIEFS[kind]()
    belief.update(["a"], [0], [8])
    assert belief.predict(["a"])[0][0] < 0.4
    belief.register(["a", "near", "far"], [[0.0, 0.0], [0.01, 0.0], [9.0, 9.0]])
    own = belief.predict(["a"])[0][0]
    belief.advance()
    belief.update(["a"], [0], [8])
    mean = belief.predict(["a", "near", "far"])[0]
    assert own < 0.4
    assert mean[0] < 0.4
    assert mean[1] <= mean[2]
    again = BELIEFS[kind]()
    again.register(["a", "near", "far"], [[0.0, 0.0], [0.01, 0.0], [9.0, 9.0]])
    again.load_state_dict(json.loads(json.dumps(belief.state_dict())))
    np.testing.assert_array_equal(mean, again.predict(["a", "near", "far"])[0])


@pytest.mark.parametrize("kind", ["counts with gp", "residual"])
def test_late_features_give_what_early_ones_would_have(kind):
    early, late = registered(BELIEFS[kind]), BELIEFS[kind]()
    for belief in (early, late):
        belief.update(["a", "b"], [0, 7], [8, 8])
    late.register(POOL, FEATURES)
    # The pseudo-observations differ by the prior they were made under, no more.
    np.testing.assert_allclose(early.predict(POOL)[0], late.predict(POOL)[0], atol=0.06)


@pytest.mark.parametrize("kind", ["counts with gp", "residual"])
def test_features_registered_between_save_and_load_are_taken_in(kind):
    belief = BELIEFS[kind]()
    belief.update(["a", "b"], [0, 7], [8, 8])
    saved = belief.state_dict()
    other = registered(BELIEFS[kind])
    other.load_state_dict(saved)
    belief.register(POOL, FEATURES)
    np.testing.assert_allclose(belief.predict(POOL)[0], other.predict(POOL)[0], rtol=1e-12)


def test_the_default_averages_binomial_residuals_with_the_pool_registered():
    belief = default(POOL, FEATURES)
    belief.update(["a"], [8], [8])
    assert [type(member) for member in belief.members] == [BinomialResidual, BinomialResidual]
    assert len(set(belief.predict(["b", "c", "d"])[0].tolist())) > 1
    with pytest.raises(ArgumentError, match="features must have shape \\(0, F\\)"):
        default(features=FEATURES)
