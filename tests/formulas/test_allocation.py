"""Exact allocation: golden rows, dynamic programming and a heap as oracles, and the properties that users rely on."""

import heapq
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from neyman.errors import ArgumentError, InfeasibleError
from neyman.formulas import allocate, gradient_variance, mixed_probability
from neyman.formulas.allocation import _gain
from neyman.formulas.variance import MINIMUM_GROUP_SIZE

ESTIMATORS = ("rloo", "dr_grpo", "grpo")
RATES = [0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5]


def best_total(cost, lower, upper, budget):
    """The least summed cost over all counts that sum to ``budget``: an oracle without any convexity."""
    best = np.full(budget + 1, np.inf)
    best[0] = 0.0
    for q in range(len(lower)):
        after = np.full(budget + 1, np.inf)
        for n in range(lower[q], min(upper[q], budget) + 1):
            after[n:] = np.minimum(after[n:], best[: budget + 1 - n] + cost(q, n))
        best = after
    return best[budget]


def by_heap(gain, lower, upper, budget):
    """One unit at a time to the largest gain, ties to the lowest index."""
    counts = np.array(lower)
    heap = [(-gain(q, n), q) for q, n in enumerate(lower) if n < upper[q]]
    heapq.heapify(heap)
    for _ in range(budget - counts.sum()):
        _, q = heapq.heappop(heap)
        counts[q] += 1
        if counts[q] < upper[q]:
            heapq.heappush(heap, (-gain(q, counts[q]), q))
    return counts


def random_instance(rng, estimator, prompts=6, width=8):
    count = int(rng.integers(1, prompts + 1))
    lower = rng.integers(MINIMUM_GROUP_SIZE[estimator], 6, count)
    upper = lower + rng.integers(0, width, count)
    p = rng.choice([rng.random(count), rng.integers(0, 5, count) / 4, rng.beta(0.2, 0.2, count)])
    return p, int(rng.integers(lower.sum(), upper.sum() + 1)), lower, upper


@pytest.mark.parametrize(
    ("estimator", "expected"),
    [("dr_grpo", [3, 6, 10, 15, 20, 23, 25, 26]), ("rloo", [6, 7, 11, 15, 19, 22, 24, 24])],
)
def test_minimum_variance_row(estimator, expected):
    np.testing.assert_array_equal(expected, allocate(RATES, 128, 3, 64, estimator))


def test_effective_groups_row():
    counts = allocate(value=lambda n: mixed_probability(RATES, n), budget=128, lower=3, upper=64)
    np.testing.assert_array_equal([3, 33, 31, 22, 14, 10, 8, 7], counts)


def test_grpo_serves_rare_successes_last_because_its_variance_there_is_that_of_rarely_mixed_groups():
    np.testing.assert_array_equal([3, 3, 3, 19, 25, 25, 25, 25], allocate(RATES, 128, 3, 64, "grpo"))


def test_published_rounding_misses_the_optimum_on_the_counterexample():
    spread = np.array([900.0, *[8.41] * 10])  # relaxed counts 31.0 and ten times 3.9
    exact = allocate(budget=70, lower=2, upper=64, spread=spread)
    published = allocate(budget=70, lower=2, upper=64, spread=spread, variant="published")
    np.testing.assert_array_equal([30, *[4] * 10], exact)
    np.testing.assert_array_equal([31, *[4] * 9, 3], published)
    assert (spread / (exact - 1)).sum() < (spread / (published - 1)).sum()


def test_dr_grpo_counterexample():
    spread = np.array([31.0**3 / 29.0, *[3.9**3 / 1.9] * 10])
    assert [30, *[4] * 10] == allocate(None, 70, 3, 64, "dr_grpo", spread=spread).tolist()
    published = allocate(None, 70, 3, 64, "dr_grpo", spread=spread, variant="published")
    assert [31, *[4] * 9, 3] == published.tolist()


def test_all_arguments_work_by_position_and_by_name():
    by_name = allocate(success_rate=[0.1, 0.5], budget=12, lower=2, upper=10, estimator="rloo")
    np.testing.assert_array_equal(by_name, allocate([0.1, 0.5], 12, 2, 10, "rloo"))
    assert np.int64 == by_name.dtype


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_equals_dynamic_programming_on_random_instances(estimator):
    rng = np.random.default_rng(0)
    for _ in range(1000):
        p, budget, lower, upper = random_instance(rng, estimator)
        counts = allocate(p, budget, lower, upper, estimator)
        assert budget == counts.sum()
        assert (counts >= lower).all()
        assert (counts <= upper).all()
        reached = float(np.sum(gradient_variance(p, counts, estimator)))
        optimum = best_total(lambda q, n: gradient_variance(p[q], n, estimator), lower, upper, budget)  # noqa: B023 - used at once
        assert reached == pytest.approx(optimum, rel=1e-11, abs=1e-14)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_equals_the_heap_count_by_count_ties_by_index(estimator):
    rng = np.random.default_rng(1)
    for _ in range(300):
        p, budget, lower, upper = random_instance(rng, estimator, prompts=12)
        weights = np.minimum(p, 1 - p) if estimator == "grpo" else p * (1 - p)
        gain = _gain(weights, estimator)
        expected = by_heap(lambda q, n: gain(np.array([q]), np.array([n]))[0], lower, upper, budget)  # noqa: B023 - used at once
        np.testing.assert_array_equal(expected, allocate(p, budget, lower, upper, estimator))


