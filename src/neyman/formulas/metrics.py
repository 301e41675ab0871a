"""Metrics of runs: pass@k, mean@k, maj@k, and the calibration of predicted success rates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from neyman import _checks
from neyman._checks import FloatP, IntP
from neyman._scipy import gammaln
from neyman.errors import ArgumentError


def pass_at_k(trials: ArrayLike, successes: ArrayLike, k: int) -> FloatP:
    """Estimate the probability that at least one of k samples is right, without bias.

    1 - C(n-c, k) / C(n, k), with c of n samples right.

    Args:
        trials: n >= k samples per prompt, any shape.
        successes: c <= n right ones, broadcast with it.
        k: samples per attempt.

    Returns:
        One estimate per prompt, in the broadcast shape; benchmarks report their mean.

    Raises:
        ArgumentError: counts out of range, or k > n, for which no unbiased estimate exists.

    Guarantee: Unbiased for independent samples; relative error about 1e-14 for all counts.
    Cost: O(size k).
    Source: Chen et al., 2021, arXiv 2107.03374.

    >>> pass_at_k([4, 4], [1, 4], 2)
    array([0.5, 1. ])
    """
    n, c = _trials_and_successes(trials, successes)
    size = _checks.integer("k", k, low=1)
    _at_most_trials(size, n)
    # log C(n-c, k) / C(n, k) as a sum of log1p: no overflow, and no cancellation where c / n is small.
    missed = np.zeros(n.shape)
    with np.errstate(divide="ignore"):
        for i in range(size):
            missed += np.log1p(-np.minimum(c / (n - i), 1.0))
    estimate: FloatP = -np.expm1(missed)
    return estimate[()]


def mean_at_k(trials: ArrayLike, successes: ArrayLike, k: int | None = None) -> FloatP:
    """Compute the expected mean accuracy of k samples: c / n for every k, with c of n samples right.

    Arguments, shapes and errors are those of `pass_at_k`. k, None for all, is only checked, since the mean of every
    subset has the same expectation.

    Cost: O(size).

    >>> mean_at_k([4, 8], [1, 4], 4)
    array([0.25, 0.5 ])
    """
    n, c = _trials_and_successes(trials, successes)
    _at_most_trials(1 if k is None else _checks.integer("k", k, low=1), n)
    return (c / n)[()]


def maj_at_k(answers: Sequence[Hashable], correct: Any, k: int) -> float:
    """Compute the probability that the majority of k of one prompt's n answers is right, ties split evenly.

    The expectation over all C(n, k) subsets, exactly: for every winning count v and every number t of answers
    that reach it, P(a right answer has v, t - 1 others have v, the rest fewer) / t.

    Args:
        answers: n >= k sampled answers, hashable; None is a sample without an answer, which does not vote.
        correct: the right answer, or one boolean per sampled answer (list or boolean array).
        k: votes.

    Returns:
        The probability; 0 where no sampled answer is right.

    Raises:
        ArgumentError: k outside [1, n], or one answer marked both right and wrong.

    Guarantee: Exact, without sampling; the order of the answers does not matter.
    Cost: O(right answers x distinct answers x k^2 log k).
    Source: Majority voting: Wang et al., 2022, arXiv 2203.11171; the closed form over subsets is ours.

    >>> round(maj_at_k(["7", "7", "3", "5"], "7", 3), 4)
    0.6667
    """
    total = len(answers)
    votes = _checks.integer("k", k, low=1, high=total)
    sizes: Counter[Hashable] = Counter(answers)
    right = _right_answers(answers, correct)
    silent = sizes.pop(None, 0)
    right.discard(None)
    # A subset of k has the law of independent draws with probability k/n, given that k are drawn: products of small
    # binomials in place of binomial coefficients that overflow.
    laws = {answer: _thinned(size, votes / total, votes) for answer, size in sizes.items()}
    whole = _thinned(total, votes / total, votes)[votes]
    quiet = _thinned(silent, votes / total, votes)
    chance = 0.0
    # Sorted, since a float sum depends on its order and that of a set on the process.
    for answer in sorted(right & set(sizes), key=repr):
        others = [law for other, law in laws.items() if other != answer]
        for lead in range(1, min(votes, sizes[answer]) + 1):
            chance += laws[answer][lead] * _lead_share(others, quiet, lead, votes - lead)
    return float(min(chance / whole, 1.0))


def brier(predicted: ArrayLike, successes: ArrayLike, trials: ArrayLike = 1) -> float:
    """Compute the mean squared error of predicted success rates per rollout.

    sum [s (1-p)^2 + (n-s) p^2] / sum n.

    Args:
        predicted: p in [0, 1], one per prompt.
        successes: s per prompt.
        trials: n per prompt.

    Returns:
        The score; lower is better.

    Raises:
        ArgumentError: an argument outside its range, or no trials at all.

    Cost: O(prompts).

    >>> brier([0.5, 1.0], [1, 2], [2, 2])
    0.125
    """
    p, s, n = _predictions(predicted, successes, trials)
    return float((s * np.square(1.0 - p) + (n - s) * np.square(p)).sum() / n.sum())


def log_loss(predicted: ArrayLike, successes: ArrayLike, trials: ArrayLike = 1, clip: float = 1e-6) -> float:
    """Compute the negative log-likelihood of the outcomes under predicted success rates, per rollout, in nats.

    -sum [s log p + (n-s) log(1-p)] / sum n, with p clipped to [clip, 1 - clip], clip in (0, .5], so that the loss of a
    certain but wrong prediction is finite. The other arguments and the errors are those of `brier`.

    Returns:
        The loss; lower is better; log 2 for the constant prediction .5.

    Cost: O(prompts).

    >>> round(log_loss([0.5, 0.5], [1, 0], [4, 4]), 4)
    0.6931
    """
    p, s, n = _predictions(predicted, successes, trials)
    edge = _checks.real("clip", clip, low=0.0, high=0.5, open_low=True)
    p = np.clip(p, edge, 1.0 - edge)
    return float(-(s * np.log(p) + (n - s) * np.log1p(-p)).sum() / n.sum())


def ece(predicted: ArrayLike, successes: ArrayLike, trials: ArrayLike = 1, bins: int = 10) -> float:
    """Compute the expected calibration error: the distance of predicted from observed rates, bin by bin.

    sum_b (N_b / N) |mean prediction - mean outcome|, over ``bins`` bins of the prediction of equal width, weighted by
    rollouts. The other arguments and the errors are those of `brier`.

    Returns:
        The error in [0, 1]; 0 is perfect. Binomial noise alone makes it positive, more so with few rollouts.

    Cost: O(prompts).

    >>> round(ece([0.2, 0.2, 0.9], [1, 1, 9], [5, 5, 10]), 12)
    0.0
    """
    p, s, n = _predictions(predicted, successes, trials)
    width = _checks.integer("bins", bins, low=1)
    # A prediction of exactly 1 belongs to the last bin.
    place = np.minimum((p * width).astype(np.int64), width - 1)
    gap = np.bincount(place, weights=n * p - s, minlength=width)
    return float(np.abs(gap).sum() / n.sum())


def _trials_and_successes(trials: ArrayLike, successes: ArrayLike) -> tuple[IntP, IntP]:
    n = _checks.int_array("trials", trials, low=0)
    c = _checks.int_array("successes", successes, low=0)
    try:
        n, c = np.broadcast_arrays(n, c)
    except ValueError as error:
        raise ArgumentError(
            f"trials and successes must have one shape, got {n.shape} and {c.shape}"
        ) from error
    bad = c > n
    if bad.any():
        raise ArgumentError(f"successes must be <= trials, got {c[bad].ravel()[0]} of {n[bad].ravel()[0]}")
    return n, c


def _at_most_trials(k: int, trials: IntP) -> None:
    if (trials < k).any():
        raise ArgumentError(
            f"k must be <= trials for every prompt, got k={k} with {trials.min()} trials; sample more, or lower k"
        )


def _predictions(predicted: ArrayLike, successes: ArrayLike, trials: ArrayLike) -> tuple[FloatP, IntP, IntP]:
    p = np.atleast_1d(_checks.rate_array("predicted", predicted))
    n, s = _trials_and_successes(trials, successes)
    try:
        p, s, n = np.broadcast_arrays(p, s, n)
    except ValueError as error:
        raise ArgumentError(
            f"predicted, successes and trials must have one shape, got {p.shape}, {s.shape} and {n.shape}"
        ) from error
    if not n.sum():
        raise ArgumentError("trials must sum to at least 1: nothing was observed, so nothing can be scored")
    return p, s, n


def _right_answers(answers: Sequence[Hashable], correct: Any) -> set[Hashable]:
    marks = correct.tolist() if isinstance(correct, np.ndarray) else correct
    if not isinstance(marks, list | tuple) or not all(isinstance(mark, bool | np.bool_) for mark in marks):
        return {correct}
    if len(marks) != len(answers):
        raise ArgumentError(f"correct must have one mark per answer ({len(answers)}), got {len(marks)}")
    right = {answer for answer, mark in zip(answers, marks, strict=True) if mark}
    wrong = {answer for answer, mark in zip(answers, marks, strict=True) if not mark}
    both = right & wrong
    if both:
        raise ArgumentError(f"correct marks the answer {min(both, key=repr)!r} both right and wrong")
    return right


def _thinned(size: int, rate: float, most: int) -> FloatP:
    """Return P(Binomial(size, rate) = j) for j = 0..most."""
    j = np.arange(most + 1)
    inside = j <= size
    low = np.minimum(j, size)
    choose = gammaln(size + 1) - gammaln(low + 1) - gammaln(size - low + 1)
    law = np.exp(choose) * rate**low * (1.0 - rate) ** (size - low)
    return np.where(inside, law, 0.0)


def _lead_share(others: list[FloatP], quiet: FloatP, lead: int, rest: int) -> float:
    """Return E[1/t; no other answer above ``lead``, ``rest`` votes among the others], t answers sharing the lead."""
    # At most rest // lead others can reach the lead, which keeps the state small.
    ties = rest // lead
    # state[t, m]: t others at the lead, m votes given out
    state = np.zeros((ties + 1, rest + 1))
    state[0] = quiet[: rest + 1]
    for law in others:
        grown = np.zeros_like(state)
        for j in range(min(lead, rest + 1)):
            grown[:, j:] += law[j] * state[:, : rest + 1 - j]
        if ties:
            grown[1:, lead:] += law[lead] * state[:-1, : rest + 1 - lead]
        state = grown
    return float((state[:, rest] / np.arange(1, ties + 2)).sum())
