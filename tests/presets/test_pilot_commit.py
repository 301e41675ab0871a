"""Pilot-Commit on examples worked out by hand, and on the inputs at which its public code fails."""

from __future__ import annotations

from math import comb

import numpy as np
import pytest

from neyman import Budget, Controller, Fate, StopReason, preset
from neyman.errors import ArgumentError
from neyman.rules import Screen
from neyman.rules.audit import audit, survival_probability
from scripted import Script
from strategies import through_json


def build(budget, rows, *, pilot=4, commit=4, pool=None, **options):
    options = {"pass_lower": 0.25, "pass_upper": 0.5, "over_provision": 1.0, **options}
    strategy = preset("pilot-commit", pilot=pilot, commit=commit, **options)
    return Controller(strategy, Budget(rollouts=budget), train_rows=rows, pool=pool, fill="none")


def test_the_band_by_hand():
    # Pilots of 4, band [.25, .5]: 0/4 too hard, 1/4 and 2/4 pass, 3/4 and 4/4 too easy.
    host = Script({k: [1] * k + [0] * (8 - k) for k in range(5)})
    run = build(80, 16, over_provision=8.0)
    batch = host.step(run, range(5))
    assert host.asked == {0: 4, 1: 8, 2: 8, 3: 4, 4: 4}
    assert set(batch.prompt_ids) == {1, 2}
    assert run.ledger.rollouts(Fate.ABANDONED) == 12


def test_a_mixed_pilot_waits_until_it_is_whole():
    # 1 of the first 2 is mixed, 3 of 4 is outside the band: asked in twos, the verdict must not come early.
    run = build(8, 8)
    run.begin(["a"])
    script = iter([1, 0, 1, 1])
    from neyman import Outcome

    while not run.is_done:
        run.tell(
            Outcome(rollout_id=i, prompt_id="a", reward=next(script))
            for q in run.ask(2) for i in q.rollout_ids
        )  # fmt: skip
    run.finish()
    assert run.ledger.requested == 4


def test_published_settings():
    published = preset("pilot-commit", pilot=32, commit=96, max_age=4)
    verdict = published.verdict
    assert published.allocate.group_size(8) == 128
    assert verdict.looks(128) == (32, 128)
    said = {s: verdict.decide(s, 32, 128, (1.0, 1.0)) for s in (3, 4, 24, 25)}
    assert said == {3: "abandon", 4: "commit", 24: "commit", 25: "abandon"}  # .125 and .75
    assert preset("pilot-commit").verdict.looks(8) == (2, 8)


def test_pilots_that_pass_and_are_not_needed_wait_up_to_four_steps_with_their_own_policy():
    # The public buffer recomputes log-probabilities of old pilots under the CURRENT policy; a batch here says how old
    # each row is and what drew it, so that hosts use the noted ones. Four pass, one trains a step.
    host = Script({k: [1, 0, 0, 0] + [0] * 8 for k in range(6)})
    run = build(64, 8, over_provision=4.0, max_age=4)
    host.step(run, range(4))
    assert sorted(host.asked.values()) == [4, 4, 4, 8]
    assert len(run.held_rollouts) == 12
    ages = []
    for step in range(1, 4):
        batch = host.step(run, [5])
        assert sum(host.asked.values()) == 4, "the commits alone: no pilot is drawn while some wait"
        ages.append(batch.age.tolist())
        assert batch.policy_version.tolist() == [0] * 4 + [step] * 4
    assert ages == [[1] * 4 + [0] * 4, [2] * 4 + [0] * 4, [3] * 4 + [0] * 4]
    assert run.ledger.rollouts(Fate.SURPLUS) == 0


def test_the_oldest_wait_first_and_none_waits_beyond_its_age():
    host = Script({k: [1, 0, 0, 0] + [0] * 8 for k in range(8)})
    run = build(64, 8, over_provision=8.0, max_age=1)
    host.step(run, range(4))
    batch = host.step(run, [5])
    assert batch.age.max() == 1
    host.step(run, [6])
    assert run.ledger.rollouts(Fate.EXPIRED) == 8, "two pilots of 4 were not needed within a step"


def test_as_many_waiting_as_needed_trains_them_all_at_their_full_size():
    # When the public buffer holds no more than asked for, down-sampling is skipped and an assertion fails.
    host = Script({k: [1, 0, 0, 0] + [0] * 8 for k in range(4)})
    run = build(64, 16, over_provision=2.0, max_age=4)
    host.step(run, range(4))
    batch = host.step(run, range(4))
    assert np.bincount(batch.groups).tolist() == [8, 8]