def test_value_equals_dynamic_programming_on_random_concave_functions():
    rng = np.random.default_rng(2)
    for _ in range(300):
        count, width = int(rng.integers(1, 6)), int(rng.integers(1, 8))
        steps = -np.sort(-rng.normal(size=(count, width)), axis=1)  # falling, and negative in part
        table = np.concatenate([np.zeros((count, 1)), np.cumsum(steps, axis=1)], axis=1)
        budget = int(rng.integers(0, count * width + 1))
        lower, upper = np.zeros(count, dtype=int), np.full(count, width)
        counts = allocate(
            value=lambda n, t=table: t[np.arange(len(t)), n], budget=budget, lower=lower, upper=upper
        )
        optimum = -best_total(lambda q, n, t=table: -t[q, n], lower, upper, budget)
        assert table[np.arange(count), counts].sum() == pytest.approx(optimum, abs=1e-12)


def test_mirrored_rates_tie_although_their_floats_differ():
    assert 0.2 * 0.8 != 0.8 * (1 - 0.8)
    for estimator in ESTIMATORS:
        np.testing.assert_array_equal([5, 4], allocate([0.8, 0.2], 9, 3, 8, estimator))
        np.testing.assert_array_equal([5, 4], allocate([0.2, 0.8], 9, 3, 8, estimator))


def test_equal_rates_split_evenly_first_prompts_first():
    np.testing.assert_array_equal([4, 4, 3, 3], allocate([0.5] * 4, 14, 2, 8))


def test_prompts_without_spread_are_served_last():
    np.testing.assert_array_equal([2, 8, 2, 8], allocate([0.0, 0.5, 1.0, 0.5], 20, 2, 8))
    np.testing.assert_array_equal([5, 8, 2, 8], allocate([0.0, 0.5, 1.0, 0.5], 23, 2, 8))


@pytest.mark.parametrize("estimator", ESTIMATORS)
@given(data=st.data())
def test_one_more_rollout_of_budget_takes_none_from_any_prompt(estimator, data):
    rates = st.floats(0, 1) | st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0])
    p = data.draw(st.lists(rates, min_size=1, max_size=12))
    budget = data.draw(st.integers(3 * len(p), 12 * len(p) - 1))
    less, more = (allocate(p, b, 3, 12, estimator) for b in (budget, budget + 1))
    assert (more >= less).all()
    assert budget == less.sum()


@pytest.mark.parametrize("estimator", ESTIMATORS)
@given(seed=st.integers(0, 10_000))
def test_prompts_may_be_permuted(estimator, seed):
    rng = np.random.default_rng(seed)
    p, order = rng.random(15), rng.permutation(15)
    np.testing.assert_array_equal(
        allocate(p, 100, 3, 20, estimator)[order], allocate(p[order], 100, 3, 20, estimator)
    )


@given(seed=st.integers(0, 10_000), scale=st.sampled_from([1e-6, 0.3, 7.0, 1e9]))
def test_the_unit_of_the_spread_does_not_matter(seed, scale):
    spread = np.random.default_rng(seed).random(15)
    expected = allocate(budget=100, lower=2, upper=20, spread=spread)
    np.testing.assert_array_equal(expected, allocate(budget=100, lower=2, upper=20, spread=scale * spread))


@given(seed=st.integers(0, 10_000))
def test_more_spread_never_gets_fewer(seed):
    spread = np.sort(np.random.default_rng(seed).random(15))[::-1]
    counts = allocate(budget=100, lower=2, upper=20, spread=spread)
    assert (np.diff(counts) <= 0).all()


def test_spread_replaces_the_rate_for_every_estimator():
    p = np.array([0.05, 0.3, 0.5, 0.9])
    for estimator in ESTIMATORS:
        np.testing.assert_array_equal(
            allocate(p, 40, 3, 20, estimator),
            allocate(None, 40, 3, 20, estimator, spread=p * (1 - p)),
        )


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_value_of_the_negative_variance_is_the_same_allocation(estimator):
    p = np.random.default_rng(3).random(40)
    counts = allocate(value=lambda n: -gradient_variance(p, n, estimator), budget=400, lower=4, upper=32)
    np.testing.assert_array_equal(allocate(p, 400, 4, 32, estimator), counts)


def test_edges_of_the_budget_give_the_bounds_themselves():
    lower, upper = np.array([2, 3, 4]), np.array([5, 3, 9])
    np.testing.assert_array_equal(lower, allocate([0.1, 0.5, 0.9], 9, lower, upper))
    np.testing.assert_array_equal(upper, allocate([0.1, 0.5, 0.9], 17, lower, upper))
    assert len(allocate([], 0, 2, 8)) == 0


