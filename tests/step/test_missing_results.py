"""Missing results: counted, drawn again, never reward 0."""

from __future__ import annotations

import math

from neyman import Budget, Controller, Fate, StopReason, preset
from strategies import (
    Host,
    assert_consistent,
    outcome,
    run_step,
    simple,
)


def test_a_missing_result_is_counted_drawn_again_and_never_a_zero():
    controller = simple(rollouts=8, retries=0.5)
    controller.begin(["a", "b"])
    first = controller.ask()
    told = [outcome(i, r.prompt_id, 1.0) for r in first for i in r.rollout_ids]
    told[0] = outcome(told[0].rollout_id, "a", None)
    told[1] = outcome(told[1].rollout_id, "a", math.nan)
    told[5] = outcome(told[5].rollout_id, "b", 1.0, status="timeout")
    controller.tell(told)
    again = controller.ask()
    assert [(r.prompt_id, len(r.rollout_ids)) for r in again] == [("a", 2), ("b", 1)]
    assert all(r.priority == 0 for r in again)
    controller.tell(outcome(i, r.prompt_id, 1.0) for r in again for i in r.rollout_ids)
    batch = controller.finish()
    assert batch.rewards.tolist() == [1.0] * 8
    assert controller.ledger.rollouts(Fate.FAILED) == 2
    assert controller.ledger.rollouts(Fate.TIMEOUT) == 1
    assert controller.ledger.retries == 3
    belief = controller.strategy.belief.predict(["a"])[0]
    assert belief > 0.8


def test_retries_stop_at_the_allowance_and_at_the_tries_of_a_slot():
    def requested(retries, **options):
        controller = simple(rollouts=8, retries=retries, options=options)
        _, asked = run_step(controller, Host(failing=1.0), ["a"])
        return sum(len(r.rollout_ids) for r in asked)

    assert requested(0.0) == 8
    assert requested(0.5) == 12
    assert requested(1.0, max_tries=3) == 16
    assert requested(1.0, max_tries=1) == 8


def test_when_everything_fails_the_batch_says_so_and_the_first_error_is_kept():
    controller = simple(rollouts=8, train_rows=8)
    batch, _ = run_step(controller, Host(failing=1.0), ["a", "b"])
    assert batch.stop_reason is StopReason.FAILED
    assert controller.first_error == "the engine died"
    assert not batch.weights.any()
    assert not batch.counted.any()


def test_delivered_rollouts_without_a_reward_keep_their_rows_where_rows_are_filled():
    controller = simple(rollouts=8, train_rows=8, retries=0.0)
    controller.begin(["a", "b"])
    requests = controller.ask()
    ids = [i for r in requests for i in r.rollout_ids]
    controller.tell(
        outcome(i, r.prompt_id, None if r.prompt_id == "a" or i % 2 else 1.0)
        for r in requests
        for i in r.rollout_ids
    )
    batch = controller.finish()
    assert batch.rollout_ids.tolist() == ids
    assert batch.counted.sum() == 2
    assert batch.weights.tolist() == [0, 0, 0, 0, 4, 0, 4, 0]


def test_a_group_that_lacks_results_is_trained_on_what_is_there_or_dropped():
    def rows(incomplete):
        controller = simple(rollouts=8, retries=0.0, options={"incomplete": incomplete})
        controller.begin(["a", "b"])
        requests = controller.ask()
        gone = requests[0].rollout_ids[0]
        controller.tell(
            outcome(
                i, r.prompt_id, None if i == gone else float(i % 2), status="failed" if i == gone else "ok"
            )
            for r in requests
            for i in r.rollout_ids
        )
        batch = controller.finish()
        assert_consistent(controller)
        return len(batch), controller.ledger.rollouts(Fate.DROPPED)

    assert rows("keep") == (7, 0)
    assert rows("drop") == (4, 3)


def test_a_group_that_a_verdict_ended_lacks_nothing():
    strategy = preset("sara", group_size=8, close="fixed_spend", incomplete="drop")
    controller = Controller(strategy, budget=Budget(rollouts=12))
    controller.begin(["dead", "mixed"])
    while not controller.is_done:
        controller.tell(
            outcome(i, r.prompt_id, float(n % 2) * (r.prompt_id == "mixed"))
            for r in controller.ask()
            for n, i in enumerate(r.rollout_ids)
        )
    assert controller.finish().prompt_ids == ("dead",) * 4 + ("mixed",) * 8


def test_fixed_train_replaces_a_committed_group_that_stays_short_when_such_are_dropped():
    controller = Controller(
        preset("dynamic-sampling", group_size=4, incomplete="drop", over_provision=1.0),
        budget=Budget(rollouts=64),
        train_rows=8,
        retries=0.0,
        pool=range(20),
    )
    controller.begin([0, 1])
    requests = controller.ask()
    controller.tell(
        outcome(i, r.prompt_id, None if r.prompt_id == 0 and i == 0 else float(i % 2))
        for r in requests
        for i in r.rollout_ids
    )
    assert sum(len(r.rollout_ids) for r in controller.ask()) == 4, "another group is opened"
