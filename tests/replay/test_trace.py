"""A record as arrays: what fits, and what is refused."""

import numpy as np
import pytest

from neyman.errors import ArgumentError


def test_visits_without_rollouts_or_with_more_successes_than_trials_are_refused(make_trace):
    for bad in ([[(0, 0)]], [[(3, 2)]], [[(-1, 2)]], [[], [(1, 2)]]):
        with pytest.raises(ArgumentError):
            make_trace(bad)
    with pytest.raises(ArgumentError, match="nothing can be replayed"):
        make_trace([[]])


def test_spread_is_the_unbiased_variance_of_an_outcome(make_trace):
    trace = make_trace([[(2, 4)], [(0, 4)], [(1, 1)], [(3, 4)]])
    assert trace.spread.tolist() == [4 / 12, 0.0, 0.0, 3 / 12]
    # The mean over all ways to draw two trials, of whether they differ, halved: p(1-p) is half of that.
    outcomes = [1, 1, 1, 0]
    pairs = [outcomes[i] != outcomes[j] for i in range(4) for j in range(4) if i != j]
    assert trace.spread[3] == pytest.approx(np.mean(pairs) / 2)


def test_the_fingerprint_is_of_the_whole_content(make_trace):
    visits = [[(1, 2), (1, 1)]]
    known = make_trace(visits, rollout_success=np.array([1, 0, 1], dtype=np.uint8))
    other = make_trace(visits, rollout_success=np.array([0, 1, 1], dtype=np.uint8))
    assert known.fingerprint == make_trace(visits, rollout_success=known.rollout_success).fingerprint
    assert len({make_trace(visits).fingerprint, known.fingerprint, other.fingerprint}) == 3


def test_rollouts_must_be_as_many_as_trials(make_trace):
    with pytest.raises(ArgumentError, match="rollout_success must hold one entry per rollout"):
        make_trace([[(1, 2)]], rollout_success=np.zeros(3, dtype=np.uint8))


def test_one_visit_a_prompt_is_a_static_pool(make_trace):
    assert make_trace([[(1, 2)], [(0, 4)]]).is_static
    assert not make_trace([[(1, 2)], [(0, 4), (1, 4)]]).is_static
