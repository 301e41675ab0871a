"""SPEED-RL on examples worked out by hand, and on the inputs at which its public code fails."""

from __future__ import annotations

import pytest

from neyman import Budget, Controller, Fate, StopReason, preset
from scripted import Script
from strategies import Host, run_step


def controller(rows, budget, *, screen=2, then=3, pool=None, **options):
    strategy = preset("speed", screen=screen, then=then, over_provision=1.0, **options)
    return Controller(strategy, Budget(rollouts=budget), train_rows=rows, pool=pool, fill="none")


def test_mixed_prompts_are_completed_and_the_others_cost_their_screening_alone():
    # Screening of 2: a is mixed, b and c are not; c's place goes to d, which is mixed. 4 x 2 + 2 x 3 = 14 rollouts.
    host = Script({"a": [1, 0, 0, 0, 1], "b": [1, 1], "c": [0, 0], "d": [0, 1, 1, 1, 1]})
    run = controller(10, 40)
    batch = host.step(run, ["a", "b", "c", "d"])
    assert host.asked == {"a": 5, "b": 2, "c": 2, "d": 5}
    assert batch.prompt_ids == ("a",) * 5 + ("d",) * 5
    assert batch.success.tolist() == [1, 0, 0, 0, 1, 0, 1, 1, 1, 1]
    assert batch.stop_reason is StopReason.FILLED
    assert (run.ledger.rollouts(Fate.TRAINED), run.ledger.rollouts(Fate.ABANDONED)) == (10, 4)


@pytest.mark.parametrize("then", [1, 2, 3, 4, 5, 6, 7])
def test_any_number_may_follow_the_screening_equal_ones_included(then):
    # The public code tells first from second phase by the COUNT of responses, so N_init == N_cont counts a group twice
    # and N_cont must be a multiple of N_init.
    host = Script({"a": [1, 0] * 10, "b": [0, 0, 1, 1] + [0] * 9})
    batch = host.step(controller(4 + then, 64, screen=4, then=then), ["a", "b"])
    assert host.asked["a"] == 4 + then
    assert len(set(batch.rollout_ids.tolist())) == len(batch) == 4 + then
    assert batch.groups.tolist() == [0] * (4 + then)


def test_what_is_screened_and_not_needed_is_not_completed_and_waits_within_its_age():
    # The public buffer has no bound, no age and is in no checkpoint. Three pass, one trains: the other two wait at 2.
    host = Script({name: [1, 0] + [0] * 8 for name in "abcdef"})
    wide = preset("speed", screen=2, then=3, over_provision=3.0, max_age=1)
    run = Controller(wide, Budget(rollouts=60), train_rows=5, fill="none")
    host.step(run, ["a", "b", "c"])
    assert host.asked == {"a": 5, "b": 2, "c": 2}
    assert len(run.held_rollouts) == 4
    resumed = Controller(wide, Budget(rollouts=60), train_rows=5, fill="none")
    resumed.load_state_dict(run.state_dict())
    batch = host.step(resumed, ["d", "e"])
    assert host.asked == {"b": 3}, "one waiting group is completed, and nothing fresh is screened"
    assert batch.age.tolist() == [1, 1, 0, 0, 0]
    assert batch.policy_version.tolist() == [0, 0, 1, 1, 1]
    host.step(resumed, ["f"])
    assert resumed.ledger.rollouts(Fate.EXPIRED) == 2, "c is too old by now"
    assert resumed.held_rollouts == []


@pytest.mark.parametrize("age", [1, 2, 4])
@pytest.mark.parametrize(
    ("name", "options"), [("speed", {"screen": 2, "then": 6}), ("pilot-commit", {"pilot": 4, "commit": 4})]
)
def test_what_waits_is_bounded_by_its_age(name, options, age):
    # The public max_buffer_size (SPEED) and max_size (Pilot-Commit) are never enforced. Here nothing waits longer than
    # max_age steps, so that the store holds at most what the last max_age steps and this one drew: max_age + 1 budgets.
    budget, pool = 160, 400
    strategy = preset(name, max_age=age, over_provision=6.0, **options)
    run = Controller(strategy, Budget(rollouts=budget), pool=range(pool), train_rows=32, fill="none")
    host = Host(rates=dict.fromkeys(range(pool), 0.5))  # nearly every group passes, one in eight is needed
    drawn_at: dict[int, int] = {}
    passed_over, most = 0, 0
    for step in range(16):
        _, asked = run_step(run, host, [(4 * step + i) % pool for i in range(4)])
        drawn_at |= {rollout: step for request in asked for rollout in request.rollout_ids}
        held = run.held_rollouts
        assert all(step - drawn_at[rollout] <= age for rollout in held)
        assert len(held) <= sum(at >= step - age for at in drawn_at.values()) <= (age + 1) * budget
        passed_over, most = (
            passed_over + sum(drawn_at[rollout] == step for rollout in held),
            max(most, len(held)),
        )
    assert 0 < most < passed_over, "more was left over in all than ever waited at once"


def test_no_prompt_that_the_loader_brings_is_lost_on_a_step_that_trains():
    # In the public loop an iteration that trains consumes and drops one loader batch.
    host = Script({k: [1, 0] + [0] * 8 for k in range(8)})
    run = controller(5, 40, pool=range(8))
    seen = []
    for step in range(4):
        seen += host.step(run, [2 * step, 2 * step + 1]).prompt_ids
    assert run.ledger.prompts_visited == 4, "only what a step needs is opened"
    assert run.state_dict()["pool"]["epoch"] == 0, "and the rest is still unopened in this epoch"
    assert set(seen) <= set(range(8))


def test_too_many_rounds_end_the_step_and_never_the_run():
    # The public code raises once the number of generation batches reaches a limit.
    host = Script({})
    run = controller(5, 12, pool=range(40))
    batch = host.step(run, range(4))
    assert len(batch) == 0
    assert batch.stop_reason is StopReason.BUDGET
    assert len(host.step(run, range(4, 8))) == 0


def test_without_a_number_the_group_is_the_hosts_and_published_is_4_and_20():
    assert preset("speed", screen=4, then=20).allocate.group_size(8) == 24
    assert preset("speed").allocate.group_size(8) == 8
    assert preset("speed").verdict.looks(8) == (4, 8)
    assert preset("speed").verdict.looks(4) == (4,)
