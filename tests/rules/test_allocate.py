"""How many rollouts each prompt gets."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from neyman import formulas
from neyman.beliefs import Counts
from neyman.errors import ArgumentError, InfeasibleError
from neyman.rules import Each, Evidence, VarianceOptimal, WaterLevel


def evidence(a, b, issued=None, belief=None):
    ids = list(range(len(a)))
    return Evidence(
        ids=ids,
        belief=belief or Counts(),
        a=np.asarray(a, dtype=float),
        b=np.asarray(b, dtype=float),
        issued=np.zeros(len(a), dtype=np.int64) if issued is None else np.asarray(issued),
    )


def test_the_expected_variance_is_below_the_plug_in():
    known = evidence([2.0, 20.0], [2.0, 20.0])
    np.testing.assert_allclose(known.mean, [0.5, 0.5])
    np.testing.assert_allclose(known.expected_variance, [0.2, 0.25 - 0.25 / 41])


def test_each_splits_evenly_with_the_rest_to_the_first():
    assert Each().counts(evidence([1] * 3, [1] * 3), 8).tolist() == [3, 3, 2]
    assert Each(4).counts(evidence([1] * 3, [1] * 3), 12).tolist() == [4, 4, 4]
    with pytest.raises(InfeasibleError, match="takes 12 rollouts, but the budget is 16"):
        Each(4).counts(evidence([1] * 3, [1] * 3), 16)
    assert (Each().group_size(6), Each(4).group_size(6), Each().probe) == (6, 4, 0)


@given(
    a=st.lists(st.floats(0.1, 50.0), min_size=1, max_size=6),
    estimator=st.sampled_from(["rloo", "dr_grpo", "grpo"]),
    extra=st.integers(0, 40),
    probe=st.booleans(),
)
def test_variance_optimal_is_the_exact_allocation_above_what_was_issued(a, estimator, extra, probe):
    n = len(a)
    known = evidence(a, a[::-1], issued=[3 + i for i in range(n)] if probe else None)
    lower = known.issued if probe else np.full(n, 3)
    budget = int(lower.sum()) + extra
    counts = VarianceOptimal(3, 64, estimator=estimator).counts(known, budget)
    expected = formulas.allocate(
        spread=known.expected_variance, budget=budget, lower=lower, upper=64, estimator=estimator
    )
    np.testing.assert_array_equal(expected, counts)
    assert counts.sum() == budget
    assert (counts >= lower).all()


def test_a_probe_below_the_lower_bound_does_not_undercut_it():
    known = evidence([20.0, 1.0, 1.0], [20.0, 99.0, 99.0], issued=[2, 2, 2])
    np.testing.assert_array_equal(VarianceOptimal(6, 32, probe=2).counts(known, 20), [8, 6, 6])


def test_the_plug_in_overrates_what_is_uncertain():
    known = evidence([0.5, 30.0], [0.5, 15.0])
    exact = VarianceOptimal(2, 64).counts(known, 40)
    plug_in = VarianceOptimal(2, 64, plug_in=True).counts(known, 40)
    assert plug_in[0] > exact[0]


def test_water_level_fills_by_the_standard_deviation():
    known = evidence([10.0, 1.0, 5.0], [10.0, 19.0, 5.0])
    counts = WaterLevel(2, 30).counts(known, 30)
    expected = formulas.water_level(np.sqrt(known.expected_variance), 30, 2, 30)
    np.testing.assert_array_equal(expected, counts)
    again = WaterLevel(2, 30).counts(evidence(known.a, known.b, issued=[2, 12, 2]), 30)
    assert again.sum() == 30
    assert again[1] >= 12


def test_the_published_water_level_takes_whole_histories():
    belief = Counts(discount=1.0, fade=1.0)
    belief.update(range(10), [0, 1, 2, 4, 8, 12, 13, 14, 15, 16], [16] * 10)
    counts = WaterLevel(4, 24, variant="published").counts(evidence([1] * 10, [1] * 10, belief=belief), 160)
    assert (
        counts.tolist()
        == formulas.published_water_level([0, 1, 2, 4, 8, 12, 13, 14, 15, 16], [16] * 10, 160, 4, 24).tolist()
    )
    fading = Counts(discount=0.5)
    for _ in range(2):
        fading.update(range(10), [1] * 10, [3] * 10)
        fading.advance(1)
    with pytest.raises(InfeasibleError, match="whole successes and trials"):
        WaterLevel(variant="published").counts(evidence([1] * 10, [1] * 10, belief=fading), 160)


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: Each(1), "size"),
        (lambda: VarianceOptimal(1, 8), "lower"),
        (lambda: VarianceOptimal(2, 8, estimator="grpo"), "lower"),
        (lambda: VarianceOptimal(4, 3), "upper"),
        (lambda: VarianceOptimal(estimator="ppo"), "estimator"),
        (lambda: VarianceOptimal(variant="best"), "variant"),
        (lambda: VarianceOptimal(3, 8, estimator="grpo", probe=2), "probe"),
        (lambda: WaterLevel(variant="flat"), "variant"),
        (lambda: WaterLevel(probe=-1), "probe"),
        (lambda: WaterLevel(1, 8), "lower"),
    ],
)
def test_illegal_arguments_name_themselves(make, name):
    with pytest.raises(ArgumentError, match=name):
        make()