def test_waiting_pilots_and_resting_prompts_are_in_the_state():
    # In the public code neither the buffer nor the exclusion set is in the checkpoint.
    host = Script({k: [1, 1, 1, 1] if k < 2 else [1, 0, 0, 0] for k in range(6)})
    run = build(64, 8, over_provision=2.0, max_age=4, pool=range(6))
    host.step(run, range(4))
    again = build(64, 8, over_provision=2.0, max_age=4, pool=range(6))
    again.load_state_dict(through_json(run.state_dict()))
    for k in range(3):
        one, other = Script({}), Script({})
        assert one.step(run, [k]).rollout_ids.tolist() == other.step(again, [k]).rollout_ids.tolist()
        assert one.asked == other.asked


def rounds_of(run, host, steps, prompts):
    """Return in which steps each prompt was asked for."""
    seen = {prompt: [] for prompt in prompts}
    for step in range(steps):
        host.step(run, [])
        for prompt in host.asked:
            seen[prompt].append(step)
    return seen


@pytest.mark.parametrize(("rest_failed", "hopeless_rests"), [(True, True), (False, False)])
def test_solved_prompts_rest_a_pass_and_come_back(rest_failed, hopeless_rests):
    # 12 prompts, a pass is 12 x 8 rollouts. 0 is always solved, 1 never: the public code pilots 1 in every epoch.
    host = Script({k: [1] * 99 if k == 0 else [0] * 99 if k == 1 else [0, 1, 0, 0] * 99 for k in range(12)})
    run = build(32, 16, pool=range(12), rest_failed=rest_failed)
    seen = rounds_of(run, host, 24, range(12))
    others = np.mean([len(seen[k]) for k in range(2, 12)])
    assert 2 <= len(seen[0]) < 0.75 * others, "it is asked again, for ever"
    assert (len(seen[1]) < 0.75 * others) == hopeless_rests


def test_prompts_that_rest_are_taken_where_no_others_are_left():
    host = Script({})
    run = build(16, 8)
    for _ in range(3):
        host.step(run, ["a", "b"])
        assert set(host.asked) == {"a", "b"}


def test_a_step_whose_pilots_all_fail_ends_the_step_and_never_the_run():
    # The public code raises after ten rounds, and its divisibility fix can ask for no prompt at all.
    host = Script({})
    run = build(20, 8, pool=range(40))
    batch = host.step(run, range(2))
    assert (len(batch), batch.stop_reason) == (0, StopReason.BUDGET)
    host = Script({k: [1, 0, 0, 0] for k in range(40)})
    assert len(host.step(run, range(8, 10))) == 8


def test_pilots_outlive_the_end_of_an_epoch():
    # The public code drops partial batch and buffer at every epoch end. 3 prompts, an epoch a step.
    host = Script({k: [1, 0, 0, 0] + [0] * 40 for k in range(3)})
    run = build(64, 8, over_provision=3.0, max_age=4, pool=range(3))
    host.step(run, range(3))
    assert run.state_dict()["pool"]["epoch"] == 1
    batch = host.step(run, range(3))
    assert batch.age.tolist() == [1] * 4 + [0] * 4


def test_the_audit_follows_the_band():
    # A group with 4 of 8 passes [.25, .5] at 4 with 1 or 2 right of 4: (C(4,1) C(4,3) + C(4,2) C(4,2)) / C(8,4).
    rule = Screen(4, lower=0.25, upper=0.5)
    assert survival_probability(rule, 4, 8, (1.0, 1.0)) == pytest.approx((16 + 36) / 70)
    assert survival_probability(Screen(4, lower=0.3), 1, 8, (1.0, 1.0)) == 0.0


def test_the_audit_is_unbiased_where_every_mixed_group_can_survive():
    rule, rng = Screen(4, lower=0.25, upper=0.25), np.random.default_rng(0)
    estimates, truth = [], []
    for _ in range(300):
        full = rng.random((40, 8)) < rng.beta(1, 1, (40, 1))
        kept, ended = [], []
        for row in full:
            if rule.decide(int(row[:4].sum()), 4, 8, (1.0, 1.0)) == "commit":
                kept.append((int(row.sum()), 8, (1.0, 1.0)))
            else:
                ended.append((4, 8))
        estimates.append(audit(rule, kept, ended).effective)
        truth.append(sum(0 < row.sum() < 8 for row in full))
    error = np.std(estimates) / np.sqrt(300)
    assert abs(np.mean(estimates) - np.mean(truth)) < 4 * error


def test_several_looks_are_followed_one_after_the_other():
    from neyman.rules import Until

    # Until(2) at 6 with no success ever gives up nothing early: only groups whose first round is all right leave.
    lost = comb(5, 2) / comb(6, 2)
    assert survival_probability(Until(2), 5, 6, (1.0, 1.0)) == pytest.approx(1.0 - lost)


def test_a_band_without_room_and_half_a_size_are_refused():
    with pytest.raises(ArgumentError, match="at most 1"):
        Screen(4, lower=0.6, upper=0.5)
    with pytest.raises(ArgumentError, match="needs pilot"):
        preset("pilot-commit", commit=48)
