"""What users of RL trainers ran into, case by case, and carry-over from step to step."""

from __future__ import annotations

import numpy as np
import pytest

import neyman
from neyman import Budget, Controller, Fate, StopReason, preset
from neyman.beliefs import Counts
from strategies import Host, assert_consistent, outcome, run_step, simple, tell_all


def mixed_everywhere(controller):
    """Run the open step in a world where every group is mixed."""
    while not controller.is_done:
        tell_all(controller, lambda place: float(place % 2))
    return controller.finish()


def test_case_01_a_batch_that_never_fills_comes_back_short_with_the_reason():
    controller = Controller(
        preset("dynamic-sampling", group_size=4), budget=Budget(rollouts=128), train_rows=64, pool=range(400)
    )
    rates = {i: 0.5 if i % 20 == 0 else 0.0 for i in range(400)}
    batch, _ = run_step(controller, Host(rates=rates), range(16))
    assert batch.stop_reason is StopReason.BUDGET
    assert "raise it or lower train_rows" in batch.stop_reason.value
    assert len(batch) == 64
    assert 0 < batch.report["effective_groups"] < 16


def test_case_03_a_step_without_any_effective_group_gives_a_batch_without_weight():
    controller = Controller(
        preset("dynamic-sampling", group_size=4), budget=Budget(rollouts=16), train_rows=16
    )
    batch, _ = run_step(controller, Host(rates=dict.fromkeys(range(4), 0.0)), range(4))
    assert batch.stop_reason in (StopReason.BUDGET, StopReason.POOL)
    assert not batch.weights.any()
    assert len(batch) == 16
    assert batch.report["rows"] - batch.report["rows_filled"] == 0
    assert controller.ledger.rollouts(Fate.ABANDONED) == 16
    bare = Controller(
        preset("dynamic-sampling", group_size=4), budget=Budget(rollouts=16), train_rows=16, fill="none"
    )
    assert len(run_step(bare, Host(rates=dict.fromkeys(range(4), 0.0)), range(4))[0]) == 0


def test_case_04_refills_are_as_small_as_what_is_missing():
    controller = Controller(
        preset("dynamic-sampling", group_size=4, over_provision=1.0),
        budget=Budget(rollouts=400),
        train_rows=16,
        pool=range(100),
        retries=0.0,
    )
    _, asked = run_step(controller, Host(), range(4))
    rejected = controller.ledger.rollouts(Fate.ABANDONED)
    assert sum(len(r.rollout_ids) for r in asked) == 16 + rejected
    assert rejected > 0


def test_case_05_surplus_is_offered_first_next_step_then_dropped_and_keeps_its_policy_version():
    def run(max_age):
        controller = Controller(
            preset("dynamic-sampling", group_size=4, over_provision=300 / 256, max_age=max_age),
            budget=Budget(rollouts=1200),
            train_rows=1024,
        )
        controller.begin(range(300), policy_version=10)
        first = mixed_everywhere(controller)
        return controller, first

    controller, first = run(max_age=1)
    assert len(set(first.prompt_ids)) == 256
    assert len(controller.held_rollouts) == 44 * 4
    assert first.report.get("rollouts/surplus", 0) == 0
    controller.begin(range(300, 600), policy_version=11)
    assert len(controller.held_rollouts) == 44 * 4, "they are in play"
    second = mixed_everywhere(controller)
    assert second.prompt_ids[: 44 * 4 : 4] == tuple(range(256, 300))
    assert second.age[: 44 * 4].tolist() == [1] * 176
    assert set(second.policy_version[:176].tolist()) == {10}
    assert set(second.policy_version[176:].tolist()) == {11}
    assert controller.ledger.visits(256) == 1
    assert_consistent(controller)

    dropped, _ = run(max_age=0)
    assert dropped.ledger.rollouts(Fate.SURPLUS) == 44 * 4
    assert dropped.held_rollouts == []


def test_carried_rollouts_that_grow_too_old_expire():
    controller = Controller(
        preset("dynamic-sampling", group_size=4, over_provision=4.0, max_age=1),
        budget=Budget(rollouts=64),
        train_rows=16,
    )
    controller.begin(range(16))
    mixed_everywhere(controller)
    assert len(controller.held_rollouts) == 12 * 4
    controller.begin(range(16, 20), step=5)
    mixed_everywhere(controller)
    assert controller.ledger.rollouts(Fate.EXPIRED) == 12 * 4
    assert_consistent(controller)


