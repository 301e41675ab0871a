"""When a group is finished."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neyman import formulas
from neyman.errors import ArgumentError
from neyman.rules import EarlyVerdict, FullGroup

UNIFORM = (1.0, 1.0)


@pytest.mark.parametrize(("size", "index"), [(4, 2), (8, 4), (16, 9), (32, 18)])
def test_the_default_looks_once_at_the_abandon_index(size, index):
    assert EarlyVerdict().looks(size) == (index, size)


@pytest.mark.parametrize(
    ("schedule", "size", "looks"),
    [((2, 3, 4), 8, (2, 3, 4, 8)), ((4,), 4, (4,)), ((2, 9), 8, (2, 8)), ((8,), 2, (2,))],
)
def test_a_schedule_ends_with_the_group(schedule, size, looks):
    assert EarlyVerdict(schedule=schedule).looks(size) == looks


@given(
    s=st.integers(0, 8),
    n=st.integers(0, 8),
    threshold=st.floats(0.0, 1.0),
    a=st.floats(0.05, 20.0),
    b=st.floats(0.05, 20.0),
)
def test_the_verdict_is_the_rule(s, n, threshold, a, b):
    if s > n:
        s, n = n, s
    decision = EarlyVerdict(threshold).decide(s, n, 8, (a, b))
    if 0 < s < n:
        assert decision == "commit"
    elif n == 8:
        assert decision == "abandon"
    elif n < 2:
        assert decision == "continue"
    else:
        effective = formulas.effective_probability(s, n, 8, (a, b))
        assert decision == ("abandon" if effective < threshold else "continue")


def test_a_chance_equal_to_the_threshold_continues():
    assert EarlyVerdict(0.4).decide(0, 2, 4, UNIFORM) == "continue"  # (4 - 2) / 5 is the threshold
    assert EarlyVerdict(0.4).decide(0, 3, 4, UNIFORM) == "abandon"


def test_u_shaped_priors_do_not_abandon_before_the_least_probe():
    prior = (0.01, 0.01)
    assert max(formulas.abandon_index(8, 0.45, prior)) == 1
    assert EarlyVerdict(min_probe=3).decide(0, 2, 8, prior) == "continue"
    assert EarlyVerdict(min_probe=3).decide(0, 3, 8, prior) == "abandon"


def test_full_groups_are_judged_when_complete():
    assert FullGroup().looks(8) == (8,)
    assert FullGroup().decide(3, 8, 8, UNIFORM) == "commit"
    assert FullGroup().decide(8, 8, 8, UNIFORM) == "abandon"
    assert FullGroup().decide(0, 0, 8, UNIFORM) == "abandon"


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ({"threshold": 1.5}, "threshold"),
        ({"min_probe": 1}, "min_probe"),
        ({"after_commit": "go"}, "after_commit"),
        ({"schedule": ()}, "schedule"),
        ({"schedule": (4, 4)}, "schedule"),
        ({"schedule": (1, 4)}, "schedule"),
        ({"schedule": (2.5, 4)}, "schedule"),
    ],
)
def test_illegal_arguments_name_themselves(arguments, name):
    with pytest.raises(ArgumentError, match=name):
        EarlyVerdict(**arguments)


@given(
    st.integers(2, 12),
    st.integers(1, 12),
    st.booleans(),
    st.tuples(st.floats(0.05, 30.0), st.floats(0.05, 30.0)),
    st.floats(0.01, 0.99),
)
def test_a_pure_prefix_is_given_up_as_the_formula_says(trials, more, succeeds, prior, threshold):
    size, successes = trials + more, trials if succeeds else 0
    chance = float(formulas.effective_probability(successes, trials, size, prior))
    if abs(chance - threshold) < 1e-9:
        return
    verdict = EarlyVerdict(threshold=threshold).decide(successes, trials, size, prior)
    assert verdict == ("abandon" if chance < threshold else "continue")


@given(st.integers(2, 40), st.integers(1, 40))
def test_under_the_uniform_prior_the_verdict_at_the_very_threshold_is_the_formulas(trials, more):
    size = trials + more
    threshold = float(formulas.effective_probability(0, trials, size))
    rule = EarlyVerdict(threshold=threshold)
    assert rule.decide(0, trials, size, (1.0, 1.0)) == "continue"  # not below it
