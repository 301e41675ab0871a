"""Reinforce-Ada on examples worked out by hand, and on the inputs at which its public code fails."""

from __future__ import annotations

from math import comb

import numpy as np
import pytest

from neyman import Budget, Controller, Fate, StopReason, preset
from neyman.errors import ArgumentError
from neyman.rules import Balanced, Until
from scripted import Script


def controller(rows, budget, **options):
    train_rows = options.pop("train_rows", None)
    strategy = preset("reinforce-ada", rows=rows, over_provision=1.0, **options)
    return Controller(strategy, Budget(rollouts=budget), train_rows=train_rows, fill="none")


def test_positive_exit_by_hand():
    # Rounds of 4, at most 12. a: 0000 0010 -> leaves after 8 with 1 right, 7 wrong. b: 1101 -> leaves after 4.
    # Rows of 4, half and half: a has 1 right, so 3 wrong fill; b has 1 wrong, so 3 right fill.
    host = Script({"a": [0, 0, 0, 0, 0, 0, 1, 0], "b": [1, 1, 0, 1]})
    run = controller(4, 48, step=4, most=12, train_rows=8)
    batch = host.step(run, ["a", "b"])
    assert host.asked == {"a": 8, "b": 4}
    assert batch.prompt_ids == ("a",) * 4 + ("b",) * 4
    assert batch.success.tolist() == [0, 0, 0, 1, 1, 1, 0, 1]
    # Baseline over the whole pool, no deviation: a 1/8, b 3/4.
    expected = [-1 / 8, -1 / 8, -1 / 8, 7 / 8, 1 / 4, 1 / 4, -3 / 4, 1 / 4]
    np.testing.assert_allclose(batch.advantages, expected, atol=1e-15)
    assert batch.report["rollouts_spare"] == 4.0
    assert run.ledger.rollouts(Fate.SURPLUS) == 4
    assert run.ledger.rollouts(Fate.TRAINED) == 8
    assert [report.spare for report in run.group_reports] == [4, 0]
    assert batch.spare_groups.tolist() == [0, 0, 0, 0]


def test_balance_exit_by_hand():
    # Group of 4: waits for 2 right and 2 wrong. Rounds of 3, at most 9.
    # a: 110 -> 110 001 -> 3 right, 3 wrong: leaves after 6. b: 000 100 000 -> 9, 1 right: its end, mixed.
    # c: 111 111 111 -> its end, uniform: no rows.
    host = Script({"a": [1, 1, 0, 0, 0, 1], "b": [0, 0, 0, 1, 0, 0, 0, 0, 0], "c": [1] * 9})
    run = controller(4, 60, until="balance", step=3, most=9, train_rows=12)
    batch = host.step(run, ["a", "b", "c"])
    assert host.asked == {"a": 6, "b": 9, "c": 9}
    assert batch.prompt_ids == ("a",) * 4 + ("b",) * 4
    assert batch.success.tolist() == [1, 1, 0, 0, 0, 0, 0, 1]
    np.testing.assert_allclose(batch.advantages[:4], [0.5, 0.5, -0.5, -0.5])
    np.testing.assert_allclose(batch.advantages[4:], [-1 / 9] * 3 + [8 / 9])
    assert batch.stop_reason is StopReason.POOL
    assert run.ledger.rollouts(Fate.ABANDONED) == 9


def test_rewards_with_a_bonus_keep_their_scale():
    # The public code binarises by a threshold and subtracts that baseline from RAW rewards: with 0.1 for format and 1
    # for a right answer, all advantages of a hard group are shifted. Here both come from the rewards.
    host = Script({"a": [0, 0, 0, 1]}, rewards=(0.1, 1.0))
    batch = host.step(controller(2, 4, step=4, most=4, train_rows=2), ["a"])
    mean = (3 * 0.1 + 1.0) / 4
    np.testing.assert_allclose(batch.advantages, [0.1 - mean, 1.0 - mean], atol=1e-15)


def test_a_step_in_which_no_prompt_is_balanced_still_closes():
    # The public fallback reads variables that only a balanced prompt sets.
    host = Script({"a": [0, 1, 0, 0], "b": [1, 1, 1, 0]})
    run = controller(4, 8, until="balance", step=2, most=4, train_rows=8)
    batch = host.step(run, ["a", "b"])
    assert batch.success.tolist() == [0, 1, 0, 0, 1, 1, 1, 0]
    np.testing.assert_allclose(batch.advantages[:4], [-0.25, 0.75, -0.25, -0.25])


def test_prompts_that_never_resolve_are_not_in_the_batch():
    host = Script({"a": [0] * 8, "b": [0, 1, 0, 1]})
    batch = host.step(controller(2, 32, step=4, most=8, train_rows=4), ["a", "b"])
    assert set(batch.prompt_ids) == {"b"}


