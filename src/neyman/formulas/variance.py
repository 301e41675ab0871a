"""Gradient variance of one prompt in its success rate and group size, and how much one more rollout removes.

With rewards in {-1, +1}, a projected score of unit variance that is independent of the reward, and the
group's mean gradient G = (1/n) sum_j A_j Z_j, Var(G) = 4 p (1-p) f(n) for each of the estimators below.
"""

from __future__ import annotations

from typing import Final, Literal

import numpy as np
from numpy.typing import ArrayLike

from neyman import _checks
from neyman._checks import FloatP
from neyman.errors import ArgumentError

Estimator = Literal["rloo", "dr_grpo", "grpo"]
ESTIMATORS: Final = ("rloo", "dr_grpo", "grpo")

#: Smallest group size from which the variance is discretely convex and every group carries gradient.
MINIMUM_GROUP_SIZE: Final = {"rloo": 2, "dr_grpo": 3, "grpo": 3}

#: Why smaller groups are refused, as the end of an error message.
MINIMUM_REASON: Final = {
    "rloo": "a single rollout has no leave-one-out baseline",
    "dr_grpo": (
        "(n-1)/n^2 scores n = 1 as zero variance only because it carries no gradient, and is not convex "
        "below 3, so an optimiser would starve prompts on purpose"
    ),
    "grpo": (
        "mix_n(p)/n scores n = 1 as zero variance only because it carries no gradient, and is the same at "
        "2 and 3, so an optimiser would starve prompts on purpose"
    ),
}

# Below this n*r the closed form of P(Binomial(n+1, r) >= 2) cancels; six terms of its series are exact there.
_SERIES_BELOW: Final = 1e-2
_SERIES_TERMS: Final = 6

# Mantissa bits dropped when gains are compared, so that ties broken by rounding alone stay ties.
_NOISE_BITS: Final = 12


def mixed_probability(success_rate: ArrayLike, n: ArrayLike) -> FloatP:
    """Compute the probability that a group of n rollouts is mixed: at least one success and one failure.

    mix_n(p) = 1 - p^n - (1-p)^n.

    Args:
        success_rate: p in [0, 1], any shape.
        n: group sizes >= 0, broadcast against ``success_rate``.

    Returns:
        The probabilities, in the broadcast shape; a scalar for scalars.

    Raises:
        ArgumentError: a rate outside [0, 1] or a group size that is not a whole number >= 0.

    Guarantee: Relative error of a few ulp also for rates near 0 and 1. Concave in n.
    Cost: O(size).

    >>> mixed_probability([0.5, 0.1], 2)
    array([0.5 , 0.18])
    """
    p = _checks.rate_array("success_rate", success_rate)
    size = _checks.int_array("n", n, low=0)
    rare = np.minimum(p, 1.0 - p)
    # By the rarer outcome, whose log1p does not cancel. n < 2 is exactly 0, where the closed form leaves noise.
    mixed = -np.expm1(size * np.log1p(-rare)) - rare**size
    return np.where(size < 2, 0.0, np.maximum(mixed, 0.0))[()]


def gradient_variance(success_rate: ArrayLike, n: ArrayLike, estimator: str = "rloo") -> FloatP:
    """Compute the variance of one prompt's group gradient, per unit variance of the projected score.

    Var(G) = 4 p (1-p) f(n), with f(n) = 1/(n-1) for RLOO, (n-1)/n^2 for Dr. GRPO, and
    mix_n(p) / (4 p (1-p) n) for GRPO with the population standard deviation, so that Var(G) = mix_n(p)/n.

    Args:
        success_rate: p in [0, 1], any shape.
        n: group sizes, broadcast against ``success_rate``; >= 2 for RLOO, >= 1 for the others.
        estimator: "rloo", "dr_grpo" or "grpo".

    Returns:
        The variances, in the broadcast shape; a scalar for scalars. A group of one has an advantage of 0
        under Dr. GRPO and GRPO, hence variance 0, but no gradient either: ``allocate`` refuses such groups.

    Raises:
        ArgumentError: a rate outside [0, 1], an unknown estimator, or n = 1 for RLOO, whose leave-one-out
            baseline does not exist.

    Guarantee: Exact for rewards in {-1, +1} that are independent of the score. With corr(R, Z) = .5 the true variance
    is up to 30 % above it at p = .2, n = 4, 2.2 times at p = .1 and .87 times at p = .5. Trainers whose GRPO uses the
    sample standard deviation have mix_n(p) (n-1)/n^2 instead; rewards in {0, 1} divide the RLOO and Dr. GRPO values by
    4 and leave GRPO's.
    Cost: O(size).
    Source: VIP, arXiv 2602.01601 (RLOO, Dr. GRPO); the GRPO form is derived here and checked by simulation.

    >>> gradient_variance(0.5, [2, 3, 5])
    array([1.  , 0.5 , 0.25])
    >>> gradient_variance(0.5, [1, 2, 4], estimator="dr_grpo")
    array([0.    , 0.25  , 0.1875])
    """
    kind = _checks.choice("estimator", estimator, ESTIMATORS)
    p = _checks.rate_array("success_rate", success_rate)
    size = _checks.int_array("n", n, low=1)
    if kind == "rloo":
        if (size < 2).any():
            raise ArgumentError(f"n must be >= 2 for estimator='rloo', got 1: {MINIMUM_REASON['rloo']}")
        return (4.0 * p * (1.0 - p) / (size - 1))[()]
    if kind == "dr_grpo":
        return (4.0 * p * (1.0 - p) * ((size - 1) / size**2))[()]
    return (mixed_probability(p, size) / size)[()]