def test_carried_groups_of_another_size_never_overfill_the_rows():
    controller = Controller(
        preset("dynamic-sampling", over_provision=2.0, max_age=3),
        budget=Budget(rollouts=64),
        train_rows=32,
        pool=range(200),
    )
    carried = 0
    for step, count in enumerate((4, 8, 4, 16)):  # groups of 8, 4, 8 and 2
        controller.begin(range(20 * step, 20 * step + count))
        batch = mixed_everywhere(controller)
        assert len(batch) == 32
        carried += int((batch.age > 0).sum())
        assert_consistent(controller)
    assert carried > 0


def test_a_carried_group_that_lacks_results_is_completed():
    controller = Controller(
        preset("dynamic-sampling", group_size=4, over_provision=2.0, max_age=1),
        budget=Budget(rollouts=64),
        train_rows=8,
        retries=0.0,
    )
    controller.begin(range(4))
    controller.tell(
        outcome(i, r.prompt_id, None if r.prompt_id > 1 and n == 0 else float(n % 2))
        for r in controller.ask()
        for n, i in enumerate(r.rollout_ids)
    )
    controller.finish()
    controller.begin(range(4, 6))
    requests = controller.ask()
    assert [(r.prompt_id, len(r.rollout_ids)) for r in requests] == [(2, 1), (3, 1)]
    controller.tell(outcome(i, r.prompt_id, 1.0) for r in requests for i in r.rollout_ids)
    assert controller.is_done
    batch = controller.finish()
    assert batch.counted.all()
    assert batch.age.tolist() == [1, 1, 1, 0] * 2


def test_case_06_what_is_in_flight_when_the_pool_ends_is_not_thrown_away():
    controller = Controller(
        preset("dynamic-sampling", group_size=2), budget=Budget(rollouts=20), train_rows=6, pool=range(3)
    )
    controller.begin([0, 1, 2])
    requests = controller.ask()
    by_prompt = {r.prompt_id: r.rollout_ids for r in requests}
    controller.tell(outcome(i, 0, float(n)) for n, i in enumerate(by_prompt[0]))
    controller.tell(outcome(i, 1, 1.0) for i in by_prompt[1])
    assert controller.ask() == []
    assert not controller.is_done, "the third is pending"
    controller.tell(outcome(i, 2, float(n)) for n, i in enumerate(by_prompt[2]))
    batch = controller.finish()
    assert batch.report["groups"] == 2
    assert batch.stop_reason is StopReason.POOL


def test_case_08_a_prompt_that_always_raises_is_given_up_after_its_tries():
    controller = simple(rollouts=8, retries=1.0, options={"max_tries": 3})
    controller.begin(["x", "ok"])
    tried = 0
    while not controller.is_done:
        for r in controller.ask():
            tried += len(r.rollout_ids) * (r.prompt_id == "x")
            controller.tell(
                outcome(i, r.prompt_id, None if r.prompt_id == "x" else 1.0, error="boom")
                for i in r.rollout_ids
            )
    batch = controller.finish()
    assert tried == 4 * 3
    report = next(r for r in controller.group_reports if r.prompt_id == "x")
    assert report.reason == neyman.Reason.GIVEN_UP.value
    assert controller.first_error == "boom"
    assert batch.stop_reason is StopReason.COMPLETE


def test_case_09_aborted_rollouts_are_refilled_one_by_one():
    controller = simple(rollouts=8 * 100, retries=0.2)
    batch, asked = run_step(controller, Host(failing=0.05), range(100))
    extra = sum(len(r.rollout_ids) for r in asked) - 800
    assert 20 < extra < 70  # 5 %, not the third of all groups that hold an aborted rollout
    assert batch.counted.all()


@pytest.mark.parametrize("outcomes", [[1, 0, 0, 0], [0] + [1] * 7])
def test_case_10_groups_are_kept_whole(outcomes):
    controller = Controller(
        preset("dynamic-sampling", group_size=len(outcomes)), budget=Budget(rollouts=len(outcomes))
    )
    controller.begin(["a"])
    tell_all(controller, lambda place: float(outcomes[place]))
    assert controller.finish().rewards.tolist() == outcomes