def test_rows_that_only_fill_have_no_weight_and_cost_no_rollout():
    # The public code pads to the number of ranks with duplicated prompts, which are generated and thrown away.
    strategy = preset("reinforce-ada", rows=2, step=4, most=4)
    run = Controller(strategy, Budget(rollouts=8), train_rows=8, divisor=4)
    batch = Script({"a": [0, 1, 0, 0], "b": [1, 0, 0, 0]}).step(run, ["a", "b"])
    assert len(batch) == 8
    assert batch.weights.tolist() == [2.0] * 4 + [0.0] * 4
    assert run.ledger.requested == 8


def test_a_budget_that_ends_before_the_balance_trains_what_is_mixed():
    host = Script({"a": [0, 1, 0, 0, 0, 0, 0, 0]})
    batch = host.step(controller(4, 5, until="balance", step=2, most=8, train_rows=4), ["a"])
    assert host.asked == {"a": 5}
    assert batch.success.tolist() == [0, 1, 0, 0]


def test_missing_results_are_in_neither_the_exit_nor_the_baseline():
    host = Script({"a": [None, 0, 0, 1]})
    strategy = preset("reinforce-ada", rows=2, step=4, most=8)
    run = Controller(strategy, Budget(rollouts=8), train_rows=2, retries=0.0, fill="none")
    batch = host.step(run, ["a"])
    np.testing.assert_allclose(batch.advantages, [-1 / 3, 2 / 3])


@pytest.mark.parametrize(
    ("success", "rows", "chosen"),
    [
        ([1, 0, 1, 0, 1, 0], 4, [0, 1, 2, 3]),  # the earliest two of each
        ([0, 0, 0, 0, 1, 1], 4, [0, 1, 4, 5]),
        ([0, 0, 0, 0, 0, 1], 4, [0, 1, 2, 5]),  # one right: wrong ones fill
        ([1, 1, 1, 1, 0], 4, [0, 1, 2, 4]),
        ([1, 1, 1], 4, [0, 1, 2]),  # fewer than rows: all
        ([0, 1, 1, 0, 0], 3, [0, 1, 3]),  # odd: the smaller half is the right ones'
    ],
)
def test_balanced_by_hand(success, rows, chosen):
    assert Balanced().choose([bool(s) for s in success], rows) == chosen


def test_keeping_a_part_contradicts_training_everything():
    with pytest.raises(ArgumentError, match="trains a part of each group"):
        preset("reinforce-ada", close="fixed_spend")
    with pytest.raises(ArgumentError, match="at least 2 rows"):
        Controller(preset("reinforce-ada"), Budget(rollouts=32), train_rows=2).begin(["a", "b"])


def _pool_mean(rule: Until, most: int, p: float) -> float:
    """Return the exact expectation of the mean over a prompt's rollouts when it leaves."""
    reached, expected, drawn = {0: 1.0}, 0.0, 0
    for look in rule.looks(most):
        later: dict[int, float] = {}
        for before, chance in reached.items():
            for new in range(look - drawn + 1):
                ways = comb(look - drawn, new) * p**new * (1 - p) ** (look - drawn - new)
                later[before + new] = later.get(before + new, 0.0) + chance * ways
        drawn = look
        said = {s: rule.decide(s, look, most, (1.0, 1.0)) for s in later}
        expected += sum(chance * s / look for s, chance in later.items() if said[s] != "continue")
        reached = {s: chance for s, chance in later.items() if said[s] == "continue"}
    return expected


def test_optional_stopping_biases_the_pools_mean_as_documented():
    # docs/methods/reinforce-ada.md: rounds of 8, at most 32.
    positive, balance = Until(8), Until(8, right=2, wrong=2)
    assert [round(_pool_mean(positive, 32, p), 3) for p in (0.02, 0.05, 0.1, 0.5)] == [
        0.036,
        0.078,
        0.13,
        0.501,
    ]
    assert [round(_pool_mean(balance, 32, p), 3) for p in (0.02, 0.05, 0.1, 0.5)] == [
        0.024,
        0.066,
        0.132,
        0.5,
    ]
    # A simulation through the controller agrees: 400 prompts of rate .1, one draw to the exit each.
    rng = np.random.default_rng(0)
    host = Script({k: rng.binomial(1, 0.1, 32).tolist() for k in range(400)})
    run = controller(4, 400 * 32, step=8, most=32)
    host.step(run, range(400))
    means = np.array([r.successes / r.trials for r in run.group_reports])
    assert abs(means.mean() - 0.130) < 4 * means.std() / 20
