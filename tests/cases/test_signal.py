"""What users of RL trainers ran into: which groups carry signal, which are undecided, which the caller keeps."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from neyman import Budget, Controller, Fate, Reason, preset
from neyman.beliefs import Counts
from neyman.formulas import effective_groups, group_advantages
from strategies import outcome

SEQUENTIAL = ["dynamic-sampling", "sara"]


def one_group(strategy, rewards, **details):
    """Run a step whose only group gets these rewards in the order of its slots; None is a missing result."""
    controller = Controller(
        strategy,
        budget=Budget(rollouts=len(rewards)),
        train_rows=len(rewards),
        retries=0.0,
        fill="none",
    )
    controller.begin(["a"])
    given = iter(rewards)
    while not controller.is_done:
        controller.tell(
            outcome(i, "a", next(given), **details) for r in controller.ask() for i in r.rollout_ids
        )
    return controller, controller.finish()


@pytest.mark.parametrize("name", SEQUENTIAL)
@given(size=st.integers(2, 8), place=st.integers(0, 7), reward=st.sampled_from([0.0, 1.0]))
def test_case_11_a_group_with_one_live_row_is_undecided_and_not_uniform(name, size, place, reward):
    """CASE 11. For every group whose results are all missing but one, wherever that one stands."""
    rewards = [reward if i == place % size else None for i in range(size)]
    controller, batch = one_group(preset(name, group_size=size), rewards)
    (report,) = controller.group_reports
    assert (report.outcome, report.reason) == ("dropped", Reason.UNDECIDED.value)
    assert report.trials == 1
    assert controller.ledger.rollouts(Fate.DROPPED) == 1
    assert controller.ledger.rollouts(Fate.ABANDONED) == 0
    assert batch.report["abandoned_groups"] == 0
    assert len(batch) == 0


@pytest.mark.parametrize("name", SEQUENTIAL)
@given(size=st.integers(2, 8), live=st.integers(2, 8), reward=st.sampled_from([0.0, 1.0]))
def test_case_11_equal_live_rows_are_uniform_whatever_is_missing(name, size, live, reward):
    """CASE 11. For every group with at least two live rows, all equal: missing ones fake no spread."""
    rewards = [reward if i < live else math.nan for i in range(size)]
    controller, _ = one_group(preset(name, group_size=size), rewards)
    (report,) = controller.group_reports
    assert report.outcome == "abandoned"
    assert controller.ledger.rollouts(Fate.ABANDONED) == report.trials >= 2


def told_rows(strategy, rows, **settings):
    """Run a step of full groups, told at once as (reward, success) in the order of their slots."""
    controller = Controller(
        strategy, budget=Budget(rollouts=sum(map(len, rows))), retries=0.0, **{"fill": "none", **settings}
    )
    controller.begin(range(len(rows)))
    for request in controller.ask():
        controller.tell(
            outcome(i, request.prompt_id, reward, success=success)
            for i, (reward, success) in zip(request.rollout_ids, rows[request.prompt_id], strict=True)
        )
    return controller, controller.finish()


shaped = st.tuples(st.floats(-1e3, 1e3), st.booleans())


@pytest.mark.parametrize("name", SEQUENTIAL)
@given(rows=st.lists(shaped, min_size=2, max_size=8))
def test_case_10_a_group_with_both_outcomes_is_kept_whole_whatever_its_rewards(name, rows):
    """CASE 10. For every vector of rewards and outcomes: a group trains with all of its rows, or with none."""
    schedule = {} if name == "dynamic-sampling" else {"schedule": (len(rows),)}
    _, batch = told_rows(preset(name, group_size=len(rows), **schedule), [rows])
    is_mixed = 0 < sum(success for _, success in rows) < len(rows)
    assert batch.rewards.tolist() == ([reward for reward, _ in rows] if is_mixed else [])
    assert batch.counted.all()


@given(
    base=st.floats(-1e3, 1e3),
    noise=st.lists(st.floats(-0.45e-6, 0.45e-6), min_size=2, max_size=8),
    estimator=st.sampled_from(["grpo", "dr_grpo", "rloo"]),
)
def test_case_11_differences_up_to_the_tolerance_are_no_signal_and_larger_ones_are(base, noise, estimator):
    """CASE 11. For every level of the rewards and every rounding noise on it, [0.6667, 0.66670001] among them."""
    scale, one = max(1.0, abs(base)), [0] * len(noise)
    rewards = base + scale * np.array(noise)
    assert not effective_groups(rewards, one)[0]
    assert not group_advantages(rewards, one, estimator).any()
    rewards[0] += 3e-6 * scale
    assert effective_groups(rewards, one)[0]
    assert group_advantages(rewards, one, estimator)[0] > 0.0


@given(
    groups=st.lists(st.lists(shaped, min_size=4, max_size=4), min_size=1, max_size=5),
    flat=st.booleans(),
    name=st.sampled_from(["uniform", *SEQUENTIAL]),
)
def test_case_12_which_groups_are_effective_depends_on_the_outcome_and_never_on_the_reward(
    groups, flat, name
):
    """CASE 12. For every shaped reward, also one that is the same in all rows, beside every outcome."""
    rows = [[(0.5 if flat else reward, success) for reward, success in group] for group in groups]
    options = {} if name == "uniform" else {"group_size": 4}
    options |= {"schedule": (4,)} if name == "sara" else {}
    _, batch = told_rows(preset(name, dead_groups="exclude", **options), rows)
    mixed = {i for i, group in enumerate(groups) if 0 < sum(success for _, success in group) < 4}
    assert batch.report["effective_groups"] == len(mixed)
    assert {p for p, weight in zip(batch.prompt_ids, batch.weights, strict=True) if weight} == mixed


missing = st.sampled_from([0.0, 1.0, None, math.nan])


@given(groups=st.lists(st.lists(missing, min_size=4, max_size=4), min_size=1, max_size=5))
def test_case_13_what_is_missing_is_in_no_count_no_mean_and_no_posterior(groups):
    """CASE 13. For every pattern of missing rewards, None or NaN, a step without any reward among them."""
    belief = Counts(prior=(1.0, 1.0), discount=1.0, fade=1.0)
    rows = [[(reward, None) for reward in group] for group in groups]
    controller, batch = told_rows(preset("uniform", belief=belief), rows, fill="copies")
    live = [[r for r in group if r in (0.0, 1.0)] for group in groups]
    successes, failures = controller.strategy.belief.beta_parameters(range(len(groups)))
    assert successes.tolist() == [1.0 + sum(group) for group in live]
    assert failures.tolist() == [1.0 + len(group) - sum(group) for group in live]
    assert [(g.successes, g.trials) for g in controller.group_reports] == [
        (sum(group), len(group)) for group in live
    ]
    counted = [r for group in live for r in group]
    labels = [i for i, group in enumerate(live) for _ in group]
    assert batch.rewards[batch.counted].tolist() == counted
    if counted:
        expected = group_advantages(counted, labels)
        np.testing.assert_allclose(batch.advantages[batch.counted], expected, rtol=1e-12)
    assert not batch.weights[~batch.counted].any()


@pytest.mark.parametrize("estimator", ["grpo", "dr_grpo", "rloo", "reinforce++"])
@given(
    size=st.integers(1, 8),
    groups=st.integers(1, 3),
    rewards=st.lists(
        st.none() | st.just(math.nan) | st.sampled_from([0.0, 1.0]) | st.floats(-1e300, 1e300),
        min_size=24,
        max_size=24,
    ),
)
def test_case_14_advantages_and_weights_are_finite_and_zero_where_undefined(estimator, size, groups, rewards):
    """CASE 14. For every group size from 1 and every mixture of rewards and missing ones."""
    rows = [[(r, bool(r and r > 0)) for r in rewards[i * size : (i + 1) * size]] for i in range(groups)]
    _, batch = told_rows(preset("uniform", estimator=estimator), rows, fill="copies")
    assert np.isfinite(batch.advantages).all()
    assert np.isfinite(batch.weights).all()
    assert not batch.advantages[~batch.counted].any()
    if estimator != "reinforce++":  # whose baseline is the batch
        lone = [i for i, row in enumerate(rows) if sum(r is not None and r == r for r, _ in row) < 2]
        assert not batch.advantages[np.isin(batch.groups, lone)].any()


@given(live=st.integers(0, 5), dead=st.integers(0, 5), size=st.integers(2, 6), seed=st.integers(0, 99))
def test_case_16_excluded_dead_groups_are_masked_and_the_mean_is_over_the_effective_ones(
    live, dead, size, seed
):
    """CASE 16. For every number of live and dead groups: weights are the mask, their sum the rows of the batch."""
    order = np.random.default_rng(seed).permutation([True] * live + [False] * dead).tolist() or [False]
    rows = [[(float(is_live and j == 0), None) for j in range(size)] for is_live in order]
    values = np.cos(np.arange(len(order) * size))  # any function of the rows
    for dead_groups, counts in (("keep", [True] * len(order)), ("exclude", order)):
        _, batch = told_rows(preset("uniform", dead_groups=dead_groups), rows)
        assert batch.report["effective_groups"] == live
        assert (batch.weights > 0).tolist() == np.repeat(counts, size).tolist()
        means = values.reshape(len(order), size).mean(axis=1)[counts]
        assert float((batch.weights * values).mean()) == pytest.approx(means.mean() if any(counts) else 0.0)


@pytest.mark.parametrize("name", ["uniform", "vip", *SEQUENTIAL])
@given(others=st.integers(1, 3))
def test_case_08_a_prompt_without_any_valid_result_is_dropped_with_its_cause(name, others):
    """CASE 8. For every strategy, a prompt whose rollouts all raise beside prompts that work."""
    size = 4
    options = {"group_size": size} if name in SEQUENTIAL else {}
    controller = Controller(
        preset(name, **options), budget=Budget(rollouts=size * (1 + others)), retries=1.0, fill="none"
    )
    controller.begin(["x", *range(others)])
    while not controller.is_done:
        controller.tell(
            outcome(i, r.prompt_id, None if r.prompt_id == "x" else float(n % 2), error="it raised")
            for r in controller.ask()
            for n, i in enumerate(r.rollout_ids)
        )
    batch = controller.finish()
    report = next(g for g in controller.group_reports if g.prompt_id == "x")
    assert (report.outcome, report.reason, report.trials) == ("dropped", Reason.GIVEN_UP.value, 0)
    assert "x" not in batch.prompt_ids
    assert controller.first_error == "it raised"


@pytest.mark.parametrize("name", SEQUENTIAL)
@given(
    rewards=st.lists(st.sampled_from([0.0, 1.0]), min_size=4, max_size=4),
    protected=st.sets(st.integers(0, 3)),
    carried=st.booleans(),
)
def test_case_15_groups_with_a_protected_row_are_kept_whole_and_others_are_not(
    name, rewards, protected, carried
):
    """CASE 15. For every group and every choice of rows that the host's loss needs, seen by the verdict or not."""
    controller = Controller(
        preset(name, group_size=4, max_age=int(carried)), budget=Budget(rollouts=8), train_rows=4, fill="none"
    )
    controller.begin(["kept"])
    place = 0
    while not controller.is_done:
        for request in controller.ask():
            for i in request.rollout_ids:
                told = outcome(i, "kept", rewards[place], protected=place in protected)
                controller.tell([told])
                place += 1
    mixed = 0 < sum(rewards[:place]) < place
    keeps = any(p < place for p in protected)
    batch = controller.finish()
    assert len(batch) == (4 if mixed or keeps else 0)
    if keeps and not mixed:
        assert place == 4, "a protected row completes its group"
        assert batch.counted.all()
        assert not batch.advantages.any()
        assert controller.ledger.rollouts(Fate.UNIFORM) == 4
        assert batch.report["effective_groups"] == 0


def test_case_15_protected_groups_that_a_step_does_not_need_are_carried_over():
    """CASE 15. For uniform groups with protected rows beyond the rows to train on."""
    controller = Controller(
        preset("dynamic-sampling", group_size=2, over_provision=2.0, max_age=1),
        budget=Budget(rollouts=8),
        train_rows=4,
    )
    controller.begin(range(4))
    controller.tell(
        outcome(i, r.prompt_id, 1.0, protected=True) for r in controller.ask() for i in r.rollout_ids
    )
    assert set(controller.finish().prompt_ids) == {0, 1}
    controller.begin(range(4, 8))
    assert controller.is_done
    assert set(controller.finish().prompt_ids) == {2, 3}


def test_case_15_a_fragment_protects_its_trajectory():
    """CASE 15. For trajectories of several pieces of which one is protected."""
    controller = Controller(preset("dynamic-sampling", group_size=2), budget=Budget(rollouts=2))
    controller.begin(["a"])
    (request,) = controller.ask()
    controller.tell(
        outcome(i, "a", 0.0, trajectory_id=i, protected=part == 1 and i == request.rollout_ids[0])
        for i in request.rollout_ids
        for part in range(2)
    )
    assert len(controller.finish()) == 2