def test_case_11_only_valid_rows_make_a_group_effective():
    controller = Controller(preset("dynamic-sampling", group_size=3), budget=Budget(rollouts=3), retries=0.0)
    controller.begin(["a"])
    (request,) = controller.ask()
    a, b, c = request.rollout_ids
    controller.tell([outcome(a, "a", 1.0), outcome(b, "a", 0.0, status="timeout"), outcome(c, "a", None)])
    assert len(controller.finish()) == 0


def test_case_12_shaped_rewards_do_not_make_a_failed_group_effective():
    controller = Controller(preset("dynamic-sampling", group_size=8), budget=Budget(rollouts=8))
    controller.begin(["a"])
    (request,) = controller.ask()
    controller.tell(outcome(i, "a", -0.3 * n, success=False) for n, i in enumerate(request.rollout_ids))
    assert len(controller.finish()) == 0
    assert controller.ledger.rollouts(Fate.ABANDONED) == 8


def test_case_13_missing_rewards_are_in_no_count():
    controller = Controller(
        preset("uniform", belief=Counts(prior=(1.0, 1.0), discount=1, fade=1)),
        budget=Budget(rollouts=4),
        retries=0.0,
    )
    controller.begin(["a"])
    (request,) = controller.ask()
    controller.tell(
        outcome(i, "a", r) for i, r in zip(request.rollout_ids, [1.0, None, 0.0, None], strict=True)
    )
    controller.finish()
    assert [x.tolist() for x in controller.strategy.belief.beta_parameters(["a"])] == [[2.0], [2.0]]
    controller.begin(["b"])
    tell_all(controller, lambda _: None)
    controller.finish()
    assert controller.strategy.belief.evidence(["b"])[1].tolist() == [0.0]


@pytest.mark.parametrize("rewards", [[1.0], [1.0, 0.0], [1.0] + [None] * 7, [None] * 4])
def test_case_14_advantages_are_always_finite(rewards):
    controller = simple(rollouts=len(rewards), train_rows=len(rewards), retries=0.0)
    controller.begin(["a"])
    (request,) = controller.ask()
    controller.tell(outcome(i, "a", r) for i, r in zip(request.rollout_ids, rewards, strict=True))
    batch = controller.finish()
    assert np.isfinite(batch.advantages).all()
    assert len(batch) == len(rewards)


def test_case_16_dead_groups_can_be_left_out_of_the_denominator():
    def weights(dead_groups):
        controller = simple(rollouts=16, options={"dead_groups": dead_groups})
        controller.begin(range(8))
        for r in controller.ask():
            controller.tell(
                outcome(i, r.prompt_id, float(n if r.prompt_id < 4 else 0))
                for n, i in enumerate(r.rollout_ids)
            )
        return controller.finish().weights.tolist()

    assert weights("keep") == [1.0] * 16
    assert weights("exclude") == [2.0] * 8 + [0.0] * 8


def test_case_17_counts_may_differ_and_every_row_knows_its_prompt():
    controller = Controller(
        preset("vip", lower=2, upper=32, belief=Counts(prior=(1.0, 1.0))), budget=Budget(rollouts=41)
    )
    controller.strategy.belief.update([0, 1, 2], [9, 0, 5], [9, 9, 10])
    batch, asked = run_step(controller, Host(), [0, 1, 2])
    counts = {r.prompt_id: len(r.rollout_ids) for r in asked}
    assert len(set(counts.values())) > 1
    assert {p: batch.prompt_ids.count(p) for p in (0, 1, 2)} == counts


def test_case_25_fragments_of_a_trajectory_are_one_outcome():
    controller = simple(rollouts=8)
    controller.begin(["a"])
    (request,) = controller.ask()
    pieces = [
        outcome(i, "a", None if part < 2 else float(n % 2), n_tokens=10, trajectory_id=f"t{i}")
        for n, i in enumerate(request.rollout_ids)
        for part in range(3)
    ]
    controller.tell(pieces)
    batch = controller.finish()
    assert len(batch) == 8
    assert batch.counted.all(), "the piece that has the reward speaks for all"
    assert batch.report["tokens"] == 240
    assert controller.ledger.tokens() == 240


