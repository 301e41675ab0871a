"""Beta distributions by mean and variance, their draws, and the chance of a mixed group under them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from neyman._checks import FloatP, nonnegative_array, rate_array, same_length, sizes_per_prompt
from neyman.beliefs._protocol import Belief
from neyman.randomness import PromptId

# Strength (a + b) is kept inside these bounds: outside, a Beta is a coin or a point to double precision.
_STRENGTH_LOW, _STRENGTH_HIGH = 1e-6, 1e12


def match_beta(mean: ArrayLike, variance: ArrayLike) -> tuple[FloatP, FloatP]:
    """Return the Beta(a, b) with given means and variances.

    ``a + b = m (1 - m) / v - 1``, ``a = m (a + b)``.

    Args:
        mean: means in [0, 1], shape (P,).
        variance: variances, shape (P,); clipped below ``m (1 - m)``, the largest a rate can have.

    Returns:
        ``a`` and ``b``, each float64 of shape (P,), both positive unless the mean is exactly 0 or 1.

    Raises:
        ArgumentError: a mean outside [0, 1], a negative or infinite variance, or unequal lengths.

    >>> a, b = match_beta([0.5, 0.25], [1 / 12, 0.0375])
    >>> a.round(6).tolist(), b.round(6).tolist()
    ([1.0, 1.0], [1.0, 3.0])
    """
    m = rate_array("mean", mean, ndim=1)
    v = nonnegative_array("variance", variance, ndim=1)
    same_length(mean=m, variance=v)
    spread = m * (1.0 - m)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        strength = np.where(v > 0.0, spread / np.where(v > 0.0, v, 1.0) - 1.0, _STRENGTH_HIGH)
    strength = np.clip(strength, _STRENGTH_LOW, _STRENGTH_HIGH)
    return m * strength, (1.0 - m) * strength


def beta_parameters(belief: Belief, ids: Sequence[PromptId]) -> tuple[FloatP, FloatP]:
    """Return a moment-matched Beta(a, b) for each of P prompts under any belief, e.g. as SARA's prior.

    Returns:
        ``a`` and ``b``, each float64 of shape (P,).

    >>> from neyman.beliefs import Counts
    >>> belief = Counts(prior=(1.0, 1.0))
    >>> belief.update(["x"], [3], [4])
    >>> [array.round(6).tolist() for array in beta_parameters(belief, ["x", "new"])]
    [[4.0, 1.0], [2.0, 1.0]]
    """
    return match_beta(*belief.predict(ids))


def beta_mixed_probability(a: FloatP, b: FloatP, group_size: ArrayLike) -> FloatP:
    """Return the probability that a group of n rollouts is mixed under Beta(a, b), all of shape (P,).

    ``1 - prod_{j<n} (b+j)/(a+b+j) - prod_{j<n} (a+j)/(a+b+j)``; one n for all prompts, or one for each.

    Cost: O(P max n), no array larger than P.

    >>> beta_mixed_probability(np.array([1.0]), np.array([1.0]), 8).round(6).tolist()
    [0.777778]
    """
    # The two rising factorials by one factor at a time: exact to rounding, where differences of log-gammas cancel.
    sizes = sizes_per_prompt("group_size", group_size, len(a))
    all_fail = np.ones_like(a)
    all_success = np.ones_like(a)
    for j in range(int(sizes.max(initial=0))):
        grows = sizes > j
        total = a + b + j
        all_fail = np.where(grows, all_fail * ((b + j) / total), all_fail)
        all_success = np.where(grows, all_success * ((a + j) / total), all_success)
    return np.clip(1.0 - all_fail - all_success, 0.0, 1.0)


def beta_sample(a: FloatP, b: FloatP, rng: np.random.Generator) -> FloatP:
    """Return one draw of Beta(a, b) per prompt; a parameter of exactly 0 gives the point 0 or 1."""
    # NumPy refuses parameters of 0; the smallest normal float draws the same point.
    tiny = np.finfo(np.float64).tiny
    return np.asarray(rng.beta(np.maximum(a, tiny), np.maximum(b, tiny)), dtype=np.float64)


def expected_spread(mean: FloatP, variance: FloatP) -> FloatP:
    """Return E[p(1-p)] = m(1-m) - Var(p), clipped at 0, below which rounding may take it."""
    return np.maximum(mean * (1.0 - mean) - variance, 0.0)
