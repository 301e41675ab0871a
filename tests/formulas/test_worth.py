"""The value of a group while it is drawn, against every stopping rule one by one."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from neyman.errors import ArgumentError
from neyman.formulas import effective_probability, group_waste, group_worth
from neyman.formulas.worth import pure_worth

PRIORS = st.tuples(st.floats(0.05, 20.0), st.floats(0.05, 20.0))


def pure_chance(a, b, n, m):
    """P(rollouts n+1..m fail | n failures)."""
    return float(np.prod([(b + j) / (a + b + j) for j in range(n, m)]))


def value_of(rule, a, b, k, looks, waste, side):
    """The value after the first look of a stopping rule: give up a pure prefix at ``rule[side]``."""
    if side:
        a, b = b, a
    reached, chance, total = looks[0], 1.0, 0.0
    for there in looks[1:]:
        if reached >= rule:
            return total
        stays = pure_chance(a, b, reached, there)
        total += chance * (-(there - reached) + (1.0 - stays) * (k * waste - (k - there)))
        chance, reached = chance * stays, there
    return total


@given(prior=PRIORS, k=st.integers(2, 7), waste=st.floats(1.0, 6.0), data=st.data())
def test_no_stopping_rule_is_worth_more(prior, k, waste, data):
    early = data.draw(st.lists(st.integers(1, k - 1), unique=True).map(sorted))
    looks = (*early, k)
    a, b = prior
    first = looks[0]
    fail, win = pure_chance(a, b, 0, first), pure_chance(b, a, 0, first)
    opened = -first + (1.0 - fail - win) * (k * waste - (k - first))
    best = max(
        opened
        + fail * value_of(stop[0], a, b, k, looks, waste, side=False)
        + win * value_of(stop[1], a, b, k, looks, waste, side=True)
        for stop in product(looks, looks)
    )
    assert group_worth(prior, k, looks=looks, waste=waste) == pytest.approx(best, abs=1e-9)


@given(prior=PRIORS, k=st.integers(3, 9), waste=st.floats(1.0, 6.0), n=st.integers(1, 8))
def test_successes_are_failures_seen_from_the_other_side(prior, k, waste, n):
    n = min(n, k - 1)
    worth = group_worth(prior, k, failures=n, waste=waste)
    assert worth == group_worth(prior[::-1], k, successes=n, waste=waste)
    assert worth >= 0.0


@given(prior=PRIORS, k=st.integers(2, 9), looks=st.sets(st.integers(1, 8)))
def test_at_its_own_waste_a_group_is_worth_nothing(prior, k, looks):
    steps = (*sorted(look for look in looks if look < k), k)
    waste = float(group_waste(prior, k, looks=steps))
    if waste > 9_999.0:  # cut
        return
    assert group_worth(prior, k, looks=steps, waste=waste) == pytest.approx(0.0, abs=1e-3 * waste)


@given(prior=PRIORS, k=st.integers(2, 9))
def test_the_index_lies_between_a_sure_group_and_one_that_is_never_stopped(prior, k):
    index = float(group_waste(prior, k))
    never_stopped = 1.0 / max(float(effective_probability(0, 0, k, prior)), 1e-9)
    assert 1.0 <= index <= min(never_stopped, 1e4) * (1 + 1e-5)
    assert index <= float(group_waste(prior, k, looks=(k,))) * (1 + 1e-5), "looks can only help"


def test_sure_prompts_are_worth_what_their_chance_says():
    certain = (4e6, 6e6)  # p = .4, known
    mixed = 1.0 - 0.4**8 - 0.6**8
    assert group_waste(certain, 8, looks=(8,)) == pytest.approx(1.0 / mixed, rel=1e-4)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"failures": 1, "successes": 1}, "is mixed"),
        ({"looks": (2, 2, 8)}, "looks must increase and end with group_size=8"),
        ({"looks": (2, 4)}, "looks must increase and end with group_size=8"),
        ({"waste": 0.5}, "waste"),
    ],
)
def test_what_cannot_be_is_refused(arguments, message):
    with pytest.raises(ArgumentError, match=message):
        group_worth((1.0, 1.0), 8, **arguments)


@given(
    a=st.floats(0.01, 50.0),
    b=st.floats(0.01, 50.0),
    k=st.integers(2, 12),
    waste=st.floats(1.0, 30.0),
    data=st.data(),
)
def test_one_prompt_in_floats_is_worth_what_it_is_among_others(a, b, k, waste, data):
    looks = (*sorted(data.draw(st.sets(st.integers(1, k - 1)))), k)
    n = data.draw(st.integers(1, k))
    many = group_worth((np.full(3, a), b), k, failures=n, looks=looks, waste=waste)
    assert many.tolist() == [pure_worth(a, b, k, n, looks, waste)] * 3