def test_fragments_that_come_later_add_their_tokens():
    controller = simple(rollouts=2)
    controller.begin(["a"])
    (request,) = controller.ask()
    first, second = request.rollout_ids
    controller.tell([outcome(first, "a", 1.0, n_tokens=5, trajectory_id="t")])
    controller.tell(
        [outcome(first, "a", 0.0, n_tokens=6, trajectory_id="t"), outcome(first, "a", 0.0, n_tokens=7)]
    )
    controller.tell([outcome(second, "a", 0.0, n_tokens=1)])
    assert controller.finish().rewards.tolist() == [1.0, 0.0]
    assert controller.ledger.tokens() == 12


def test_case_29_the_account_equals_a_hand_count():
    controller = Controller(
        preset("sara", group_size=4, schedule=(2,), over_provision=1.5),
        budget=Budget(rollouts=32),
        train_rows=8,
    )
    controller.begin(["good", "bad", "fine"])
    table = {"good": [1.0, 0.0, 1.0, 1.0], "bad": [0.0, 0.0], "fine": [0.0, 1.0, None, 0.0, 1.0]}
    place = dict.fromkeys(table, 0)
    while not controller.is_done:
        for r in controller.ask():
            for i in r.rollout_ids:
                reward = table[r.prompt_id][place[r.prompt_id]]
                place[r.prompt_id] += 1
                controller.tell([outcome(i, r.prompt_id, reward, n_tokens=10)])
    controller.record_padding(1, 7)
    controller.finish()
    account = {
        k: (v["rollouts"], v["tokens"]) for k, v in controller.ledger.account().items() if v["rollouts"]
    }
    assert account == {"trained": (8, 80), "abandoned": (2, 20), "failed": (1, 10), "padding": (1, 7)}
    assert controller.ledger.requested == 12


def test_a_rule_that_raises_loses_nothing_that_was_carried():
    class Moody:
        fails = False

        def pick(self, view, count):
            if self.fails:
                raise RuntimeError("not today")
            return list(view.candidates[:count])

    moody = Moody()
    controller = Controller(
        preset("dynamic-sampling", group_size=4, over_provision=2.0, max_age=2, select=moody),
        budget=Budget(rollouts=64),
        train_rows=16,
    )
    controller.begin(range(8))
    mixed_everywhere(controller)
    held = controller.held_rollouts
    assert len(held) == 4 * 4
    controller._engine.state.carried.pop()  # so that the next step still needs one prompt
    moody.fails = True
    with pytest.raises(RuntimeError, match="not today"):
        controller.begin(range(8, 16))
    moody.fails = False
    assert controller.held_rollouts == held[:12]
    controller.begin(range(8, 16))
    assert mixed_everywhere(controller).rollout_ids[:12].tolist() == held[:12]


def test_the_belief_learns_from_what_is_carried_once():
    controller = Controller(
        preset(
            "dynamic-sampling",
            group_size=4,
            over_provision=2.0,
            max_age=1,
            belief=Counts(prior=(1.0, 1.0), discount=1.0, fade=1.0),
        ),
        budget=Budget(rollouts=64),
        train_rows=16,
    )
    controller.begin(range(8))
    mixed_everywhere(controller)
    controller.begin(range(8, 12))
    assert set(mixed_everywhere(controller).prompt_ids) == {4, 5, 6, 7}
    assert controller.strategy.belief.evidence(range(8))[1].tolist() == [4.0] * 8


def test_what_a_verdict_gave_up_is_not_carried_when_late_results_make_it_mixed():
    controller = Controller(
        preset("sara", group_size=8, speculate=True, max_age=1), budget=Budget(rollouts=8), train_rows=8
    )
    controller.begin(["a"])
    (request,) = controller.ask()
    controller.tell(outcome(i, "a", 0.0) for i in request.rollout_ids[:4])
    controller.tell(outcome(i, "a", 1.0) for i in request.rollout_ids[4:])
    controller.finish()
    assert controller.held_rollouts == []
    assert controller.ledger.rollouts(Fate.ABANDONED) == 8