@pytest.mark.parametrize("budget", [15, 65])
def test_infeasible_budgets_name_both_bounds(budget):
    with pytest.raises(InfeasibleError, match=rf"budget={budget} .*sum to 16.*64.*\[16, 64\]"):
        allocate([0.5] * 8, budget, 2, 8)


@pytest.mark.parametrize(
    ("estimator", "lower", "why"),
    [("rloo", 1, "leave-one-out"), ("dr_grpo", 2, "no gradient"), ("grpo", 2, "no gradient")],
)
def test_lower_bounds_that_reward_starving_prompts_are_refused_with_the_reason(estimator, lower, why):
    with pytest.raises(ArgumentError, match=rf"lower must be >= {lower + 1}, got {lower}.*{why}"):
        allocate([0.5] * 4, 16, lower, 8, estimator)


def test_dr_grpo_would_starve_prompts_if_one_rollout_were_legal():
    p = np.array([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8])
    starved = np.array([1, 1, 1, 1, 32, 26, 1, 1])
    exact = allocate(p, 64, 3, 32, "dr_grpo")
    assert np.sum(gradient_variance(p, starved, "dr_grpo")) < np.sum(gradient_variance(p, exact, "dr_grpo"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"success_rate": [0.5, np.nan]}, r"success_rate must be a probability .*nan"),
        ({"success_rate": [0.5, -0.2]}, r"success_rate must be a probability .*-0.2"),
        ({"success_rate": [0.5, 1.2]}, r"success_rate must be a probability .*1.2"),
        ({"success_rate": [[0.5, 0.5]]}, r"success_rate must have 1 dimension.*\(1, 2\)"),
        ({"lower": [2, 2, 2]}, r"lower must be a scalar or .*\(2\).*\(3,\)"),
        ({"upper": 7.5}, r"upper must hold whole numbers.*7.5"),
        ({"lower": 9}, r"lower must be <= upper, got 9 > 8 for prompt 0"),
        ({"budget": 8.5}, r"budget must be a whole number.*8.5"),
        ({"budget": None}, r"budget is missing"),
        ({"estimator": "vip"}, r"estimator must be one of"),
        ({"variant": "best"}, r"variant must be one of"),
        ({"spread": [0.1, 0.1]}, r"exactly one of .*success_rate and spread"),
        ({"success_rate": None}, r"exactly one of .*none"),
    ],
)
def test_bad_arguments_are_refused_by_name(arguments, message):
    legal = {"success_rate": [0.5, 0.5], "budget": 8, "lower": 2, "upper": 8}
    with pytest.raises(ArgumentError, match=message):
        allocate(**(legal | arguments))


def test_grpo_refuses_spreads_that_no_success_rate_has():
    with pytest.raises(ArgumentError, match=r"spread must be .*\[0, 0.25\].*0.3"):
        allocate(None, 12, 3, 8, "grpo", spread=[0.1, 0.3])


def test_a_value_that_is_not_concave_is_refused_by_prompt_and_count():
    worth = np.array([[0, 3, 5, 6, 6.5, 6.6], [0, 1, 1, 1, 2, 2]])
    with pytest.raises(ArgumentError, match=r"prompt 1 the gain rises from 0 to 1 at n=3"):
        allocate(value=lambda n: worth[np.arange(2), n], budget=8, lower=0, upper=5)


def test_a_value_is_only_checked_within_its_bounds():
    worth = np.array([[0, 3, 5, 6, 6.5, 6.6], [0, 1, 1, 1, 2, 2]])
    counts = allocate(value=lambda n: worth[np.arange(2), n], budget=6, lower=[0, 3], upper=[5, 5])
    np.testing.assert_array_equal([3, 3], counts)


def test_a_linear_value_fills_the_lowest_index_first():
    counts = allocate(value=lambda n: 1.0 * n * np.ones(3), budget=7, lower=0, upper=4)
    np.testing.assert_array_equal([4, 3, 0], counts)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (lambda n: 1.0, r"one number per prompt.*lower as an array"),
        (lambda n: np.array([1.0, np.nan]), r"finite, got nan for prompt 1"),
    ],
)
def test_values_of_wrong_shape_or_not_finite_are_refused(value, message):
    with pytest.raises(ArgumentError, match=message):
        allocate(value=value, budget=6, lower=2, upper=5)


def test_a_value_of_another_length_is_refused():
    with pytest.raises(ArgumentError, match=r"shape \(2,\) like n, got \(3,\)"):
        allocate(value=lambda n: np.zeros(3), budget=6, lower=[2, 2], upper=5)


def test_memory_is_linear_in_the_prompts_and_not_in_prompts_times_upper():
    p = np.random.default_rng(4).random(100_000)
    tracemalloc.start()
    for estimator in ESTIMATORS:
        allocate(p, 1_600_000, 3, 1000, estimator)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 30 * p.nbytes  # prompts x upper would be 1000 times p


@pytest.mark.slow
def test_grpo_variance_is_convex_from_three_for_four_thousand_rates():
    n = np.arange(3, 400)
    for p in np.linspace(0, 1, 4001)[1:-1]:
        step = np.diff(gradient_variance(p, n, "grpo"))
        assert (np.diff(step) >= -1e-15).all()
