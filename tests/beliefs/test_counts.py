import numpy as np
import pytest

from neyman.beliefs import Counts
from neyman.errors import ArgumentError


def test_discount_is_taken_once_per_visit_by_hand():
    belief = Counts(discount=0.5, fade=1.0, prior=(1.0, 1.0))
    belief.update(["a"], [8], [8])
    belief.update(["a"], [0], [4])  # the same step: nothing is discounted
    assert np.concatenate(belief.evidence(["a"])).tolist() == [8.0, 12.0]
    belief.advance()
    assert np.concatenate(belief.evidence(["a"])).tolist() == [8.0, 12.0]
    belief.update(["a"], [1], [2])
    assert np.concatenate(belief.evidence(["a"])).tolist() == [5.0, 8.0]
    assert belief.predict(["a"])[0].tolist() == [0.6]


def test_fading_is_taken_per_step_whoever_is_observed():
    belief = Counts(discount=1.0, fade=0.5, prior=(1.0, 1.0))
    belief.update(["a", "b"], [8, 4], [8, 8])
    belief.advance(2)
    belief.update(["b"], [1], [1])
    assert np.array(belief.evidence(["a", "b"])).tolist() == [[2.0, 2.0], [2.0, 3.0]]


def test_no_fading_is_left_of_a_belief_per_step():
    belief = Counts(prior=(1.0, 1.0), fade=0.0)
    belief.update(["a"], [8], [8])
    assert belief.predict(["a"])[0].tolist() == [0.9]
    belief.advance()
    assert belief.predict(["a"])[0].tolist() == [0.5]
    belief.update(["a"], [0], [2])
    assert belief.predict(["a"])[0].tolist() == [0.25]


def test_cumulative_counts_are_the_conjugate_posterior():
    belief = Counts(discount=1.0, fade=1.0, prior=(1.0, 1.0))
    for s in (3, 5, 0, 8):
        belief.update(["a"], [s], [8])
        belief.advance(3)
    mean, variance = belief.predict(["a"])
    a, b = 1 + 16, 1 + 16
    assert mean[0] == a / (a + b)
    assert variance[0] == pytest.approx(a * b / ((a + b) ** 2 * (a + b + 1)))


def test_the_pool_prior_is_the_running_mean_with_its_strength():
    belief = Counts(strength=4.0)
    assert belief.prior() == (2.0, 2.0)
    belief.update(["a", "b"], [2, 1], [8, 7])
    mean = 3.5 / 16.0
    assert belief.prior() == pytest.approx((4 * mean, 4 * (1 - mean)))
    assert belief.predict(["new"])[0][0] == pytest.approx(mean)


def test_a_registered_prompt_is_not_in_the_state_before_it_is_observed():
    belief = Counts()
    belief.register(["a", "b"], [[1.0], [2.0]])
    assert belief.state_dict()["ids"] == []


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"discount": 1.1}, "discount"),
        ({"discount": -0.1}, "discount"),
        ({"fade": np.nan}, "fade"),
        ({"strength": 0.0}, "strength"),
        ({"prior": "mean"}, "prior"),
        ({"prior": (1.0, 0.0)}, "prior"),
        ({"prior": (1.0, 1.0, 1.0)}, "prior"),
    ],
)
def test_settings_out_of_range_are_refused_by_name(options, word):
    with pytest.raises(ArgumentError, match=word):
        Counts(**options)


def test_a_million_prompts_are_compact_and_advance_touches_none():
    belief = Counts()
    ids = np.arange(1_000_000)
    belief.update(ids, ids % 9, np.full(len(ids), 8))
    belief.advance(10**12)
    mean, variance = belief.predict([0, 999_999])
    assert np.all(np.isfinite([mean, variance]))
    packed = belief.state_dict()
    assert sum(len(packed[name]["data"]) for name in ("successes", "trials", "seen")) < 33_000_000
