"""Prompt weights: exact gradients of a linear model under each host loss, against the mean of group means."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from neyman.errors import ArgumentError
from neyman.formulas import prompt_weights

CONSTANT = 50.0


class Batch:
    """Rows whose per-token loss is linear in three weights: advantage times feature, so gradients are exact."""

    def __init__(self, seed, sizes, dead=(), padding=0):
        rng = np.random.default_rng(seed)
        self.groups = np.repeat(np.arange(len(sizes)), sizes)
        self.groups = np.concatenate([self.groups, np.full(padding, 0)])
        rows = len(self.groups)
        order = rng.permutation(rows)
        self.trained = np.concatenate(
            [~np.isin(self.groups[: rows - padding], dead), np.zeros(padding, bool)]
        )
        self.groups, self.trained = self.groups[order], self.trained[order]
        self.tokens = rng.integers(1, 9, rows)
        self.slopes = [rng.normal(size=(t, 3)) * rng.normal() for t in self.tokens]

    def host(self, aggregation, weights):
        """The gradient of the host's flat loss with each row's advantage multiplied by its weight."""
        sums = np.array([w * s.sum(axis=0) for w, s in zip(weights, self.slopes, strict=True)])
        rows = len(self.groups)
        if aggregation == "sequence_mean":
            return (sums / self.tokens[:, None]).sum(axis=0) / rows
        return sums.sum(axis=0) / (rows * CONSTANT if aggregation == "constant" else self.tokens.sum())

    def mean_of_group_means(self, of_row):
        """The mean over prompts with trained rows of the mean over their trained rows."""
        means = []
        for group in np.unique(self.groups[self.trained]):
            rows = np.flatnonzero((self.groups == group) & self.trained)
            means.append(np.mean([of_row(i) for i in rows], axis=0))
        return np.mean(means, axis=0)


BATCHES = [
    Batch(0, [2, 5, 3, 8]),
    Batch(1, [2, 5, 3, 8], dead=[1, 3]),
    Batch(2, [4, 4, 4], dead=[2], padding=3),
    Batch(3, [1, 6, 9], padding=5),
]


@pytest.mark.parametrize("batch", BATCHES)
def test_sequence_mean_is_the_mean_of_group_means_of_token_means(batch):
    weights = prompt_weights(batch.groups, trained=batch.trained)
    expected = batch.mean_of_group_means(lambda i: batch.slopes[i].mean(axis=0))
    np.testing.assert_allclose(batch.host("sequence_mean", weights), expected, rtol=1e-12)


@pytest.mark.parametrize("batch", BATCHES)
def test_constant_divisor_is_the_mean_of_group_means_of_token_sums(batch):
    weights = prompt_weights(batch.groups, aggregation="constant", trained=batch.trained)
    expected = batch.mean_of_group_means(lambda i: batch.slopes[i].sum(axis=0) / CONSTANT)
    np.testing.assert_allclose(batch.host("constant", weights), expected, rtol=1e-12)


@pytest.mark.parametrize("batch", BATCHES)
def test_token_mean_equal_is_that_of_token_sums_times_one_scalar_of_the_trained_rows(batch):
    weights = prompt_weights(batch.groups, batch.tokens, aggregation="token_mean", trained=batch.trained)
    expected = batch.mean_of_group_means(lambda i: batch.slopes[i].sum(axis=0))
    scalar = batch.trained.sum() / batch.tokens[batch.trained].sum()
    np.testing.assert_allclose(batch.host("token_mean", weights), scalar * expected, rtol=1e-12)


@pytest.mark.parametrize("batch", BATCHES)
def test_token_mean_equal_tokens_is_the_mean_over_prompts_of_token_means(batch):
    weights = prompt_weights(
        batch.groups,
        batch.tokens,
        prompt_weight="equal_tokens",
        aggregation="token_mean",
        trained=batch.trained,
    )
    means = [
        np.concatenate([batch.slopes[i] for i in np.flatnonzero((batch.groups == g) & batch.trained)]).mean(
            axis=0
        )
        for g in np.unique(batch.groups[batch.trained])
    ]
    np.testing.assert_allclose(batch.host("token_mean", weights), np.mean(means, axis=0), rtol=1e-12)


@pytest.mark.parametrize("aggregation", ["sequence_mean", "constant", "token_mean"])
@pytest.mark.parametrize("prompt_weight", ["equal", "by_rollouts"])
def test_rows_that_are_left_out_do_not_dilute_the_loss(aggregation, prompt_weight):
    options = {"prompt_weight": prompt_weight, "aggregation": aggregation}
    full = Batch(4, [3, 6, 4], dead=[1], padding=4)
    alone = Batch(4, [1])
    keep = full.trained
    alone.groups, alone.tokens = full.groups[keep], full.tokens[keep]
    alone.slopes = [s for s, kept in zip(full.slopes, keep, strict=True) if kept]
    with_dead = full.host(aggregation, prompt_weights(full.groups, full.tokens, trained=keep, **options))
    without = alone.host(aggregation, prompt_weights(alone.groups, alone.tokens, **options))
    np.testing.assert_allclose(with_dead, without, rtol=1e-12)


@pytest.mark.parametrize("aggregation", ["sequence_mean", "constant", "token_mean", "micro_token_mean"])
@pytest.mark.parametrize("size", [1, 3, 7, 8])
@pytest.mark.parametrize("prompts", [1, 3, 10, 49])
def test_equal_groups_leave_the_host_exactly_as_it_is(aggregation, size, prompts):
    groups = np.arange(prompts * size) % prompts
    weights = prompt_weights(groups, np.arange(1, prompts * size + 1), aggregation=aggregation)
    np.testing.assert_array_equal(np.ones(prompts * size), weights)


def test_golden_factors():
    np.testing.assert_allclose(prompt_weights([7, 7, 7, 8]), [2 / 3, 2 / 3, 2 / 3, 2])
    masked = prompt_weights([7, 7, 7, 8, 9], trained=np.array([True, True, False, True, False]))
    np.testing.assert_allclose(masked, [1.25, 1.25, 0, 2.5, 0])  # R = 5 rows, B = 2 live groups


def test_dead_groups_that_are_kept_count_as_prompts():
    kept = prompt_weights([0, 0, 1, 1, 1, 1])
    excluded = prompt_weights([0, 0, 1, 1, 1, 1], trained=np.array([True] * 2 + [False] * 4))
    np.testing.assert_allclose(kept[:2], 1.5)
    np.testing.assert_allclose(excluded[:2], 3.0)


def test_four_live_of_eight_groups_are_normalised_by_four():
    groups = np.repeat(np.arange(8), 4)
    weights = prompt_weights(groups, trained=groups < 4)
    np.testing.assert_allclose(weights, np.where(groups < 4, 2.0, 0.0))


@given(sizes=st.lists(st.integers(1, 9), min_size=1, max_size=9), seed=st.integers(0, 99))
def test_weights_average_to_one_over_the_rows_so_the_step_size_keeps_its_meaning(sizes, seed):
    groups = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(sizes)), sizes))
    assert prompt_weights(groups).mean() == pytest.approx(1.0)


def test_nothing_trained_gives_zeros():
    none = np.zeros(3, dtype=bool)
    for options in (
        {},
        {"prompt_weight": "by_rollouts"},
        {"aggregation": "token_mean", "n_tokens": [1, 2, 3]},
    ):
        np.testing.assert_array_equal(np.zeros(3), prompt_weights([0, 0, 1], trained=none, **options))


def test_a_group_without_tokens_has_no_token_mean():
    weights = prompt_weights([0, 0, 1], [2, 2, 0], prompt_weight="equal_tokens", aggregation="token_mean")
    np.testing.assert_allclose(weights, [1, 1, 0])


@pytest.mark.parametrize(
    ("groups", "options", "message"),
    [
        ([0, 0, 1], {"aggregation": "micro_token_mean"}, r"micro_token_mean.*dr_grpo.*equal group sizes"),
        ([0, 0], {"aggregation": "micro_token_mean", "trained": np.array([True, False])}, "micro_token_mean"),
        ([0, 0], {"prompt_weight": "equal_tokens"}, "equal_tokens.*'sequence_mean'"),
        ([0, 0], {"prompt_weight": "equal_tokens", "aggregation": "token_mean"}, "n_tokens is missing"),
        (
            [0, 0],
            {"aggregation": "token_mean", "trained": np.array([True, False])},
            "n_tokens is missing",
        ),
        ([0, 0], {"aggregation": "bnpo"}, "aggregation must be one of"),
        ([0, 0], {"prompt_weight": "fair"}, "prompt_weight must be one of"),
        ([0, 0], {"trained": np.array([1, 0])}, "trained must be a boolean mask"),
        (
            [0, 0],
            {"n_tokens": [1, 2, 3], "prompt_weight": "equal_tokens", "aggregation": "token_mean"},
            "n_tokens and groups .* 3 and 2",
        ),
    ],
)
def test_bad_arguments_are_refused_by_name(groups, options, message):
    with pytest.raises(ArgumentError, match=message):
        prompt_weights(groups, **options)
