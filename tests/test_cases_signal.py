"""What users of RL trainers ran into: which groups carry signal, which are undecided, which the caller keeps."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neyman import Budget, Controller, Fate, Reason, preset
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
