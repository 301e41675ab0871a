"""What users of RL trainers ran into: what a run really cost, and steps that are counted wrongly."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from neyman import Budget, Controller, Fate, Work, preset
from neyman.errors import ArgumentError
from strategies import PRESETS, Host, assert_consistent, run_step, tell_all, through_json


@given(times=st.integers(1, 4), share=st.sampled_from([0.1, 0.5, 0.9]), seed=st.integers(0, 99))
def test_case_02_steps_drawn_prompts_and_progress_agree_over_an_epoch(times, share, seed):
    """CASE 2. For every ratio of generated to trained rows, in which an epoch takes fewer steps the more is drawn."""
    rows, size, prompts = 16, 4, 60
    controller = Controller(
        preset("dynamic-sampling", group_size=size),
        budget=Budget(rollouts=times * rows),
        train_rows=rows,
        pool=range(prompts),
        seed=seed,
    )
    host = Host(rates={i: 0.5 if i < share * prompts else 0.0 for i in range(prompts)}, seed=seed)
    delivered, drawn = 0, Counter()
    epoch = 0.0
    while epoch < 1.0:
        batch, asked = run_step(controller, host, [])
        assert len(batch) == rows
        assert sum(len(r.rollout_ids) for r in asked) <= times * rows
        delivered += 1
        drawn.update(g.prompt_id for g in controller.group_reports)
        epoch = batch.report["epoch"]
        assert batch.report["coverage"] == len(drawn) / prompts
    assert controller.ledger.steps == controller.step + 1 == delivered
    assert set(drawn) == set(range(prompts))
    assert controller.ledger.prompts_visited == prompts
    assert controller.ledger.epochs(prompts) == sum(drawn.values()) / prompts
    least = prompts * size / (times * rows)
    assert delivered >= least


@pytest.mark.parametrize(
    "name", ["sara, looks", "sara, carry", "dynamic-sampling, carry", "vip, probe", "uniform"]
)
@given(failing=st.sampled_from([0.0, 0.1, 0.5]), seed=st.integers(0, 99), padding=st.integers(0, 7))
def test_case_29_the_account_equals_a_hand_count_in_rollouts_tokens_and_seconds(name, failing, seed, padding):
    """CASE 29. For strategies with probes, surplus, carry-over and verdicts, with aborted rollouts and padding."""
    fixed_train = PRESETS[name]().close == "fixed_train"
    controller = Controller(
        PRESETS[name](), budget=Budget(rollouts=64), train_rows=32 if fixed_train else 64, pool=range(200)
    )
    host = Host(failing=failing, seed=seed)
    rollouts = tokens = seconds = 0
    for step in range(3):
        controller.begin(range(8 * step, 8 * step + 8))
        while not controller.is_done:
            outcomes = host.answer(controller.ask())
            rollouts += len(outcomes)
            tokens += sum(o.n_tokens for o in outcomes)
            controller.tell(outcomes)
        controller.record_padding(padding, 3 * padding)
        controller.record_seconds("generation", 2 + step)
        controller.finish()
        controller.record_seconds(Work.UPDATE, 0.5)
        rollouts, tokens, seconds = rollouts + padding, tokens + 3 * padding, seconds + 2 + step
    ledger = controller.ledger
    held = [slot for group in controller._engine.state.carried for slot in group.valid()]
    assert ledger.requested == rollouts
    assert ledger.rollouts() == rollouts - len(held)
    assert ledger.tokens() == tokens - sum(slot.n_tokens for slot in held)
    assert ledger.rollouts(Fate.PADDING) == 3 * padding
    assert (ledger.seconds(Work.GENERATION), ledger.seconds(Work.UPDATE)) == (seconds, 1.5)
    assert ledger.seconds() == seconds + 1.5
    assert_consistent(controller)


@given(
    live=st.lists(st.booleans(), min_size=1, max_size=6),
    generation=st.floats(0.1, 100.0),
    update=st.floats(0.1, 100.0),
)
def test_case_30_time_saved_on_updates_is_no_time_saved_on_generation(live, generation, update):
    """CASE 30. For two runs with the same rollouts, of which one leaves out the updates without signal."""
    spent = {}
    for skips in (False, True):
        controller = Controller(preset("uniform"), budget=Budget(rollouts=2))
        for step, is_live in enumerate(live):
            controller.begin([step])
            tell_all(controller, lambda place, is_live=is_live: float(place and is_live))
            controller.record_seconds(Work.GENERATION, generation)
            batch = controller.finish()
            if batch.advantages.any() or not skips:
                controller.record_seconds(Work.UPDATE, update)
        ledger = controller.ledger
        spent[skips] = (ledger.seconds(Work.GENERATION), ledger.requested)
        updates = sum(live) if skips else len(live)
        assert ledger.seconds(Work.UPDATE) == pytest.approx(updates * update)
    assert spent[False] == spent[True] == (pytest.approx(len(live) * generation), 2 * len(live))


def test_case_29_seconds_survive_a_restore_and_need_no_open_step():
    """CASE 29. For runs that stop and go on."""
    controller = Controller(preset("uniform"), budget=Budget(rollouts=4))
    controller.record_seconds("update", np.float32(1.5))
    fresh = Controller(preset("uniform"), budget=Budget(rollouts=4))
    fresh.load_state_dict(through_json(controller.state_dict()))
    fresh.record_seconds("update", 1)
    assert (fresh.ledger.seconds(Work.UPDATE), fresh.ledger.seconds(Work.GENERATION)) == (2.5, 0.0)


@pytest.mark.parametrize(
    ("work", "seconds", "said"),
    [
        ("sleeping", 1.0, "work must be one of"),
        ("update", -1.0, "seconds"),
        ("update", float("nan"), "seconds"),
    ],
)
def test_case_29_work_that_is_none_and_times_below_zero_are_refused(work, seconds, said):
    """CASE 29. For what a host cannot have measured."""
    controller = Controller(preset("uniform"), budget=Budget(rollouts=4))
    with pytest.raises(ArgumentError, match=said):
        controller.record_seconds(work, seconds)
    assert controller.ledger.seconds() == 0.0
