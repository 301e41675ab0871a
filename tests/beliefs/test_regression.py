import numpy as np
import pytest
from scipy.stats import multivariate_normal

from neyman.beliefs._features import FeatureStore, NystromMap, fingerprints, median_distance
from neyman.beliefs._regression import FeatureRegression


def made(scales=(1.0,), memory=1.0, landmarks=40):
    return FeatureRegression(landmarks=landmarks, length_scale=0.7, scales=scales, level=2.0, memory=memory)


def no_evidence(names):
    return np.zeros(len(names)), np.zeros(len(names))


def data(seed=0, n=30):
    rng = np.random.default_rng(seed)
    return (
        list(range(n)),
        rng.normal(size=(n, 4)).astype(np.float32),
        rng.normal(size=n),
        rng.uniform(0.1, 3, n),
    )


def kernel(x, length_scale=0.7):
    x = x.astype(float)
    h = length_scale * median_distance(x)
    return np.exp(-((x[:, None] - x[None]) ** 2).sum(-1) / (2 * h * h))


@pytest.mark.parametrize("scale", [0.3, 1.0, 3.0])
def test_with_all_landmarks_it_is_the_exact_gaussian_process(scale):
    ids, x, y, weight = data()
    model = made(scales=(scale,))
    model.register(ids, x, no_evidence)
    seen = ids[:20]
    model.add_evidence(model.design(seen), weight[:20], y[:20])
    mean, variance = model.predict_ids(ids)
    prior = 4.0 + scale**2 * kernel(x)
    gain = prior[:, :20] @ np.linalg.inv(prior[:20, :20] + np.diag(1 / weight[:20]))
    np.testing.assert_allclose(mean, gain @ y[:20], atol=1e-4)
    np.testing.assert_allclose(variance, np.diag(prior - gain @ prior[:20]), atol=1e-4)


def test_the_scale_chosen_has_the_highest_marginal_likelihood():
    grid = (0.1, 0.4, 1.0, 3.0)
    chosen = set()
    for seed, truth in enumerate([0.0, 0.0, 0.5, 1.0, 3.0, 3.0]):
        ids, x, y, weight = data(seed)
        y = truth * np.linalg.cholesky(kernel(x) + 1e-6 * np.eye(30)) @ y + 0.3 * y[::-1]
        model = made(scales=grid)
        model.register(ids, x, no_evidence)
        model.add_evidence(model.design(ids), weight, y)
        likelihood = [
            multivariate_normal(np.zeros(30), 4.0 + s * s * kernel(x) + np.diag(1 / weight)).logpdf(y)
            for s in grid
        ]
        assert model._fit()[2] == grid[int(np.argmax(likelihood))]
        chosen.add(model._fit()[2])
    assert len(chosen) > 1


def test_evidence_taken_away_is_as_if_it_had_never_been():
    ids, x, y, weight = data()
    model, never = made(scales=(1.0, 2.0)), made(scales=(1.0, 2.0))
    for each in (model, never):
        each.register(ids, x, no_evidence)
        each.add_evidence(each.design(ids[:10]), weight[:10], y[:10])
    z = model.design(ids[10:])
    model.add_evidence(z, weight[10:], y[10:])
    model.add_evidence(z, -weight[10:], y[10:])
    np.testing.assert_allclose(model.predict_ids(ids), never.predict_ids(ids), atol=1e-8)


def test_memory_lets_old_evidence_weigh_less():
    ids, x, y, weight = data()
    aged, light = made(memory=0.9), made(memory=0.9)
    for model, factor in ((aged, 1.0), (light, 0.9**5)):
        model.register(ids, x, no_evidence)
        model.add_evidence(model.design(ids), weight * factor, y)
    aged.advance(5)
    np.testing.assert_allclose(aged.predict_ids(ids), light.predict_ids(ids), rtol=1e-9)
    np.testing.assert_allclose(aged.decay([0, 5]), [1.0, 0.9**5])


def test_a_hundred_thousand_replacements_leave_no_residue():
    ids, x, y, weight = data()
    model, fresh = made(), made()
    for each in (model, fresh):
        each.register(ids, x, no_evidence)
    z = model.design(ids)
    for _ in range(3000):
        model.add_evidence(z, weight, y)
        model.add_evidence(z, -weight, y)
    model.add_evidence(z, weight, y)
    fresh.add_evidence(z, weight, y)
    np.testing.assert_allclose(model.predict_ids(ids), fresh.predict_ids(ids), atol=1e-9)


def test_the_nystrom_map_gives_the_kernel():
    x = data()[1]
    z = NystromMap.fit(x, landmarks=30, bandwidth=0.7 * median_distance(x))(x)
    np.testing.assert_allclose(z @ z.T, kernel(x), atol=1e-6)
    rank = NystromMap.fit(x, landmarks=7, bandwidth=1.0)
    assert rank.width == 7
    norms = (rank(x) ** 2).sum(axis=1)
    assert np.all(norms <= 1 + 1e-9)


def test_identical_rows_lose_no_rank_and_no_sense():
    x = np.ones((9, 3), np.float32)
    assert median_distance(x) == 1.0
    assert NystromMap.fit(x, landmarks=9, bandwidth=1.0).width == 1


def test_fingerprints_are_fixed_numbers_that_tell_rows_apart():
    rows = np.array([[0.0, 1.0], [1.0, 0.0], [0.0, 1.0], [0.0, -0.0]], np.float32)
    prints = fingerprints(rows)
    assert prints[0] == prints[2]
    assert len(set(prints.tolist())) == 3
    # Literal: a saved state of another machine or NumPy must be recognised.
    assert prints.tolist()[:2] == [-4344069911688563804, -7880407467784981596]


def test_the_store_grows_and_keeps_rows():
    store = FeatureStore()
    x = np.arange(40, dtype=np.float32).reshape(20, 2)
    for k in range(20):
        ids, matrix, prints = store.check([k], x[k : k + 1])
        store.add(ids, matrix, prints)
    np.testing.assert_array_equal(store.matrix, x)
    np.testing.assert_array_equal(store.fingerprints([3, "none"]), [fingerprints(x)[3], 0])
