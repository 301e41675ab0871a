"""Effectiveness, stop rule, cost and yield of early verdicts, against fractions, enumeration and simulation."""

from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, stats

from neyman.errors import ArgumentError
from neyman.formulas import (
    abandon_index,
    effective_probability,
    expected_rollouts,
    mixed_probability,
    signal_kept,
    yield_condition,
)


def pure_chance(a, b, n, k):
    """1 - prod (b+j)/(a+b+j), in fractions: the chance of a mixed group after n failures."""
    rest = Fraction(1)
    for j in range(n, k):
        rest *= (Fraction(b) + j) / (Fraction(a) + Fraction(b) + j)
    return 1 - rest


def test_uniform_prior_is_the_quotient():
    for k in (2, 4, 8, 32, 1_000_000):
        for n in (1, 2, k // 2, k):
            expected = (k - n) / (k + 1) if n else (k - 1) / (k + 1)
            assert expected == effective_probability(0, n, k)
            assert expected == effective_probability(n, n, k)
    assert effective_probability(0, 0, 8) == 7 / 9


def test_mixed_prefix_is_certain_and_a_complete_pure_group_hopeless():
    np.testing.assert_array_equal(
        [1, 1, 0, 0], effective_probability([1, 3, 0, 8], [2, 4, 8, 8], 8, (0.3, 2))
    )


@pytest.mark.parametrize("prior", [(0.5, 0.5), (2.0, 3.0), (0.25, 4.0), (50.0, 1.0)])
@pytest.mark.parametrize("k", [1, 2, 5, 8, 64, 200])
def test_general_priors_equal_exact_fractions(prior, k):
    a, b = prior
    for n in {min(m, k) for m in (1, 2, 3, k // 2, k - 1, k)} - {0}:
        expected = float(pure_chance(a, b, n, k)), float(pure_chance(b, a, n, k))
        assert float(effective_probability(0, n, k, prior)) == pytest.approx(expected[0], rel=1e-12, abs=0)
        assert float(effective_probability(n, n, k, prior)) == pytest.approx(expected[1], rel=1e-12, abs=0)
    before = float(pure_chance(a, b, 0, k) + pure_chance(b, a, 0, k) - 1)
    assert float(effective_probability(0, 0, k, prior)) == pytest.approx(before, rel=1e-10, abs=1e-15)


@pytest.mark.parametrize(("k", "left"), [(10**6, 10), (10**6, 64), (10**6, 65), (10**5, 5000), (400, 390)])
def test_large_groups_keep_relative_accuracy(k, left):
    a, b = 0.5, 2.0
    j = np.arange(k - left, k, dtype=np.longdouble)
    expected = -np.expm1(np.log1p(-a / (a + b + j)).sum())
    assert float(effective_probability(0, k - left, k, (a, b))) == pytest.approx(float(expected), rel=1e-11)


def test_equals_the_integral_over_the_prior():
    a, b, k, n = 0.7, 1.6, 8, 3
    prior = stats.beta(a, b)
    mass = integrate.quad(lambda p: prior.pdf(p) * (1 - p) ** n, 0, 1)[0]
    stays_pure = integrate.quad(lambda p: prior.pdf(p) * (1 - p) ** k, 0, 1)[0]
    assert float(effective_probability(0, n, k, (a, b))) == pytest.approx(1 - stays_pure / mass, rel=1e-6)


def test_large_arrays_are_summed_factor_by_factor_to_the_same_values():
    n = np.arange(5000) % 40
    many = effective_probability(0, n, 40, (0.5, 2.0))
    np.testing.assert_allclose(many[:40], effective_probability(0, n[:40], 40, (0.5, 2.0)), rtol=1e-13)


def test_one_prior_per_prompt():
    chance = effective_probability([0, 0], 4, 8, ([1.0, 0.5], [1.0, 2.0]))
    assert chance[0] == 4 / 9
    assert chance[1] == effective_probability(0, 4, 8, (0.5, 2.0))


@given(a=st.floats(0.01, 100), b=st.floats(0.01, 100), k=st.integers(2, 300), data=st.data())
def test_more_pure_rollouts_never_raise_the_chance(a, b, k, data):
    n = data.draw(st.integers(1, k - 1))
    now, then = effective_probability(0, np.array([n, n + 1]), k, (a, b))
    assert 1 >= now >= then * (1 - 1e-12) >= 0


@pytest.mark.parametrize(("k", "index"), [(4, 2), (8, 4), (16, 9), (32, 18)])
def test_abandon_indices_at_045(k, index):
    assert (index, index) == abandon_index(k, 0.45)


def test_ties_continue():
    assert abandon_index(4, 0.4) == (3, 3)
    assert abandon_index(99, 0.07) == (93, 93)


def test_every_uniform_tie_is_decided_as_in_fractions():
    for k in (*range(2, 40), 99, 100, 127):
        for n in range(1, k):
            # the decimal (k-n)/(k+1), as a person would write it, rounded to the nearest float
            assert n + 1 == abandon_index(k, (k - n) / (k + 1))[0]


def test_closed_form_of_the_uniform_index_away_from_ties():
    for k, tau in product((4, 8, 16, 32, 64), (0.123, 0.3571, 0.4501, 0.777)):
        assert max(int(np.floor(k - tau * (k + 1))) + 1, 1) == abandon_index(k, tau)[0]


def test_ties_of_integer_priors_are_exact():
    # Beta(2, 2): after 1 failure of 3, 1 - (3/5)(4/6) = 3/5; floats of the product miss it
    assert abandon_index(3, 0.6, (2.0, 2.0)) == (2, 2)
    for k in (*range(2, 20), 39):
        for n in range(1, k):
            tau = float(pure_chance(2, 3, n, k))
            assert n + 1 == abandon_index(k, tau, (2.0, 3.0))[0]


def test_index_is_clamped_to_the_group():
    assert abandon_index(8, 0.99) == (1, 1)
    assert abandon_index(8, 0.0) == (8, 8)
    assert abandon_index(8, 0.45, (0.1, 0.1))[0] == 1  # U-shaped: one rollout is enough


@given(a=st.floats(0.05, 20), b=st.floats(0.05, 20), k=st.integers(2, 100), tau=st.floats(0.01, 0.99))
def test_index_is_the_first_below_the_threshold_and_mirrors_with_the_prior(a, b, k, tau):
    fails, wins = abandon_index(k, tau, (a, b))
    assert (wins, fails) == abandon_index(k, tau, (b, a))
    assert effective_probability(0, fails, k, (a, b)) < tau + 1e-9
    if fails > 1:
        assert effective_probability(0, fails - 1, k, (a, b)) >= tau - 1e-9


def outcomes(p, k):
    """All sequences of k outcomes with their probabilities."""
    for row in product((0, 1), repeat=k):
        s = sum(row)
        yield row, p**s * (1 - p) ** (k - s)


@pytest.mark.parametrize(("fails", "wins"), [(4, 4), (2, 5), (1, 8), (8, 3)])
@pytest.mark.parametrize("p", [0.0, 0.05, 0.3, 0.5, 0.9, 1.0])
def test_cost_and_signal_equal_an_enumeration_of_all_sequences(p, fails, wins):
    k, cost, kept, whole = 8, 0.0, 0.0, 0.0
    for row, chance in outcomes(p, k):
        s = sum(row)
        dead = sum(row[:fails]) == 0 or sum(row[:wins]) == wins
        cost += chance * (fails if sum(row[:fails]) == 0 else wins if dead else k)
        kept += chance * s * (k - s) * (not dead)
        whole += chance * s * (k - s)
    assert float(expected_rollouts(k, (fails, wins), success_rate=p)) == pytest.approx(cost)
    if whole:
        assert float(signal_kept(p, k, (fails, wins))) == pytest.approx(kept / whole)


def test_signal_kept_at_eight_and_four():
    kept = signal_kept([0.05, 0.1, 0.2, 0.3, 0.5], 8, 4)
    np.testing.assert_allclose(kept, [0.58, 0.65, 0.76, 0.84, 0.90], atol=0.005)
    assert signal_kept(0.3, 8, 8) == 1.0
    assert signal_kept(0.3, 8, 1) == 0.0


def test_relative_saving_falls_with_the_group_at_a_fixed_threshold():
    saved = [
        1 - float(expected_rollouts(k, abandon_index(k, 0.45), prior=(1.0, 1.0))) / k for k in (4, 8, 16, 32)
    ]
    np.testing.assert_allclose(saved, [0.33, 0.20, 0.09, 0.05], atol=0.005)


def test_saving_grows_with_the_group_only_at_a_fixed_probe():
    saved = [1 - float(expected_rollouts(k, 4, prior=(1.0, 1.0))) / k for k in (4, 8, 16, 32)]
    assert (np.diff(saved) > 0).all()


def test_prior_is_the_mean_over_its_rates():
    rates = stats.beta(0.5, 2).ppf((np.arange(200_000) + 0.5) / 200_000)
    over_rates = expected_rollouts(8, (2, 5), success_rate=rates).mean()
    assert float(expected_rollouts(8, (2, 5), prior=(0.5, 2.0))) == pytest.approx(over_rates, abs=1e-4)


def test_more_effective_groups_is_false_under_saras_own_prior():
    check = yield_condition(8, 4, prior=(1.0, 1.0))
    assert not check.holds
    assert check.relative_yield < 1
    assert check.required == pytest.approx(0.5)


@pytest.mark.parametrize("p", [0.001, 0.01, 0.1, 0.3, 0.5, 0.8, 0.99])
@pytest.mark.parametrize(("k", "n"), [(4, 2), (8, 2), (8, 4), (8, 7), (32, 4)])
def test_more_effective_groups_is_false_for_every_homogeneous_rate(p, k, n):
    assert not yield_condition(k, n, success_rate=[p]).holds


def test_more_effective_groups_is_true_for_u_shaped_difficulty_up_to_0644():
    assert yield_condition(8, 4, prior=(0.643, 0.643)).holds
    assert not yield_condition(8, 4, prior=(0.646, 0.646)).holds


@given(
    rates=st.lists(st.floats(0, 1), min_size=1, max_size=8),
    k=st.integers(2, 16),
    data=st.data(),
)
def test_odds_form_and_yield_form_agree(rates, k, data):
    indices = data.draw(st.tuples(st.integers(1, k), st.integers(1, k)))
    check = yield_condition(k, indices, success_rate=rates)
    if check.mixed_by_group > 1e-9 and abs(check.relative_yield - 1) > 1e-9:
        assert check.holds == (check.relative_yield > 1)
        f, probe = mixed_probability(rates, k).mean(), check.mixed_by_probe
        assert check.mixed_by_group == pytest.approx(float(f), rel=1e-6)
        if probe < 1 - 1e-9 and f < 1 - 1e-6:
            odds = probe / (1 - probe) / (f / (1 - f))
            assert check.odds_ratio == pytest.approx(float(odds), rel=1e-5)


def test_nothing_can_be_gained_where_no_group_can_be_mixed():
    check = yield_condition(8, 4, success_rate=[0.0, 1.0])
    assert not check.holds
    assert np.isnan(check.relative_yield)


def test_no_bound_without_the_prior_an_abandoned_prompt_may_well_be_effective():
    # pooled over both directions at p = 1/2 the rest is mixed with the stretch seen with chance 1 - 2^-(k-n)
    rng, k, n = np.random.default_rng(0), 8, 4
    rows = rng.random((200_000, k)) < 0.5
    pure = rows[:, :n].all(axis=1) | ~rows[:, :n].any(axis=1)
    missed = ~(rows.all(axis=1) | ~rows.any(axis=1))
    rate = (pure & missed).sum() / pure.sum()
    assert rate == pytest.approx(1 - 2.0 ** -(k - n), abs=4 * 0.25 / np.sqrt(pure.sum()))
    assert rate > 0.45


def test_beta_2_2_truth_misses_with_618_at_045():
    assert float(effective_probability(0, abandon_index(8, 0.45)[0], 8, (2.0, 2.0))) == pytest.approx(
        0.618, abs=5e-4
    )


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: effective_probability(3, 2, 8), "0 <= successes <= trials <= group_size, got 3, 2 and 8"),
        (lambda: effective_probability(0, 9, 8), "got 0, 9 and 8"),
        (lambda: effective_probability(0, 2, 8, (0.0, 1.0)), "prior must hold Beta parameters > 0"),
        (lambda: effective_probability(0, 2, 8, 1.0), "prior must be a pair"),
        (lambda: abandon_index(8, 1.5), r"threshold must be .*\[0.0, 1.0\].*1.5"),
        (lambda: abandon_index(0, 0.5), "group_size must be >= 1"),
        (lambda: expected_rollouts(8, 9, prior=(1.0, 1.0)), r"abandon must be in \[1, 8\], got 9"),
        (lambda: expected_rollouts(8, 4), "exactly one of success_rate and prior"),
        (lambda: expected_rollouts(8, (1, 2, 3), prior=(1.0, 1.0)), "one index, or the pair"),
        (lambda: signal_kept(1.2, 8, 4), "success_rate must be a probability"),
    ],
)
def test_bad_arguments_are_refused_by_name(call, message):
    with pytest.raises(ArgumentError, match=message):
        call()
