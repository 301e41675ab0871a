"""Metrics against enumerations of all subsets, exact fractions and simulation."""

from collections import Counter
from fractions import Fraction
from itertools import combinations
from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from neyman.errors import ArgumentError
from neyman.formulas import brier, ece, log_loss, maj_at_k, mean_at_k, pass_at_k


def test_pass_at_k_equals_the_share_of_subsets_with_a_success():
    for n in range(1, 9):
        for c in range(n + 1):
            for k in range(1, n + 1):
                subsets = list(combinations([1] * c + [0] * (n - c), k))
                share = sum(any(subset) for subset in subsets) / len(subsets)
                assert float(pass_at_k(n, c, k)) == pytest.approx(share, rel=1e-13)


@pytest.mark.parametrize(
    ("n", "c", "k"), [(1024, 1, 32), (10**6, 3, 1000), (256, 200, 50), (64, 63, 1), (64, 33, 32)]
)
def test_pass_at_k_is_exact_for_large_counts(n, c, k):
    exact = 1 - Fraction(comb(n - c, k), comb(n, k))
    assert float(pass_at_k(n, c, k)) == pytest.approx(float(exact), rel=1e-11)


def test_pass_at_k_is_vectorised_and_keeps_scalars():
    np.testing.assert_allclose(pass_at_k([4, 4, 8], [0, 2, 8], 2), [0, 5 / 6, 1])
    assert np.shape(pass_at_k(4, 2, 2)) == ()


def test_pass_at_k_is_unbiased():
    rng = np.random.default_rng(0)
    estimates = pass_at_k(16, rng.binomial(16, 0.1, 100_000), 8)
    truth = 1 - 0.9**8
    assert estimates.mean() == pytest.approx(truth, abs=4 * estimates.std() / np.sqrt(100_000))


def test_mean_at_k_is_the_accuracy_whatever_k_is():
    np.testing.assert_allclose(mean_at_k([4, 8], [1, 6], 2), [0.25, 0.75])
    assert mean_at_k(4, 1) == 0.25


def majority_by_enumeration(answers, right, k):
    total = Fraction(0)
    subsets = list(combinations(answers, k))
    for subset in subsets:
        votes = Counter(answer for answer in subset if answer is not None)
        top = [answer for answer in votes if votes[answer] == max(votes.values())]
        total += Fraction(sum(answer in right for answer in top), max(len(top), 1))
    return float(total / len(subsets))


@given(
    answers=st.lists(st.sampled_from(["a", "b", "c", "d", None]), min_size=1, max_size=9),
    data=st.data(),
)
def test_maj_at_k_equals_the_mean_over_all_subsets(answers, data):
    k = data.draw(st.integers(1, len(answers)))
    assert maj_at_k(answers, "a", k) == pytest.approx(majority_by_enumeration(answers, {"a"}, k), abs=1e-12)
    marks = [answer in ("a", "b") for answer in answers]
    assert maj_at_k(answers, marks, k) == pytest.approx(
        majority_by_enumeration(answers, {"a", "b"}, k), abs=1e-12
    )


def test_maj_at_k_golden():
    assert maj_at_k([7] * 5 + [3] * 4, 7, 9) == 1.0
    assert pytest.approx(maj_at_k([7, 3], 7, 2)) == 0.5
    assert maj_at_k([None, None], 7, 2) == 0.0
    assert maj_at_k([1, 2, 3], 7, 2) == 0.0
    assert pytest.approx(maj_at_k(["x", "y", "y", "y"], np.array([True, False, False, False]), 1)) == 0.25


def test_maj_at_k_of_many_samples_equals_a_simulation():
    rng = np.random.default_rng(1)
    answers = rng.choice(6, size=128, p=[0.28, 0.26, 0.2, 0.1, 0.1, 0.06])
    draws = 20_000
    picks = np.stack([answers[rng.permutation(128)[:32]] for _ in range(draws)])
    votes = np.stack([(picks == answer).sum(axis=1) for answer in range(6)], axis=1)
    top = votes == votes.max(axis=1, keepdims=True)
    won = top[:, 0] / top.sum(axis=1)
    assert maj_at_k(answers.tolist(), 0, 32) == pytest.approx(won.mean(), abs=4 * won.std() / np.sqrt(draws))


def test_maj_at_k_survives_a_thousand_samples():
    answers = [0] * 500 + [1] * 490 + [2] * 34
    assert 0.5 < maj_at_k(answers, 0, 64) < 0.6


def test_scores_are_per_rollout():
    p, s, n = [0.3, 0.8], [1, 4], [4, 5]
    rows = np.array([1, 0, 0, 0, 1, 1, 1, 1, 0])
    predicted = np.repeat(p, n)
    assert brier(p, s, n) == pytest.approx(np.mean((rows - predicted) ** 2))
    expected = -np.mean(rows * np.log(predicted) + (1 - rows) * np.log(1 - predicted))
    assert log_loss(p, s, n) == pytest.approx(expected)


def test_log_loss_clips_certainties_that_were_wrong():
    assert -np.log(1e-6) == pytest.approx(log_loss([0.0], [1]))
    assert pytest.approx(log_loss([1.0], [1]), abs=1e-5) == 0.0
    assert log_loss([0.0], [1], clip=1e-3) < log_loss([0.0], [1])


def test_ece_is_the_gap_of_each_bin():
    # bins [.2,.3): predicted .25, realised 0; [.7,.8): predicted .75, realised 1; each half the rollouts
    assert ece([0.25, 0.75], [0, 4], [4, 4]) == pytest.approx(0.25)
    # gaps of opposite sign within one bin cancel
    assert ece([0.25, 0.25], [0, 2], [4, 4]) == pytest.approx(0.0)
    assert ece([1.0], [0], [3]) == pytest.approx(1.0)


@pytest.mark.parametrize("score", [brier, log_loss])
def test_scores_are_proper_the_truth_is_the_best_prediction(score):
    rng = np.random.default_rng(2)
    truth = rng.random(5000)
    s = rng.binomial(8, truth)
    assert score(truth, s, 8) < score(np.clip(truth + 0.1, 0, 1), s, 8)
    assert score(truth, s, 8) < score(0.5 * truth + 0.25, s, 8)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: pass_at_k([4, 2], [1, 1], 3), r"k must be <= trials .*k=3 with 2 trials"),
        (lambda: pass_at_k(4, 5, 2), r"successes must be <= trials, got 5 of 4"),
        (lambda: pass_at_k(4, 1, 0), "k must be >= 1"),
        (lambda: pass_at_k([4, 4], [1, 1, 1], 1), "one shape"),
        (lambda: mean_at_k(4, 1, 5), "k must be <= trials"),
        (lambda: mean_at_k(0, 0), "k must be <= trials"),
        (lambda: maj_at_k([1, 2], 1, 3), r"k must be in \[1, 2\], got 3"),
        (lambda: maj_at_k([1, 1], [True, False], 1), "answer 1 both right and wrong"),
        (lambda: maj_at_k([1, 1], [True], 1), "one mark per answer"),
        (lambda: brier([1.5], [1]), "predicted must be a probability"),
        (lambda: log_loss([0.5], [0], [0]), "trials must sum to at least 1"),
        (lambda: ece([0.5], [1], [1], bins=0), "bins must be >= 1"),
    ],
)
def test_bad_arguments_are_refused_by_name(call, message):
    with pytest.raises(ArgumentError, match=message):
        call()
