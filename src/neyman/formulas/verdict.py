"""Early verdicts on groups: the chance of a mixed group, the point to give up, its cost and the signal it keeps.

A group of k rollouts is effective when it is mixed: at least one success and one failure. Only a pure prefix
(all failures, or all successes) leaves that open.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from neyman import _checks
from neyman._checks import FloatP
from neyman._scipy import gammaln
from neyman.errors import ArgumentError

Prior = tuple[ArrayLike, ArrayLike]
Abandon = int | tuple[int, int]

# Products of at most so many ratios are summed factor by factor; longer ones go by expansions of log-gamma.
_DIRECT_FACTORS: Final = 64
# Arrays up to this size have all their factors laid out at once.
_AT_ONCE: Final = 4096
# From here on the asymptotic series of log-gamma, to x^-7, is exact in float64.
_ASYMPTOTIC_FROM: Final = 64.0
# Chances closer to the threshold than this are computed again in exact fractions, up to this group size.
_TIE: Final = 1e-9
_EXACT_UP_TO: Final = 4096


def effective_probability(
    successes: ArrayLike, trials: ArrayLike, group_size: ArrayLike, prior: Prior = (1.0, 1.0)
) -> FloatP:
    """Compute the probability that a group of k will be mixed, given s successes in its first n rollouts.

    1 for a mixed prefix. With p ~ Beta(a, b): 1 - prod_{j=n}^{k-1} (b+j)/(a+b+j) after n failures,
    1 - prod_{j=n}^{k-1} (a+j)/(a+b+j) after n successes, 1 - [B(a, b+k) + B(a+k, b)]/B(a, b) before any.

    Args:
        successes: s, any shape.
        trials: n >= s, broadcast with it.
        group_size: k >= n.
        prior: Beta parameters (a, b) > 0 of the success rate, scalars or arrays that broadcast, one per prompt.

    Returns:
        Probabilities in the broadcast shape; a scalar for scalars.

    Raises:
        ArgumentError: not 0 <= s <= n <= k, or a prior parameter that is not > 0.

    Guarantee: Exact under the prior, for rollouts that are independent given p. Relative error about 1e-12; for the
    uniform prior the correctly rounded quotient (k-n)/(k+1), or (k-1)/(k+1) before any rollout.
    Cost: O(size).
    Source: SARA, arXiv 2607.26253 (uniform prior); general Beta priors derived here.

    >>> effective_probability([0, 1, 4], [4, 4, 4], 8)
    array([0.44444444, 1.        , 0.44444444])
    """
    s = _checks.int_array("successes", successes, low=0)
    n = _checks.int_array("trials", trials, low=0)
    k = _checks.int_array("group_size", group_size, low=1)
    a, b = _prior(prior)
    s, n, k, a, b = np.broadcast_arrays(s, n, k, a, b)
    bad = (s > n) | (n > k)
    if bad.any():
        raise ArgumentError(
            "successes, trials and group_size must satisfy 0 <= successes <= trials <= group_size, got "
            f"{s[bad][0]}, {n[bad][0]} and {k[bad][0]}"
        )
    uniform = (a == 1.0) & (b == 1.0)
    quotient = (k - np.maximum(n, 1)) / (k + 1.0)
    if uniform.all():
        return np.where((s > 0) & (s < n), 1.0, quotient)[()]
    # The logarithms of P(the rest fails too) and P(the rest succeeds too): expm1 keeps small chances exact.
    fails, wins = _log_ratio(a, b, n, k), _log_ratio(b, a, n, k)
    chance = -np.expm1(np.where(s == 0, fails, wins))
    # Before any rollout s = 0 stands for both pure ends, and both are subtracted.
    chance = np.where(n == 0, chance - np.exp(wins), chance)
    chance = np.where(uniform, quotient, chance)
    return np.where((s > 0) & (s < n), 1.0, np.maximum(chance, 0.0))[()]


def _prior(prior: Prior) -> tuple[FloatP, FloatP]:
    try:
        first, second = prior
    except (TypeError, ValueError) as error:
        raise ArgumentError(f"prior must be a pair (a, b) of Beta parameters, got {prior!r:.80}") from error
    pair = tuple(_checks.nonnegative_array("prior", side) for side in (first, second))
    if any((side <= 0.0).any() for side in pair):
        raise ArgumentError("prior must hold Beta parameters > 0, got 0; the uniform prior is (1.0, 1.0)")
    return pair[0], pair[1]


def _log_ratio(a: FloatP, b: FloatP, n: NDArray[np.int64], k: NDArray[np.int64]) -> FloatP:
    """Return log prod_{j=n}^{k-1} (b+j)/(a+b+j), with a small relative error for any k and k - n."""
    # (b+j)/(a+b+j) = 1 - a/(a+b+j), so that log1p is exact where the ratio is near 1.
    factors = k - n
    direct = min(int(factors.max(initial=0)), _DIRECT_FACTORS)
    total: FloatP = np.zeros(factors.shape)
    if factors.size <= _AT_ONCE:
        i = np.arange(direct)
        terms = np.log1p(-a[..., None] / ((a + b + n)[..., None] + i))
        total = np.where(i < factors[..., None], terms, 0.0).sum(axis=-1)
    else:  # factor by factor, so that no temporary is larger than the result
        for step in range(direct):
            total = total + np.where(step < factors, np.log1p(-a / (a + b + n + step)), 0.0)
    far = factors > _DIRECT_FACTORS
    if far.any():
        total = np.where(far, _log_rise(b + n, a) - _log_rise(b + k, a), total)
    return total


def _log_rise(x: FloatP, step: FloatP) -> FloatP:
    """Return log Gamma(x + step) - log Gamma(x), without cancelling two large logarithms."""

    def tail(y: FloatP) -> FloatP:
        inverse = 1.0 / np.maximum(y, 1.0)
        square = np.square(inverse)
        return inverse * (1 / 12 - square * (1 / 360 - square * (1 / 1260 - square / 1680)))

    large = np.maximum(x, _ASYMPTOTIC_FROM)
    series = (large - 0.5) * np.log1p(step / large) + step * np.log(large + step) - step
    return np.where(
        x >= _ASYMPTOTIC_FROM, series + tail(large + step) - tail(large), gammaln(x + step) - gammaln(x)
    )


def abandon_index(
    group_size: int, threshold: float, prior: tuple[float, float] = (1.0, 1.0)
) -> tuple[int, int]:
    """Find the number of pure rollouts after which a group is given up.

    The least n >= 1 with p_eff(n) < threshold, where p_eff is ``effective_probability`` after n failures, or
    after n successes.

    Args:
        group_size: k, the size of a complete group.
        threshold: tau in [0, 1]; a chance equal to it continues.
        prior: (a, b) > 0 of the Beta prior on the success rate.

    Returns:
        (index after failures only, index after successes only), each in [1, k]. k means never, since the group is
        complete by then. A U-shaped prior can give 1; rules impose a minimal probe of their own.

    Raises:
        ArgumentError: an argument outside its range.

    Guarantee: Ties are exact. For the uniform prior correctly rounded quotients are compared, so that a chance equal to
    a decimal threshold is a tie (tau = .4, k = 4 gives 3). For other priors and k <= 4096 chances near the threshold
    are computed in exact fractions and rounded once.
    Cost: O(log k) evaluations.
    Source: SARA, arXiv 2607.26253.

    >>> abandon_index(8, 0.45)
    (4, 4)
    >>> abandon_index(8, 0.45, prior=(0.5, 2.0))
    (2, 6)
    """
    k = _checks.integer("group_size", group_size, low=1)
    tau = _checks.real("threshold", threshold, low=0.0, high=1.0)
    sides = _prior(prior)
    a, b = (_checks.real("prior", side, low=0.0, open_low=True) for side in sides)
    return _index(k, tau, a, b), _index(k, tau, b, a)


def _index(k: int, tau: float, a: float, b: float) -> int:
    """Return the index by bisection, since the chance of a mixed group falls with every pure rollout."""
    low, high = 1, k
    while low < high:
        middle = (low + high) // 2
        if _pure_chance(middle, k, tau, a, b) < tau:
            high = middle
        else:
            low = middle + 1
    return low


def _pure_chance(n: int, k: int, tau: float, a: float, b: float) -> float:
    """Return the chance after n failures, computed in fractions where it is within rounding of ``tau``."""
    chance = float(effective_probability(0, n, k, (a, b)))
    if (a == 1.0 and b == 1.0) or k > _EXACT_UP_TO or abs(chance - tau) > _TIE:
        return chance
    # Floats are binary fractions, so that this is exact for the prior as given.
    left, both = Fraction(b), Fraction(a) + Fraction(b)
    numerator, denominator = Fraction(1), Fraction(1)
    for j in range(n, k):
        numerator, denominator = numerator * (left + j), denominator * (both + j)
    return float(1 - numerator / denominator)


def _indices(abandon: Abandon, group_size: int) -> tuple[int, int]:
    pair = abandon if isinstance(abandon, tuple) else (abandon, abandon)
    if len(pair) != 2:
        raise ArgumentError(
            f"abandon must be one index, or the pair that abandon_index returns, got {abandon!r}"
        )
    first, second = (_checks.integer("abandon", index, low=1, high=group_size) for index in pair)
    return first, second


def _pure_moments(
    success_rate: ArrayLike | None, prior: Prior | None, fails: int, wins: int
) -> tuple[FloatP, FloatP]:
    """Return E[(1-p)^fails] and E[p^wins]: per rate where rates are given, under the Beta prior otherwise."""
    if (success_rate is None) == (prior is None):
        raise ArgumentError("give exactly one of success_rate and prior")
    if success_rate is not None:
        p = _checks.rate_array("success_rate", success_rate)
        return (1.0 - p) ** fails, p**wins
    assert prior is not None
    a, b = _prior(prior)
    zero = np.zeros(np.broadcast(a, b).shape, dtype=np.int64)
    return np.exp(_log_ratio(a, b, zero, zero + fails)), np.exp(_log_ratio(b, a, zero, zero + wins))


def expected_rollouts(
    group_size: int, abandon: Abandon, *, success_rate: ArrayLike | None = None, prior: Prior | None = None
) -> FloatP:
    """Compute the expected rollouts of a group that is completed to k once mixed, and given up while pure.

    k - (k-n0) E[(1-p)^n0] - (k-n1) E[p^n1], with n0 and n1 the abandon indices after failures and successes only.

    Args:
        group_size: k.
        abandon: the index, or the pair that ``abandon_index`` returns.
        success_rate: rates, any shape; the expectation is then per rate, and a pool's is their mean.
        prior: Beta parameters in place of rates.

    Returns:
        Expected rollouts, in the shape of the rates or of the prior.

    Raises:
        ArgumentError: an argument outside its range, or not exactly one of ``success_rate`` and ``prior``.

    Guarantee: Exact for independent rollouts; always at most k.
    Cost: O(size).
    Source: SARA, arXiv 2607.26253; the two-index form derived here.

    >>> round(float(expected_rollouts(8, 4, prior=(1.0, 1.0))), 6)
    6.4
    """
    k = _checks.integer("group_size", group_size, low=1)
    fails, wins = _indices(abandon, k)
    all_fail, all_success = _pure_moments(success_rate, prior, fails, wins)
    return (k - (k - fails) * all_fail - (k - wins) * all_success)[()]


@dataclass(frozen=True, slots=True, kw_only=True)
class YieldCheck:
    """Comparison of early verdicts with full groups, by effective groups per rollout.

    Args:
        holds: whether early verdicts yield more, ``odds_ratio >= required``.
        odds_ratio: odds(f') / odds(f), with the chances to be mixed f' of the probe and f of the whole group.
        required: n/k, with n the mean length of an abandoned probe.
        relative_yield: effective groups per rollout, as a multiple of dynamic sampling's.
        mixed_by_probe: f'.
        mixed_by_group: f.
    """

    holds: bool
    odds_ratio: float
    required: float
    relative_yield: float
    mixed_by_probe: float
    mixed_by_group: float


def yield_condition(
    group_size: int, abandon: Abandon, *, success_rate: ArrayLike | None = None, prior: Prior | None = None
) -> YieldCheck:
    """Check whether early verdicts buy more effective groups than full groups at the same budget.

    odds(f') / odds(f) >= n / k, with f = P(mixed by k) and f' = P(mixed by the abandon index n); equivalent to
    f' / E[rollouts] >= f / k. Arguments and errors are those of `expected_rollouts`, here with k >= 2, and with the
    rates of the prompts that are probed, shape (prompts,), or scalar Beta parameters.

    Returns:
        A ``YieldCheck``. Where no group can be mixed (f = 0) it does not hold, and the ratios are NaN.

    Guarantee: Exact for independent rollouts. The condition fails, and early verdicts lose, for the uniform prior and
    whenever all prompts share one success rate. It holds for U-shaped difficulty, Beta(a, a) with a <= .644 at k = 8, n
    = 4.
    Cost: O(prompts).
    Source: Derived here; SARA, arXiv 2607.26253, claims the gain without a condition.

    >>> yield_condition(8, 4, prior=(1.0, 1.0)).holds, yield_condition(8, 4, prior=(0.5, 0.5)).holds
    (False, True)
    """
    k = _checks.integer("group_size", group_size, low=2)
    fails, wins = _indices(abandon, k)
    lost, won = (float(np.mean(m)) for m in _pure_moments(success_rate, prior, fails, wins))
    full = sum(float(np.mean(m)) for m in _pure_moments(success_rate, prior, k, k))
    probe, group = max(1.0 - lost - won, 0.0), max(1.0 - full, 0.0)
    # Without a pure prefix nothing is ever abandoned, and the two ways are the same.
    required = (fails * lost + wins * won) / ((lost + won) * k) if lost + won > 0.0 else 1.0
    odds_ratio = relative_yield = float("nan")  # which compares as False, so that nothing holds
    if group > 0.0:
        # odds(f')/odds(f), arranged so that groups that are mixed for certain (full = 0) give the limit.
        odds_ratio = probe * full / (group * (lost + won)) if lost + won > 0.0 else 1.0
        cost = k - (k - fails) * lost - (k - wins) * won
        relative_yield = (probe / cost) / (group / k)
    return YieldCheck(
        holds=odds_ratio >= required,
        odds_ratio=odds_ratio,
        required=required,
        relative_yield=relative_yield,
        mixed_by_probe=probe,
        mixed_by_group=group,
    )


def signal_kept(success_rate: ArrayLike, group_size: int, abandon: Abandon) -> FloatP:
    """Compute the share of the signal E[s (k-s)] that early verdicts keep.

    E[s (k-s); mixed by the abandon index] / E[s (k-s)], with s ~ Binomial(k, p). With m = k - n rollouts left,
    1 - [q^(n-1) m (k - q - m p) + p^(n-1) m (k - p - m q)] / (k (k-1)), q = 1 - p.

    Args:
        success_rate: p in [0, 1], any shape; at 0 and 1 the shares are limits.
        group_size: k >= 2.
        abandon: the index n, or the pair that ``abandon_index`` returns.

    Returns:
        Shares in [0, 1], in the shape of the rates. Dynamic sampling keeps 1.

    Raises:
        ArgumentError: an argument outside its range.

    Guarantee: Exact for independent rollouts.
    Cost: O(size).
    Source: Derived here.

    >>> signal_kept([0.05, 0.5], 8, 4).round(2)
    array([0.58, 0.9 ])
    """
    p = _checks.rate_array("success_rate", success_rate)
    k = _checks.integer("group_size", group_size, low=2)
    fails, wins = _indices(abandon, k)
    # A group is lost whose first n are pure: with m = k - n to come, E[s (k-s); n failures] = q^n E[S (k-S)] with
    # S ~ Binomial(m, p), that is p q^n m (k - q - m p), over E[s (k-s)] = k (k-1) p q; successes likewise.
    q = 1.0 - p
    late, later = k - fails, k - wins
    lost = q ** (fails - 1) * late * (k - q - late * p) + p ** (wins - 1) * later * (k - p - later * q)
    return np.clip(1.0 - lost / (k * (k - 1)), 0.0, 1.0)[()]
