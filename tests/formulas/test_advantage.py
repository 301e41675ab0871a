"""Advantages over ragged groups: the estimators, missing rewards, groups without signal, and labels of any kind."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from neyman.errors import ArgumentError
from neyman.formulas import effective_groups, group_advantages, group_index, undecided_groups

ESTIMATORS = ("grpo", "dr_grpo", "rloo", "reinforce++")
NAN = float("nan")


def test_grpo_equals_trl_on_uniform_groups():
    rewards = torch.rand(32, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    grouped = rewards.view(-1, 8)
    mean, std = (statistic.repeat_interleave(8) for statistic in (grouped.mean(dim=1), grouped.std(dim=1)))
    expected = (rewards - mean) / (std + 1e-4)
    np.testing.assert_allclose(group_advantages(rewards.numpy(), np.arange(32) // 8), expected, rtol=1e-12)


def test_golden_ragged_batch():
    rewards, groups = [1, 0, 0, 0, 1, 1, 0, 5], ["a", "b", "a", "b", "b", "b", "b", "c"]
    dr_grpo = [0.5, -0.4, -0.5, -0.4, 0.6, 0.6, -0.4, 0]
    np.testing.assert_allclose(group_advantages(rewards, groups, "dr_grpo"), dr_grpo)
    rloo = [1, -0.5, -1, -0.5, 0.75, 0.75, -0.5, 0]
    np.testing.assert_allclose(group_advantages(rewards, groups, "rloo"), rloo)
    population = np.array(dr_grpo) / [0.5, 0.24**0.5, 0.5, *[0.24**0.5] * 4, 1]
    np.testing.assert_allclose(group_advantages(rewards, groups, "grpo", ddof=0, eps=0), population)


def test_rloo_is_the_reward_minus_the_mean_of_the_others():
    rewards = np.random.default_rng(0).normal(size=7)
    others = [np.delete(rewards, i).mean() for i in range(7)]
    np.testing.assert_allclose(group_advantages(rewards, [3] * 7, "rloo"), rewards - others)


def test_reinforce_plus_plus_whitens_the_batch_and_ignores_groups():
    rewards = np.array([1.0, 0.0, NAN, 1.0, 4.0])
    live = rewards[~np.isnan(rewards)]
    expected = (rewards - live.mean()) / (live.std(ddof=1) + 1e-4)
    np.testing.assert_allclose(
        group_advantages(rewards, [0, 0, 0, 1, 2], "reinforce++"), np.nan_to_num(expected), rtol=1e-12
    )


@pytest.mark.parametrize("estimator", ["grpo", "dr_grpo", "rloo"])
def test_missing_rewards_are_in_no_statistic(estimator):
    with_holes = group_advantages([1, None, 0, None], [0] * 4, estimator)
    np.testing.assert_array_equal(with_holes[[0, 2]], group_advantages([1, 0], [0, 0], estimator))
    np.testing.assert_array_equal([0, 0], with_holes[[1, 3]])


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize(
    "rewards",
    [[1.0], [1.0, 1.0], [NAN] * 8, [NAN] * 7 + [1.0], [0.3] * 8, [0.6667, 0.66670001], [0.1 + 0.2, 0.3], []],
)
def test_zero_where_undefined_or_without_spread(estimator, rewards):
    np.testing.assert_array_equal(
        np.zeros(len(rewards)), group_advantages(rewards, [0] * len(rewards), estimator)
    )


def test_float_noise_on_large_rewards_is_no_signal():
    rewards = np.float32([1234.5678, 1234.5679, 1234.5677])
    assert rewards.std() > 0
    np.testing.assert_array_equal(np.zeros(3), group_advantages(rewards, [0, 0, 0]))


def test_tolerance_may_be_set_to_nothing():
    assert group_advantages([0.6667, 0.66670001], [0, 0], tolerance=0.0)[0] < 0


def test_a_large_offset_does_not_drown_the_signal():
    shifted = group_advantages(np.array([1.0, 0, 0, 1]) * 1e4 + 1e9, [0] * 4, "dr_grpo")
    np.testing.assert_allclose(shifted, [5e3, -5e3, -5e3, 5e3], rtol=1e-12)


@pytest.mark.parametrize("rewards", [[1e-9, 1e300], [1.7e308, -1.7e308, 0.0], [1e160, 2e160], [5e-324, 1.0]])
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_extreme_rewards_stay_finite_and_keep_their_sign(estimator, rewards):
    advantages = group_advantages(rewards, [0] * len(rewards), estimator)
    assert np.isfinite(advantages).all()
    np.testing.assert_array_equal(
        np.sign(np.array(rewards) - np.mean(np.array(rewards) / 4) * 4), np.sign(advantages)
    )


@given(
    rows=st.lists(
        st.tuples(st.integers(0, 5), st.floats(-1e3, 1e3) | st.sampled_from([0.0, 1.0, NAN])),
        min_size=1,
        max_size=40,
    ),
    estimator=st.sampled_from(ESTIMATORS),
    seed=st.integers(0, 100),
)
def test_order_and_labels_of_rows_do_not_matter(rows, estimator, seed):
    groups, rewards = (np.array(side) for side in zip(*rows, strict=True))
    advantages = group_advantages(rewards, groups, estimator)
    assert np.isfinite(advantages).all()
    order = np.random.default_rng(seed).permutation(len(rows))
    named = [f"prompt {g}" for g in groups[order]]
    np.testing.assert_allclose(
        group_advantages(rewards[order], named, estimator), advantages[order], rtol=1e-6, atol=1e-9
    )


@given(seed=st.integers(0, 1000))
def test_group_baselines_sum_to_zero_within_every_group(seed):
    rng = np.random.default_rng(seed)
    groups, rewards = rng.integers(0, 5, 30), rng.normal(size=30)
    for estimator in ("grpo", "dr_grpo", "rloo"):
        sums = np.bincount(groups, weights=group_advantages(rewards, groups, estimator))
        np.testing.assert_allclose(sums, 0, atol=1e-9)


def test_standardised_mixed_groups_have_the_energy_of_their_size():
    advantages = group_advantages([1, 0, 0, 0, 1, 1, 1, 0], [0] * 3 + [1] * 5, ddof=0, eps=0.0)
    np.testing.assert_allclose([3, 5], np.bincount([0] * 3 + [1] * 5, weights=advantages**2))


def test_scaled_by_n_over_n_minus_one_rloo_is_dr_grpo():
    rewards, groups = np.random.default_rng(1).random(12), np.repeat([0, 1, 2], [2, 4, 6])
    ratio = group_advantages(rewards, groups, "rloo") / group_advantages(rewards, groups, "dr_grpo")
    np.testing.assert_allclose(ratio, np.repeat([2, 4 / 3, 6 / 5], [2, 4, 6]))


def test_lone_rows_are_zero_or_an_error_or_measured_against_the_posterior():
    rewards, groups = [1, None, 1, 0], ["x", "x", "y", "y"]
    assert group_advantages(rewards, groups)[0] == 0
    with pytest.raises(ArgumentError, match=r"group 'x' has a single valid row.*posterior"):
        group_advantages(rewards, groups, singleton="error")
    posterior = group_advantages(rewards, groups, "dr_grpo", singleton="posterior", baseline=[0.3, 0.3, 0, 0])
    np.testing.assert_allclose(posterior, [0.7, 0, 0.5, -0.5])
    with pytest.raises(ArgumentError, match="needs baseline="):
        group_advantages(rewards, groups, singleton="posterior")
    np.testing.assert_array_equal([0, 0], group_advantages([None, None], [0, 0], singleton="error"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([1.0, float("inf")], [0, 0]), r"rewards must be finite, got inf in row 1"),
        (([1.0, 0.0], [0]), r"rewards and groups .* 2 and 1"),
        (([1.0, 0.0], [0, 0], "ppo"), "estimator must be one of"),
        (([1.0, 0.0], [0, 0], "grpo", 2), r"ddof must be in \[0, 1\]"),
        (([1.0, 0.0], [0, 0], "grpo", 1, -1.0), "eps must be"),
        (([1.0, 0.0], [[0], [0]]), "hashable"),
        (([1.0, 0.0], [0.0, NAN]), "NaN labels"),
        (([1.0, 0.0], "ab"), "one label per row"),
        (([[1.0, 0.0]], [0]), r"rewards must have 1 dimension"),
    ],
)
def test_bad_arguments_are_refused_by_name(arguments, message):
    with pytest.raises(ArgumentError, match=message):
        group_advantages(*arguments)


@pytest.mark.parametrize("labels", [["b", "a", "b"], np.array([5, -1, 5]), [("q", 2), ("q", 1), ("q", 2)]])
def test_groups_are_numbered_in_order_of_first_appearance(labels):
    codes, names = group_index(labels)
    np.testing.assert_array_equal([0, 1, 0], codes)
    assert [labels[0], labels[1]] == names


def test_effective_is_judged_on_whole_groups():
    groups = [0] * 4 + [1] * 8
    assert effective_groups([1, 0, 0, 0, 0.0, *[0.95] * 7], groups).tolist() == [True, True]


def test_effective_tolerates_noise_and_counts_valid_rows_only():
    assert effective_groups([0.6667, 0.66670001], [0, 0]).tolist() == [False]
    timed_out = np.array([True, True, False])
    assert effective_groups([1, 1, 0], [0] * 3, valid=timed_out).tolist() == [False]
    assert effective_groups([1, 1, 0], [0] * 3).tolist() == [True]


def test_shaped_rewards_do_not_make_a_failed_group_effective():
    success, reward = [0] * 8, -0.3 * np.arange(8)
    assert effective_groups(success, [0] * 8).tolist() == [False]
    assert effective_groups(reward, [0] * 8).tolist() == [True]


def test_one_live_row_is_undecided_not_uniform():
    success, groups = [1, None, 1, 1, None, None], ["one", "one", "two", "two", "none", "none"]
    assert effective_groups(success, groups).tolist() == [False] * 3
    assert undecided_groups(success, groups).tolist() == [True, False, True]


def test_masks_must_be_masks():
    with pytest.raises(ArgumentError, match=r"valid must be a boolean mask of shape \(2,\)"):
        effective_groups([1, 0], [0, 0], valid=[1, 0])
