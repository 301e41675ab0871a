"""Models over the same prompts hold the feature rows once, and predict as they would apart."""

import copy
import json

import numpy as np
import pytest

from neyman.beliefs import BinomialResidual, ModelAverage, default
from neyman.beliefs import _features as features_module
from neyman.beliefs._default import _FAST
from neyman.beliefs._features import FeatureStore, NystromMap

IDS = [f"p{i}" for i in range(60)]
ROWS = np.random.default_rng(0).normal(size=(60, 5))


def apart():
    return ModelAverage([BinomialResidual(), BinomialResidual(**_FAST)])


def lived(belief, *, portions):
    """Counts come before the features of some prompts, and features come in portions."""
    rng = np.random.default_rng(1)
    for step in range(6):
        if step < portions:
            part = slice(step * 60 // portions, (step + 1) * 60 // portions)
            belief.register(IDS[part], ROWS[part])
        seen = rng.permutation(60)[:20]
        belief.advance()
        belief.update([IDS[i] for i in seen], rng.binomial(8, 0.3, 20), np.full(20, 8))
    return belief


@pytest.mark.parametrize("portions", [1, 3])
def test_sharing_rows_changes_nothing(portions):
    shared, own = lived(default(), portions=portions), lived(apart(), portions=portions)
    np.testing.assert_array_equal(shared.predict(IDS), own.predict(IDS))
    assert json.dumps(shared.state_dict()) == json.dumps(own.state_dict())


def test_the_default_holds_rows_once_in_copies_too():
    belief = default(IDS, ROWS)
    for each in (belief, copy.deepcopy(belief)):
        slow, fast = each.members
        assert slow.store is fast.store
        assert len(slow.store) == len(IDS)
    assert copy.deepcopy(belief).members[0].store is not belief.members[0].store


def test_a_state_is_continued_over_shared_rows():
    before = lived(default(), portions=3)
    after = default(IDS, ROWS)
    after.load_state_dict(json.loads(json.dumps(before.state_dict())))
    np.testing.assert_array_equal(after.predict(IDS), before.predict(IDS))
    assert after.members[0].store is after.members[1].store


@pytest.mark.parametrize("held", [0, 2**20])
def test_designs_are_the_map_of_the_rows(monkeypatch, held):
    monkeypatch.setattr(features_module, "_HELD", held)
    store = FeatureStore()
    store.add(*store.check(IDS[:25], ROWS[:25]))
    basis = store.share(NystromMap.fit(store.matrix, landmarks=9, bandwidth=2.0))
    asked = ["p3", "p40", "unknown", "p3"]

    def expected(basis, known):
        z = np.column_stack([np.ones(4), np.zeros((4, 9))])
        z[known, 1:] = basis(ROWS[[int(asked[place][1:]) for place in known]].astype(np.float32))
        return z

    np.testing.assert_allclose(store.design(basis, asked), expected(basis, [0, 3]), rtol=1e-12)
    store.add(*store.check(IDS[25:], ROWS[25:]))
    np.testing.assert_allclose(store.design(basis, asked), expected(basis, [0, 1, 3]), rtol=1e-12)
    other = NystromMap.fit(store.matrix, landmarks=9, bandwidth=3.0)
    np.testing.assert_allclose(store.design(other, asked), expected(other, [0, 1, 3]), rtol=1e-12)
    np.testing.assert_allclose(store.design(basis, asked), expected(basis, [0, 1, 3]), rtol=1e-12)


def test_a_map_that_is_the_same_is_held_once():
    store = FeatureStore()
    store.add(*store.check(IDS, ROWS))
    basis = store.share(NystromMap.fit(store.matrix, landmarks=9, bandwidth=2.0))
    assert store.share(NystromMap(basis.landmarks.copy(), basis.projection.copy(), basis.bandwidth)) is basis
    other = NystromMap.fit(store.matrix, landmarks=9, bandwidth=3.0)
    assert store.share(other) is other
