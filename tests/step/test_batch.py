"""POLARIS-style replacement: which groups count how often, and that it is the gradient of copied rows."""

from __future__ import annotations

import numpy as np
import pytest

from neyman import Budget, Controller, Outcome, preset, prompt_weights
from neyman.errors import ArgumentError


def close(successes, group_size=4, **options):
    """Run one step in which prompt k has ``successes[k]`` of ``group_size`` successes."""
    seed = options.pop("seed", 0)
    strategy = preset("polaris", group_size=group_size, estimator="rloo", **options)
    budget = Budget(rollouts=group_size * len(successes))
    controller = Controller(strategy, budget=budget, seed=seed)
    controller.begin(range(len(successes)))
    controller.tell(
        Outcome(
            rollout_id=rollout_id,
            prompt_id=request.prompt_id,
            reward=float(j < successes[request.prompt_id]),
            n_tokens=5 + j,
        )
        for request in controller.ask()
        for j, rollout_id in enumerate(request.rollout_ids)
    )
    return controller.finish()


def copies_of(batch):
    return [int(batch.copies[batch.groups == g].max()) for g in range(int(batch.groups.max()) + 1)]


def test_enough_good_groups_each_stand_in_at_most_once():
    # 4 of 6 carry signal (.67 > .3) and 2 do not: two different good groups count twice.
    batch = close([0, 1, 2, 4, 3, 2])
    copies = copies_of(batch)
    assert (copies[0], copies[3]) == (0, 0)
    assert sorted(copies) == [0, 0, 1, 1, 2, 2]
    assert batch.report["groups_replaced"] == 2.0
    # R = 24 rows, 6 counts, 4 rows each: a group that counts once has 24/(6 x 4) = 1 on each row, twice 2.
    assert batch.weights.tolist() == [float(n) for n in copies for _ in range(4)]


def test_too_few_good_groups_for_one_each_are_drawn_with_replacement():
    batch = close([0, 4, 0, 2, 0], replace_above=0.1)  # one good, four dead
    assert copies_of(batch) == [0, 0, 0, 5, 0]


@pytest.mark.parametrize(("successes", "replaced"), [([2, 0, 0, 0, 0, 0, 0, 0, 0, 0], 0), ([2] * 3 + [0] * 7, 0),
                                                     ([2] * 4 + [0] * 6, 6)])  # fmt: skip
def test_up_to_the_stated_share_of_good_groups_nothing_is_replaced(successes, replaced):
    batch = close(successes)
    assert batch.report["groups_replaced"] == replaced
    assert (batch.weights == 1.0).all() == (replaced == 0)


def test_all_dead_or_all_good_leaves_everything_as_it_is():
    for successes in ([0, 4, 0], [1, 2, 3]):
        assert copies_of(close(successes)) == [1, 1, 1]


def test_the_weights_are_those_of_the_copied_rows_and_no_rollout_trains_twice():
    # The published code overwrites dead groups by copies of good ones. The mean over its rows is ours.
    batch = close([0, 1, 2, 4, 3, 0], seed=3)
    assert len(set(batch.rollout_ids.tolist())) == len(batch)
    score = np.cos(np.arange(len(batch)))
    ours = (batch.weights * batch.advantages * score).mean()
    copied = np.concatenate(
        [np.flatnonzero(batch.groups == g) for g, n in enumerate(copies_of(batch)) for _ in range(n)]
    )
    assert len(copied) == len(batch)
    assert ours == pytest.approx((batch.advantages * score)[copied].mean(), abs=1e-15)


def test_the_draw_is_keyed_by_seed_and_step():
    successes = [0, 4, 0] + [2] * 9
    draws = {tuple(copies_of(close(successes, seed=seed))) for seed in range(8)}
    assert len(draws) > 4
    assert copies_of(close(successes, seed=5)) == copies_of(close(successes, seed=5))


def test_rows_that_train_without_signal_are_not_replaced():
    controller = Controller(preset("polaris", group_size=2), budget=Budget(rollouts=6))
    controller.begin(["protected", "dead", "good"])
    controller.tell(
        Outcome(rollout_id=i, prompt_id=q.prompt_id, reward=float(q.prompt_id == "good" and j == 0),
                protected=q.prompt_id == "protected")
        for q in controller.ask() for j, i in enumerate(q.rollout_ids)
    )  # fmt: skip
    assert copies_of(controller.finish()) == [1, 0, 2]


@pytest.mark.parametrize(
    ("aggregation", "prompt_weight", "expected"),
    [
        # groups a (2 rows, twice), b (1 row), tokens 1, 3 and 4: T = 8, R = 3; by hand
        ("sequence_mean", "equal", [3 / 6 * 2, 3 / 6 * 2, 3 / 3]),
        ("constant", "by_rollouts", [2 * 3 / 5, 2 * 3 / 5, 3 / 5]),
        # the copies hold 5 rows and 2 x 4 + 4 = 12 tokens
        ("token_mean", "equal", [8 / 12 * 5 / 6 * 2, 8 / 12 * 5 / 6 * 2, 8 / 12 * 5 / 3]),
        ("token_mean", "by_rollouts", [8 / 12 * 2, 8 / 12 * 2, 8 / 12]),
        ("token_mean", "equal_tokens", [8 / (3 * 4) * 2, 8 / (3 * 4) * 2, 8 / (3 * 4)]),
    ],
)
def test_copies_multiply_every_weighting(aggregation, prompt_weight, expected):
    weights = prompt_weights(
        ["a", "a", "b"], [1, 3, 4], prompt_weight=prompt_weight, aggregation=aggregation, copies=[2, 2, 1]
    )
    np.testing.assert_allclose(weights, expected, rtol=1e-15)


def test_copies_that_make_no_sense_are_refused():
    with pytest.raises(ArgumentError, match="one entry per row"):
        prompt_weights(["a", "b"], copies=[1])
    with pytest.raises(ArgumentError, match="at least 1"):
        prompt_weights(["a", "b"], copies=[1, 0])
