"""Counts by marginal value, over prompts in play and prompts that may be opened."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neyman import formulas
from neyman.beliefs import Counts
from neyman.errors import ArgumentError, InfeasibleError
from neyman.rules import Evidence, MarginalValue, VarianceOptimal


def evidence(spreads, issued):
    """Prompts whose posterior E[p(1-p)] is ``spreads``: nearly certain, at the lower rate."""
    rate = 0.5 - np.sqrt(np.maximum(0.25 - np.array(spreads), 0.0))
    return Evidence(
        ids=list(range(len(rate))),
        belief=Counts(),
        a=np.maximum(rate, 1e-9) * 1e9,
        b=(1.0 - rate) * 1e9,
        issued=np.array(issued, dtype=np.int64),
    )


def value(counts, spreads, noise):
    n = np.maximum(np.array(counts) - 1.0, 0.0)
    return float((np.array(spreads) * n / np.where(n > 0, n + noise, 1.0)).sum())


@settings(deadline=None)
@given(
    spreads=st.lists(st.floats(0.0, 0.25), min_size=2, max_size=4),
    budget=st.integers(4, 10),
    noise=st.floats(0.2, 10.0),
)
def test_nothing_is_left_beyond_one_prompts_first_rollouts(spreads, budget, noise):
    rule = MarginalValue(noise=noise, upper=10)
    counts = rule.counts(evidence(spreads, [0] * len(spreads)), budget)
    assert counts.sum() == budget
    assert ((counts == 0) | (counts >= 2)).all()
    best = max(
        value(n, spreads, noise)
        for n in product((0, *range(2, budget + 1)), repeat=len(spreads))
        if sum(n) == budget
    )
    # One opening, of at most 1 + sqrt(noise) rollouts at the margin, is all that an integer budget can cost.
    assert value(counts, spreads, noise) >= best - 0.25 * (1.0 + np.sqrt(noise)) / (1.0 + noise)


def test_breadth_and_depth_follow_the_noise():
    alike = evidence([0.2] * 16, [0] * 16)
    assert sorted(MarginalValue(noise=1.0).counts(alike, 16).tolist()) == [0] * 8 + [2] * 8
    assert sorted(MarginalValue(noise=9.0).counts(alike, 16).tolist())[-5:] == [3, 3, 3, 3, 4]


def test_what_was_drawn_is_kept_and_the_best_go_on():
    counts = MarginalValue(noise=1.0).counts(evidence([0.25, 0.0, 0.25, 0.2], [2, 2, 2, 0]), 10)
    assert counts.tolist() == [3, 2, 3, 2]


@given(spreads=st.lists(st.floats(0.01, 0.25), min_size=2, max_size=8), extra=st.integers(0, 20))
def test_with_little_noise_it_is_vips_allocation_of_the_prompts_in_play(spreads, extra):
    opened = [2] * len(spreads)
    known, budget = evidence(spreads, opened), 2 * len(spreads) + extra
    ours = MarginalValue(noise=1e-6, opens=False).counts(known, budget)
    vip = VarianceOptimal(2, 32).counts(known, budget)
    assert np.abs(ours - vip).max() <= 1
    price = [float((np.array(spreads) / (n - 1)).sum()) for n in (ours, vip)]
    assert price[0] == pytest.approx(price[1], rel=1e-4)


def test_bounds_that_contradict_each_other_are_refused():
    with pytest.raises(ArgumentError, match="probe"):
        MarginalValue(lower=4, probe=2)
    with pytest.raises(ArgumentError, match="noise"):
        MarginalValue(noise=0.0)


@settings(deadline=None)
@given(
    spreads=st.lists(st.floats(0.0, 0.25), min_size=2, max_size=8),
    drawn=st.integers(0, 4),
    extra=st.integers(1, 20),
    noise=st.floats(0.2, 10.0),
    least=st.integers(2, 4),
)
def test_what_makes_no_group_goes_elsewhere_as_if_prompts_were_closed_one_by_one(
    spreads, drawn, extra, noise, least
):
    rule = MarginalValue(noise=noise, lower=least, probe=least, upper=12)
    issued = [least if place < drawn else 0 for place in range(len(spreads))]
    budget = sum(issued) + extra
    if budget > 12 * len(spreads):
        return
    known = evidence(spreads, issued)
    try:
        expected = one_by_one(rule, known, budget)
    except InfeasibleError:
        with pytest.raises(InfeasibleError):
            rule.counts(known, budget)
        return
    np.testing.assert_array_equal(rule.counts(known, budget), expected)


def one_by_one(rule, known, budget):
    """Close the last prompt that got too little, and count again, until none has too little."""
    may_open, (hull, kept) = known.issued == 0, rule._share()
    upper = np.full(len(known.issued), rule.upper)
    while True:
        counts = formulas.allocate(
            value=lambda n: np.where(may_open, hull[n], kept[n]) * known.expected_variance,
            budget=budget,
            lower=np.where(may_open, 0, known.issued),
            upper=upper,
        )
        partial = np.flatnonzero((counts > 0) & (counts < rule.lower))
        if not len(partial):
            return counts
        upper[partial[-1]] = 0


def test_a_rollout_that_makes_no_group_is_given_elsewhere_at_once(monkeypatch):
    rng, calls = np.random.default_rng(0), []
    allocate = formulas.allocate
    monkeypatch.setattr(formulas, "allocate", lambda **options: calls.append(0) or allocate(**options))
    known = evidence(np.concatenate([np.full(50, 0.001), rng.uniform(0.1, 0.25, 500)]), [2] * 50 + [0] * 500)
    counts = MarginalValue(noise=3.0).counts(known, 100 + 3 * 200 + 1)
    assert len(calls) <= 2
    assert ((counts == 0) | (counts >= 2)).all()
