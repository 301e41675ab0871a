"""The published relaxation: its KKT conditions, a convex solver as oracle, and its rounding."""

import cvxpy as cp
import numpy as np
import pytest

from neyman.errors import ArgumentError
from neyman.formulas import allocate, gradient_variance, relaxed_counts
from neyman.formulas.relaxation import _dr_grpo_root


def slope(n, estimator):
    return 1 / (n - 1) ** 2 if estimator == "rloo" else (n - 2) / n**3


@pytest.mark.parametrize("estimator", ["rloo", "dr_grpo"])
def test_kkt_conditions_hold(estimator):
    rng = np.random.default_rng(0)
    for _ in range(100):
        a = rng.beta(0.3, 0.6, 20) + 1e-9
        lower, upper = np.full(20, 3), np.full(20, 32)
        n = relaxed_counts(a, 160, lower, upper, estimator)
        assert pytest.approx(n.sum(), rel=1e-10) == 160
        price = a * slope(n, estimator)
        inside = (n > 3 + 1e-9) & (n < 32 - 1e-9)
        if inside.any():
            margin = price[inside].mean()
            np.testing.assert_allclose(price[inside], margin, rtol=1e-8)
            assert (price[n >= 32 - 1e-9] >= margin * (1 - 1e-8)).all()
            assert (price[n <= 3 + 1e-9] <= margin * (1 + 1e-8)).all()


def test_rloo_equals_a_convex_solver():
    a = np.random.default_rng(1).random(8) / 4
    n = cp.Variable(8)
    problem = cp.Problem(cp.Minimize(a @ cp.inv_pos(n - 1)), [cp.sum(n) == 64, n >= 2, n <= 16])
    problem.solve(solver=cp.CLARABEL)
    np.testing.assert_allclose(
        relaxed_counts(a, 64, np.full(8, 2), np.full(8, 16), "rloo"), n.value, atol=1e-3
    )


def test_dr_grpo_root_solves_the_cubic_and_starts_at_three():
    n = np.array([3.0, 3.5, 10.0, 1000.0])
    np.testing.assert_allclose(_dr_grpo_root(np.log(n**3 / (n - 2))), n, rtol=1e-6)


def test_counterexample_relaxes_to_the_counts_it_is_named_after():
    a = np.array([900.0, *[8.41] * 10])
    n = relaxed_counts(a, 70, np.full(11, 2), np.full(11, 64), "rloo")
    np.testing.assert_allclose(n, [31.0, *[3.9] * 10], rtol=1e-9)


@pytest.mark.parametrize("estimator", ["rloo", "dr_grpo"])
def test_published_counts_are_feasible_never_better_than_exact_and_usually_equal(estimator):
    rng = np.random.default_rng(2)
    equal = 0
    for _ in range(200):
        p = rng.beta(0.6, 0.6, 32)
        published = allocate(p, 256, 3, 32, estimator, variant="published")
        assert published.sum() == 256
        assert published.min() >= 3
        assert published.max() <= 32
        cost, best = (
            np.sum(gradient_variance(p, n, estimator))
            for n in (published, allocate(p, 256, 3, 32, estimator))
        )
        assert cost >= best * (1 - 1e-11)
        equal += cost <= best * (1 + 1e-11)
    assert equal > 150


def test_published_rloo_gap_of_almost_three_percent():
    # one relaxed count of 29 and twenty-three of 2.826, as close as the sum allows
    a = np.array([28.0**2, *[1.826087**2] * 23])
    exact, published = (allocate(None, 94, 2, 64, spread=a, variant=v) for v in ("exact", "published"))
    cost, best = ((a / (n - 1)).sum() for n in (published, exact))
    assert cost / best - 1 == pytest.approx(2.8e-2, abs=2e-3)


def test_prompts_without_spread_stay_low_and_still_the_budget_is_spent():
    counts = allocate([0.0, 0.5, 1.0], 20, 2, 8, variant="published")
    np.testing.assert_array_equal([8, 8, 4], counts)
    np.testing.assert_array_equal([8, 2, 2], allocate([0.0, 0.0, 0.0], 12, 2, 8, variant="published"))


def test_published_exists_for_the_papers_estimators_only():
    with pytest.raises(ArgumentError, match=r"variant='published'.*'grpo'"):
        allocate([0.5, 0.5], 8, 3, 8, "grpo", variant="published")
    with pytest.raises(ArgumentError, match=r"published.*not for a value"):
        allocate(value=lambda n: n * 1.0, budget=8, lower=[2, 2], upper=8, variant="published")
