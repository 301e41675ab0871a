"""What is drawn from the record: without replacement within a visit, and what beyond it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from neyman.replay._draws import Draws
from replay.records import build_trace


def test_successes_among_the_first_draws_are_hypergeometric(make_trace):
    # 4,000 visits of 3 successes in 8 trials; 5 draws each.
    draws = Draws(make_trace([[(3, 8)]] * 4000), seed=1)
    wins = np.array([sum(draws.take(visit, 5)[0]) for visit in range(4000)])
    expected = stats.hypergeom(8, 3, 5).pmf(np.arange(4)) * 4000
    assert stats.chisquare(np.bincount(wins, minlength=4), expected).pvalue > 1e-3


def test_every_order_of_a_visit_is_as_likely(make_trace):
    draws = Draws(make_trace([[(2, 4)]] * 6000), seed=0)
    orders = [draws.take(visit, 4)[0] for visit in range(6000)]
    counts = np.unique(orders, return_counts=True)[1]
    assert len(counts) == 6
    assert stats.chisquare(counts).pvalue > 1e-3


@given(st.lists(st.integers(0, 5), max_size=6), st.integers(0, 8), st.integers(0, 3))
def test_openings_share_the_visit_and_never_see_a_rollout_twice(asked, successes, seed):
    draws = Draws(build_trace([[(successes, 8), (1, 8)]]), seed=seed)
    seen = b""
    for count in asked:
        if len(seen) + count > 8:
            break
        seen += draws.take(0, count)[0]
        assert draws.left(0) == (successes - sum(seen), 8 - len(seen))
    assert draws.beyond == 0
    rest = draws.take(0, 8 - len(seen))[0]
    assert sum(seen) + sum(rest) == successes


def test_beyond_the_visit_outcomes_come_from_both_neighbours_and_no_further(make_trace):
    # The neighbours hold 8 of 8 and 0 of 8, the visits beyond them the opposite of what would fit.
    trace = make_trace([[(4, 8), (8, 8), (4, 8), (0, 8), (4, 8)]])
    draws = Draws(trace, seed=0)
    outcomes, _ = draws.take(2, 8 + 4000)
    assert draws.beyond == 4000
    assert sum(outcomes[:8]) == 4
    share = sum(outcomes[8:]) / 4000
    assert abs(share - 0.5) < 4 * 0.5 / np.sqrt(4000)
    first = Draws(trace, seed=0)
    assert set(first.take(0, 16)[0][8:]) == {1}  # the first visit has one neighbour


def test_drawing_beyond_a_visit_takes_nothing_from_its_neighbours(make_trace):
    draws = Draws(make_trace([[(0, 2), (1, 2)]]), seed=0)
    draws.take(0, 50)
    assert draws.left(1) == (1, 2)


def test_beyond_a_static_pool_the_same_trials_are_drawn_again(make_trace):
    draws = Draws(make_trace([[(2, 8)]]), seed=0)
    outcomes, _ = draws.take(0, 8 + 4000)
    share = sum(outcomes[8:]) / 4000
    assert abs(share - 0.25) < 4 * np.sqrt(0.25 * 0.75 / 4000)


def test_beyond_the_visit_rollouts_may_be_refused(make_trace):
    draws = Draws(make_trace([[(1, 2), (1, 2)]]), seed=0, beyond="refuse")
    assert len(draws.take(0, 5)[0]) == 2
    assert draws.take(0, 1) == (b"", [])
    assert draws.beyond == 4


def test_a_seed_fixes_the_orders_and_another_changes_them(make_trace):
    trace = make_trace([[(4, 8)]] * 20)
    orders = [[Draws(trace, seed=seed).take(v, 8)[0] for v in range(20)] for seed in (0, 0, 1)]
    assert orders[0] == orders[1]
    assert orders[0] != orders[2]


def test_recorded_rollouts_keep_their_own_tokens(make_trace):
    trace = make_trace(
        [[(2, 4)]],
        tokens=np.array([[9.0, 1.0]]),
        rollout_success=np.array([1, 0, 1, 0], dtype=np.uint8),
        rollout_tokens=np.array([10, 21, 12, 23]),
    )
    outcomes, tokens = Draws(trace, seed=0).take(0, 4)
    assert sorted(zip(outcomes, tokens, strict=True)) == [(0, 21), (0, 23), (1, 10), (1, 12)]


def test_mean_tokens_follow_the_outcome_where_only_they_are_known(make_trace):
    trace = make_trace([[(1, 3)]], tokens=np.array([[30.0, 7.0]]))
    outcomes, tokens = Draws(trace, seed=0).take(0, 3)
    assert sorted(zip(outcomes, tokens, strict=True)) == [(0, 30), (0, 30), (1, 7)]


def test_visits_of_a_million_trials_are_drawn_from_as_if_laid_out(make_trace):
    draws = Draws(make_trace([[(250_000, 1_000_000)]] * 300), seed=0)
    wins = np.array([sum(draws.take(visit, 16)[0]) for visit in range(300)])
    error = np.sqrt(16 * 0.25 * 0.75 / 300)
    assert wins.mean() == pytest.approx(4.0, abs=4 * error)
