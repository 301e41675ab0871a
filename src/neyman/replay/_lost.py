"""The expected outcome of an abandoned group, given its prefix and the rest of its visit."""

from __future__ import annotations

from math import comb


def expected_rest(
    successes: int, trials: int, group_size: int, left: tuple[int, int], rate: float
) -> tuple[float, float]:
    """Return E[s (k - s)] and the chance of being mixed, had the group been completed to k.

    The rest of the visit is drawn without replacement; where it has fewer rollouts than the group needs, the others
    succeed with probability ``rate``.

    Args:
        successes: of the prefix.
        trials: of the prefix, at most k.
        group_size: k.
        left: (successes, trials) of the visit that were not drawn.
        rate: the visit's success rate.

    >>> expected_rest(0, 4, 8, (1, 4), 0.125)
    (7.0, 1.0)
    >>> expected_rest(0, 4, 8, (0, 4), 0.0)
    (0.0, 0.0)
    """
    k, more = group_size, group_size - trials
    there = min(more, left[1])
    beyond = more - there
    share = left[0] / left[1] if left[1] else 0.0
    mean = successes + there * share + beyond * rate
    variance = beyond * rate * (1.0 - rate)
    if left[1] > 1:
        variance += there * share * (1.0 - share) * (left[1] - there) / (left[1] - 1)
    signal = mean * (k - mean) - variance
    pure = 0.0
    if successes == 0:
        pure += comb(left[1] - left[0], there) / comb(left[1], there) * (1.0 - rate) ** beyond
    if successes == trials:
        pure += comb(left[0], there) / comb(left[1], there) * rate**beyond
    if 0 < successes < trials:
        return signal, 1.0
    return max(signal, 0.0), min(max(1.0 - pure, 0.0), 1.0)