def dead_share(success_rate: ArrayLike, n: ArrayLike) -> FloatP:
    """Predict the share of zero-variance groups: 1 - mix_n(p), averaged over the prompts.

    Rollouts of dead (zero-variance) groups cost as much as others and carry no signal, so compute their share before
    a run. Groups of twice the size are dead less often, but a budget buys half as many of them.

    Args:
        success_rate: p of each prompt, in [0, 1], scalar or shape (P,).
        n: group sizes >= 0, any shape.

    Returns:
        The shares, in the shape of ``n``; a scalar for a scalar.

    Raises:
        ArgumentError: no prompt, a rate outside [0, 1] or more than one dimension of them, a size below 0 or not whole.

    Guarantee: Exact for rollouts that are independent given p; relative error about 1e-12 where it is not tiny.
    Cost: O(P size(n)).

    >>> dead_share(0.18, [2, 4, 8, 16]).round(2).tolist()
    [0.7, 0.45, 0.2, 0.04]
    """
    rates = np.atleast_1d(_checks.rate_array("success_rate", success_rate))
    if rates.ndim != 1 or not rates.size:
        raise ArgumentError(f"success_rate must be one rate or one per prompt, got shape {rates.shape}")
    size = _checks.int_array("n", n, low=0)
    return np.asarray(1.0 - mixed_probability(rates, size[..., None]).mean(axis=-1))[()]


def quantise(gain: FloatP) -> FloatP:
    """Round non-negative numbers to 40 bits of mantissa (relative 5e-13), so that rounding noise breaks no tie.

    Rounding is monotone, so that larger differences keep their order and concave sequences stay concave.
    """
    # On the bits of the float: a division by a power of ten would round once more and could break monotonicity.
    half, mask = np.int64(1 << (_NOISE_BITS - 1)), np.int64(-(1 << _NOISE_BITS))
    return ((gain.view(np.int64) + half) & mask).view(np.float64)


def rloo_gain(spread: FloatP, n: FloatP) -> FloatP:
    """Compute the fall of RLOO's a f(n) from n to n+1 rollouts: a / ((n-1) n)."""
    return quantise(spread / ((n - 1.0) * n))


def dr_grpo_gain(spread: FloatP, n: FloatP) -> FloatP:
    """Compute the fall of Dr. GRPO's a f(n) from n to n+1 rollouts: a (n^2 - n - 1) / (n (n+1))^2."""
    return quantise(spread * ((n * n - n - 1.0) / np.square(n * (n + 1.0))))


def grpo_gain(rare: FloatP, n: FloatP) -> FloatP:
    """Compute the fall of GRPO's mix_n/n from n to n+1 rollouts, with ``rare`` = min(p, 1-p).

    mix_n/n - mix_{n+1}/(n+1) = P(2 <= S <= n-1) / (n (n+1)) with S ~ Binomial(n+1, p): never negative, and
    free of the cancellation of the left-hand side at small rates.
    """
    common = 1.0 - rare
    expected = n * rare
    log_common = np.log1p(-rare)
    two_or_more = -np.expm1(n * log_common + np.log1p(expected))
    small = expected < _SERIES_BELOW
    if small.any():
        two_or_more[small] = _two_or_more(rare[small], n[small])
    # P(S >= n): all but at most one of n+1 succeed; r = 0 gives log 0 = -inf and exp(-inf) = 0, as it should.
    with np.errstate(divide="ignore", under="ignore"):
        nearly_all = np.exp(n * np.log(rare)) * (1.0 + n * common)
    gain = np.maximum(two_or_more - nearly_all, 0.0) / (n * (n + 1.0))
    # The third and the fourth step are equal, p^2 (1-p)^2 / 2: computed alike, they tie exactly.
    return quantise(np.where(n <= 4.0, 0.5 * np.square(rare * common), gain))


def _two_or_more(rare: FloatP, n: FloatP) -> FloatP:
    """Return P(Binomial(n+1, r) >= 2) for small n r, summed from its largest term."""
    odds = rare / (1.0 - rare)
    series = np.ones_like(rare)
    for j in range(_SERIES_TERMS, 0, -1):
        series = 1.0 + series * odds * np.maximum(n - j, 0.0) / (j + 2)
    return 0.5 * n * (n + 1.0) * np.square(rare) * np.exp((n - 1.0) * np.log1p(-rare)) * series
