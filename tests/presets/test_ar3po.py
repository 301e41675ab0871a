"""AR3PO on examples worked out by hand: stages, and an earlier right answer where none appears."""

from __future__ import annotations

import numpy as np
import pytest

from neyman import Budget, Controller, Fate, preset
from neyman.errors import ArgumentError
from scripted import Script
from strategies import through_json


def controller(budget, *, stage=2, stages=3, replay_age=4, **options):
    strategy = preset("ar3po", stage=stage, stages=stages, replay_age=replay_age, estimator="rloo", **options)
    return Controller(strategy, Budget(rollouts=budget), fill="none")


def test_stages_by_hand():
    # Stages of 2, three of them. a: 01 leaves after 2; b: 00 10 after 4; c: 11 after 2, without signal; d: to its end.
    host = Script({"a": [0, 1], "b": [0, 0, 1, 0], "c": [1, 1], "d": [0] * 6})
    run = controller(24, stages=3)
    batch = host.step(run, ["a", "b", "c", "d"])
    first, second, third = host.calls[:3]
    assert first == {"a": 2, "b": 2, "c": 2, "d": 2}
    assert second == {"b": 2, "d": 2}
    assert third == {"d": 2}
    # 14 of 24 rollouts; with no other prompt the rest goes to the groups with signal, a and b: 5 each.
    assert host.asked == {"a": 7, "b": 9, "c": 2, "d": 6}
    assert len(batch) == 24
    assert run.ledger.rollouts(Fate.UNIFORM) == 8


def test_what_is_saved_goes_to_further_prompts():
    host = Script({k: [0, 1] for k in range(12)})
    run = Controller(preset("ar3po", stage=2, stages=3), Budget(rollouts=24), pool=range(12), fill="none")
    host.step(run, range(4))
    assert host.asked == dict.fromkeys(range(12), 2), "2 each in place of 6 for four prompts"


def hard_then_wrong(**options):
    """Return a run in which prompt a is solved once in step 0 and never in step 1, with step 1's batch."""
    host = Script({"a": [1, 0] + [0] * 6})
    run = controller(6, **options)
    first = host.step(run, ["a"])
    return run, first, host.step(run, ["a"])


def test_an_earlier_right_answer_takes_the_place_of_a_wrong_one():
    _, first, batch = hard_then_wrong()
    right = int(first.rollout_ids[0])
    assert batch.rollout_ids.tolist() == [6, 7, 8, 9, 10, right], "as many rows as rollouts: 11 makes room"
    assert batch.success.tolist() == [0, 0, 0, 0, 0, 1]
    assert batch.age.tolist() == [0, 0, 0, 0, 0, 1], (
        "hosts correct by the log-probabilities noted at its step"
    )
    assert batch.policy_version.tolist() == [1, 1, 1, 1, 1, 0]
    # RLOO over the six rows: the right one 1 - 0, each wrong one 0 - 1/5.
    np.testing.assert_allclose(batch.advantages, [-0.2] * 5 + [1.0])
    assert batch.report["rows_replayed"] == 1.0
    assert batch.report["success_rate"] == 0.0, "what was drawn in this step, replayed answers apart"


def test_a_replayed_answer_is_drawn_once_in_the_account():
    run, _, _ = hard_then_wrong()
    ledger = run.ledger
    assert ledger.requested == 12 == ledger.rollouts()
    assert (ledger.rollouts(Fate.TRAINED), ledger.rollouts(Fate.SURPLUS)) == (11, 1)
    report = run.group_reports[0]
    assert (report.successes, report.trials, report.spare) == (0, 6, 1)


def test_beliefs_learn_from_what_was_drawn_alone():
    from neyman.beliefs import Counts

    run, _, _ = hard_then_wrong(belief=Counts(prior=(1.0, 1.0), discount=1.0, fade=1.0))
    successes, trials = run.strategy.belief.evidence(["a"])
    assert (successes.tolist(), trials.tolist()) == ([1.0], [12.0])


@pytest.mark.parametrize(("idle", "replayed"), [(1, 1.0), (2, 0.0)])
def test_an_answer_is_replayed_up_to_its_age_and_then_forgotten(idle, replayed):
    host = Script({"a": [1, 0] + [0] * 40})
    run = controller(6, replay_age=2)
    host.step(run, ["a"])
    for _ in range(idle):
        host.step(run, ["b"])
    assert host.step(run, ["a"]).report["rows_replayed"] == replayed
    assert bool(run.replayable) == bool(replayed)


def test_a_replay_does_not_renew_the_answers_age():
    host = Script({"a": [1, 0] + [0] * 40})
    run = controller(6, replay_age=2)
    host.step(run, ["a"])
    assert [host.step(run, ["a"]).report["rows_replayed"] for _ in range(3)] == [1.0, 1.0, 0.0]


def test_the_latest_right_answer_is_kept():
    host = Script({"a": [1, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0]})
    run = controller(6)
    host.step(run, ["a"])
    assert run.replayable == [0]
    host.step(run, ["a"])
    assert run.replayable == [7]
    assert host.step(run, ["a"]).rollout_ids.tolist()[-1] == 7


def test_what_may_be_replayed_is_held_and_saved():
    run, _, _ = hard_then_wrong()
    assert run.held_rollouts == run.replayable == [0]
    again = controller(6)
    again.load_state_dict(through_json(run.state_dict()))
    one, other = (Script({}).step(c, ["a"]) for c in (run, again))
    assert one.rollout_ids.tolist() == other.rollout_ids.tolist()
    assert one.report["rows_replayed"] == 1.0


def test_without_replay_a_group_without_a_right_answer_stays_uniform():
    run, _, batch = hard_then_wrong(replay_age=0)
    assert not batch.advantages.any()
    assert run.held_rollouts == []


def test_a_prompt_never_solved_has_nothing_to_replay():
    host = Script({})
    run = controller(6)
    host.step(run, ["a"])
    assert not host.step(run, ["a"]).advantages.any()


def test_replay_fills_the_groups_of_a_strategy_that_discards_dead_ones():
    strategy = preset("dynamic-sampling", group_size=2, replay_age=3)
    run = Controller(strategy, Budget(rollouts=4), train_rows=2, fill="none")
    host = Script({"a": [1, 0, 0, 0]})
    host.step(run, ["a"])
    batch = host.step(run, ["a"])
    assert batch.success.tolist() == [0, 1]
    assert host.asked == {"a": 2}, "the group counts, and no further one is drawn"


def test_replay_needs_a_verdict():
    with pytest.raises(ArgumentError, match="no verdict"):
        preset("uniform", replay_age=2)
