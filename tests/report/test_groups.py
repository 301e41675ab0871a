"""Rollouts over difficulty, prompts and reasons, against figures worked out by hand."""

import numpy as np
import pytest

from neyman.report import load_run
from neyman.report._groups import (
    allocation_by_predicted,
    allocation_by_realised,
    costliest_prompts,
    join_groups,
    reasons,
)


def test_allocation_over_predictions_by_hand(make_groups):
    got = allocation_by_predicted(
        make_groups([0.05, 0.5, 0.55, 1.0, np.nan], [2, 8, 10, 4, 99], [0] * 5, [1] * 5)
    )
    assert got.groups.tolist() == [1, 0, 0, 0, 0, 2, 0, 0, 0, 1]
    assert got.mean[[0, 5, 9]].tolist() == [2.0, 9.0, 4.0]
    assert np.isnan(got.mean[1])
    assert got.share[5] == pytest.approx(18 / 24)
    assert got.share.sum() == pytest.approx(1.0)


def test_pure_groups_have_bins_of_their_own(make_groups):
    got = allocation_by_realised(make_groups([np.nan] * 5, [8, 8, 8, 8, 5], [0, 1, 4, 8, 0], [8, 8, 8, 8, 0]))
    assert got.groups.tolist() == [1, 1, 0, 1, 0, 0, 1]  # the group without an outcome is in none


def test_costliest_prompts_and_reasons_by_hand(make_groups):
    some = make_groups(
        [np.nan] * 4, [8, 4, 8, 6], [1, 1, 2, 3], [8, 4, 8, 6], ["a", 7, "a", "b"], ["x", "y", "z", "y"]
    )
    top = costliest_prompts(some, top=2)
    assert [(p.prompt_id, p.visits, p.rollouts, p.successes, p.reason) for p in top] == [
        ("a", 2, 16, 3, "z"),
        ("b", 1, 6, 3, "y"),
    ]
    assert reasons(some) == [("y", "trained", 2, 10), ("x", "trained", 1, 8), ("z", "trained", 1, 8)]


def test_groups_of_runs_are_joined_in_order(tmp_path, write_run):
    runs = [load_run(write_run(tmp_path, "vip", seed, steps=2)) for seed in (0, 1)]
    joined = join_groups(runs)
    assert joined.prompt_id == runs[0].groups.prompt_id + runs[1].groups.prompt_id
    assert joined.rollouts.dtype == np.int64
    np.testing.assert_array_equal(joined.predicted[-32:], runs[1].groups.predicted)
