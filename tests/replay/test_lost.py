"""What a group that was given up would have come to, against every way to complete it."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from neyman.replay._lost import expected_rest


@given(
    st.integers(2, 6).flatmap(
        lambda k: st.tuples(
            st.just(k), st.integers(1, k), st.booleans(), st.integers(0, 6), st.integers(0, 6)
        )
    )
)
def test_it_is_the_mean_over_every_completion_from_what_is_left(case):
    k, trials, wins, left_wins, left_losses = case
    more = k - trials
    if left_wins + left_losses < more:
        return
    s0 = trials if wins else 0
    rest = [1] * left_wins + [0] * left_losses
    ends = [s0 + sum(chosen) for chosen in combinations(rest, more)]
    signal, mixed = expected_rest(s0, trials, k, (left_wins, len(rest)), 0.5)
    assert signal == pytest.approx(np.mean([s * (k - s) for s in ends]), abs=1e-9)
    assert mixed == pytest.approx(np.mean([0 < s < k for s in ends]), abs=1e-9)


def test_what_the_visit_lacks_succeeds_at_its_rate():
    # Two are left, both failures; the other two of the group succeed with .25 each.
    signal, mixed = expected_rest(0, 2, 6, (0, 2), 0.25)
    chances = {0: 0.75**2, 1: 2 * 0.25 * 0.75, 2: 0.25**2}
    assert signal == pytest.approx(sum(p * s * (6 - s) for s, p in chances.items()))
    assert mixed == pytest.approx(1 - 0.75**2)
