import numpy as np
import pytest
from scipy.special import expit, logit

from neyman.beliefs import PublishedGP
from neyman.errors import ArgumentError

X = np.random.default_rng(8).normal(size=(12, 3)).astype(np.float32)
IDS = [f"p{k}" for k in range(12)]


def literal(batches, eps=0.05, width=None):
    """VIP's recursion as the paper writes it, on the whole vector and the whole matrix."""
    x = X.astype(float)
    distance = np.sqrt(((x[:, None] - x[None]) ** 2).sum(-1))
    h = np.median(distance[np.triu_indices(len(x), 1)]) if width is None else width
    kernel = np.exp(-(distance**2) / (2 * h * h))
    m = np.zeros(len(x))
    for rows, s, n in batches:
        ghat = logit(np.clip(np.array(s) / np.array(n), eps, 1 - eps))
        m = m + kernel[:, rows] @ np.linalg.inv(kernel[np.ix_(rows, rows)]) @ (ghat - m[rows])
        m[rows] = ghat
    return expit(m)


BATCHES = [([0, 3, 5], [1, 7, 4], [8, 8, 8]), ([3, 1, 9], [8, 2, 0], [8, 8, 8]), ([0, 9], [3, 5], [4, 16])]


@pytest.mark.parametrize("width", [None, 0.7])
def test_it_is_the_papers_recursion(width):
    belief = PublishedGP(bandwidth="median" if width is None else width)
    belief.register(IDS, X)
    for rows, s, n in BATCHES:
        belief.update([IDS[row] for row in rows], s, n)
        belief.advance()
    np.testing.assert_allclose(belief.predict(IDS)[0], literal(BATCHES, width=width), atol=1e-5)


def test_low_rank_with_all_prompts_as_landmarks_is_the_exact_kernel():
    belief = PublishedGP(dense_limit=0, landmarks=12)
    belief.register(IDS, X)
    for rows, s, n in BATCHES:
        belief.update([IDS[row] for row in rows], s, n)
        belief.advance()
    np.testing.assert_allclose(belief.predict(IDS)[0], literal(BATCHES), atol=1e-4)


def test_growing_past_the_limit_keeps_what_was_observed():
    belief = PublishedGP(dense_limit=8, landmarks=6)
    belief.register(IDS[:8], X[:8])
    belief.update(IDS[:3], [1, 7, 4], [8, 8, 8])
    before = belief.predict(IDS[:3])[0]
    belief.register(IDS[8:], X[8:])
    np.testing.assert_allclose(belief.predict(IDS[:3])[0], before, rtol=1e-9)
    assert np.all(belief.predict(IDS[8:])[0] != 0.5)


def test_the_number_of_rollouts_and_time_do_not_matter():
    few, many = PublishedGP(), PublishedGP()
    for belief, n in ((few, 4), (many, 400)):
        belief.register(IDS, X)
        belief.update(IDS[:2], [n // 4, n // 2], [n, n])
    many.advance(1000)
    np.testing.assert_array_equal(few.predict(IDS)[0], many.predict(IDS)[0])


def test_it_is_a_point_as_published_and_spreads_by_option():
    point, spread = PublishedGP(), PublishedGP(variance="prior")
    for belief in (point, spread):
        belief.register(IDS, X)
        belief.update(["p0"], [6], [8])
    mean, variance = point.predict(IDS)
    np.testing.assert_allclose(variance, np.zeros(12), atol=1e-30)
    np.testing.assert_allclose(point.expected_variance(IDS), mean * (1 - mean))
    assert np.all(spread.predict(IDS)[1] > 0.02)


def test_two_prompts_with_one_embedding_are_no_fault():
    belief = PublishedGP()
    belief.register(["a", "b", "c"], [[0.0, 1.0], [0.0, 1.0], [1.0, 0.0]])
    belief.update(["a", "b"], [8, 0], [8, 8])
    mean = belief.predict(["a", "b", "c"])[0]
    assert np.all(np.isfinite(mean))
    np.testing.assert_allclose(mean[:2], [0.95, 0.05], atol=1e-6)


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"eps": 0.0}, "eps"),
        ({"eps": 0.5}, "eps"),
        ({"bandwidth": -1.0}, "bandwidth"),
        ({"bandwidth": "mean"}, "bandwidth"),
        ({"dense_limit": -1}, "dense_limit"),
        ({"landmarks": 0}, "landmarks"),
        ({"variance": "full"}, "variance"),
    ],
)
def test_settings_out_of_range_are_refused_by_name(options, word):
    with pytest.raises(ArgumentError, match=word):
        PublishedGP(**options)
