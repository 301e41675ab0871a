"""The step's contract: each invariant of the design as a property, and what users run into, case by case."""

from __future__ import annotations

import json
import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import neyman
from neyman import Budget, Controller, Fate, Outcome, StopReason, preset
from neyman.beliefs import Counts
from neyman.errors import ArgumentError, CallOrderError, ContractError, InfeasibleError, StateError
from strategies import (
    PRESETS,
    Host,
    assert_consistent,
    assert_same_batch,
    assert_sound_batch,
    controllers,
    hosts,
    outcome,
    run_step,
    simple,
    tell_all,
    through_json,
)

PROMPTS = list(range(8))


class Unfriendly(Exception):
    """What a reward function may raise or return: nothing can be made of it, nor be shown."""

    def _fail(self, *_):
        raise RuntimeError("no")

    __repr__ = __str__ = __float__ = __eq__ = __hash__ = __bool__ = _fail


def feasible(make, candidates):
    """Begin a step, or skip candidates that the strategy's bounds do not allow."""
    controller = make()
    try:
        controller.begin(candidates)
    except ValueError:
        from hypothesis import reject

        reject()
    return controller


# --- spend -----------------------------------------------------------------------------------------------------


@given(make=controllers(), host=hosts(), count=st.integers(1, 8), steps=st.integers(1, 3))
def test_every_step_of_every_preset_ends_in_a_sound_batch_inside_its_budget(make, host, count, steps):
    controller = feasible(make, range(count))
    known = {}
    for step in range(steps):
        batch, asked = run_step(controller, host, range(count), begin=step > 0)
        ids = [i for r in asked for i in r.rollout_ids]
        engine = controller._engine.state
        assert len(ids) == len(set(ids)) == engine.asked
        assert engine.asked <= engine.budget.planned_rollouts * (1 + engine.retry_share)
        known |= {i: r.prompt_id for r in asked for i in r.rollout_ids}
        if controller.strategy.close != "streaming":
            assert_sound_batch(controller, batch, known)
        assert_consistent(controller)
        assert batch.report["rollouts"] == engine.asked


def test_fixed_spend_never_trains_more_rows_than_the_host_has():
    with pytest.raises(ArgumentError, match="must be <= train_rows=32, got 64"):
        simple("uniform", 64, train_rows=32)


def test_fixed_train_needs_a_budget_that_can_fill_its_rows():
    with pytest.raises(ArgumentError, match="must be >= that, got 16"):
        simple("sara", 16, train_rows=32)


def test_a_budget_that_the_bounds_do_not_allow_leaves_the_controller_as_it_was():
    controller = Controller(preset("vip", lower=4, upper=8, belief=Counts()), budget=Budget(rollouts=64))
    before = controller.state_dict()
    with pytest.raises(InfeasibleError, match=r"choose a budget in \[8, 16\]"):
        controller.begin(["a", "b"], step=5)
    after = controller.state_dict()
    assert not controller.is_open
    assert before["step"] == after["step"]
    assert before["ledger"] == after["ledger"]
    controller.begin(PROMPTS, step=5)
    assert controller.step == 5


def test_a_second_count_that_could_not_be_met_is_refused_before_the_first_rollout():
    controller = Controller(preset("neyman", upper=8, belief=Counts()), budget=Budget(rollouts=64))
    with pytest.raises(InfeasibleError, match="budget=64"):
        controller.begin(["a", "b"])


def test_after_a_refused_step_any_later_number_may_begin():
    controller = Controller(preset("vip", lower=4, upper=8, belief=Counts()), budget=Budget(rollouts=64))
    with pytest.raises(InfeasibleError):
        controller.begin(["a", "b"], step=5)
    controller.begin(PROMPTS, step=3)
    assert controller.step == 3


def test_counts_are_taken_again_when_all_probes_are_in():
    controller = simple("vip, probe", 16)
    controller.begin(["a", "b"])
    probes = controller.ask()
    assert [(r.prompt_id, len(r.rollout_ids)) for r in probes] == [("a", 2), ("b", 2)]
    controller.tell(outcome(i, "a", float(n)) for n, i in enumerate(probes[0].rollout_ids))
    assert controller.ask() == []
    controller.tell(outcome(i, "b", 1.0) for i in probes[1].rollout_ids)
    counts = {r.prompt_id: len(r.rollout_ids) for r in controller.ask()}
    assert sum(counts.values()) == 12
    assert counts["a"] > counts["b"], "the mixed one is more uncertain"


def test_a_size_that_does_not_fit_the_budget_says_what_would():
    controller = Controller(preset("uniform", group_size=4), budget=Budget(rollouts=32))
    with pytest.raises(InfeasibleError, match="set the budget to 12, or bring 8 prompts"):
        controller.begin(range(3))


@pytest.mark.parametrize("name", list(PRESETS))
def test_what_a_token_budget_allows_is_never_exceeded_when_the_length_is_the_longest(name):
    controller = Controller(
        PRESETS[name](), budget=Budget(tokens=1500, tokens_per_rollout=50), pool=range(40)
    )
    for _ in range(2):
        batch, _ = run_step(controller, Host(failing=0.2), range(6))
        assert 0 < batch.report["tokens"] <= 1500


def test_a_token_budget_that_runs_out_ends_the_step_and_says_so():
    controller = Controller(preset("uniform"), budget=Budget(tokens=1000, tokens_per_rollout=100))
    controller.begin(["a", "b"])
    requests = controller.ask(5)
    controller.tell(outcome(i, r.prompt_id, 1.0, n_tokens=200) for r in requests for i in r.rollout_ids)
    assert controller.ask() == []
    assert controller.is_done
    batch = controller.finish()
    assert batch.stop_reason is StopReason.BUDGET
    assert len(batch) == 5


def test_rollouts_that_are_out_are_charged_to_the_token_budget():
    controller = Controller(preset("uniform"), budget=Budget(tokens=1000, tokens_per_rollout=100))
    controller.begin(["a", "b"])
    first = controller.ask(6)
    ids = [(i, r.prompt_id) for r in first for i in r.rollout_ids]
    controller.tell([outcome(*ids[0], 1.0, n_tokens=300)])
    assert sum(len(r.rollout_ids) for r in controller.ask()) == 2  # 1000 - 300 - 5 x 100 leaves two


# --- joining ---------------------------------------------------------------------------------------------------


def test_a_result_told_under_another_prompt_is_refused_and_nothing_is_taken_in():
    controller = simple(rollouts=4)
    controller.begin(["a", "b"])
    a, b = controller.ask()
    before = controller.state_dict()
    with pytest.raises(ContractError, match="belongs to prompt 'b', but was reported under 'a'"):
        controller.tell([outcome(a.rollout_ids[0], "a", 1.0), outcome(b.rollout_ids[0], "a", 1.0)])
    assert before == controller.state_dict()


@pytest.mark.parametrize("foreign", [10**9, -1, "0", 3.5, None])
def test_a_result_that_was_never_asked_for_is_refused(foreign):
    controller = simple(rollouts=4)
    controller.begin(["a"])
    controller.ask()
    with pytest.raises(ContractError, match="was never requested"):
        controller.tell([outcome(foreign, "a", 1.0)])


@pytest.mark.parametrize(
    "told",
    [
        None,
        1.0,
        [None],
        [{"rollout_id": 0}],
        [outcome([0], "a", 1.0)],
        [outcome(None, "a", 1.0)],
        [outcome(0.0, "a", 1.0)],
        [outcome("0", "a", 1.0)],
        [outcome(0, np.array(["a", "a"]), 1.0)],
        [outcome(0, None, 1.0)],
        [outcome(10**30, "a", 1.0)],
        [outcome(-1, "a", 1.0)],
    ],
    ids=str,
)
def test_what_is_no_outcome_of_a_rollout_that_was_asked_for_is_refused(told):
    controller = simple(rollouts=4)
    controller.begin(["a"])
    controller.ask()
    before = controller.state_dict()
    with pytest.raises(ContractError):
        controller.tell(told)
    assert before == controller.state_dict()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"reward": 0.5}, "not binary.*success=True/False.*or name it once at the host"),
        ({"reward": "good"}, "no number"),
        ({"reward": math.inf}, "infinite reward"),
        ({"reward": 1.0, "status": "fine"}, "has the status 'fine'; use one of"),
        (
            {"reward": 1.0, "n_tokens": -1},
            "n_tokens must be a whole number in \\[0, 9007199254740992\\], got -1",
        ),
        ({"reward": 0.3, "success": 0.7}, "success 0.7"),
        ({"reward": 0.3, "success": math.nan}, "success nan"),
        ({"reward": 10**400}, "no number"),
        ({"reward": 10**5000}, "has the reward a value of type int"),
        ({"reward": 1.0, "success": np.array([1, 0])}, "has the success array"),
        ({"reward": 1.0, "success": [1]}, "success \\[1\\]"),
        ({"reward": 1.0, "status": ["ok"]}, "status \\['ok'\\]"),
        (
            {"reward": 1.0, "n_tokens": 10**20},
            "n_tokens must be a whole number in \\[0, 9007199254740992\\], got 1",
        ),
        ({"reward": 1.0, "policy_version": "latest"}, "policy_version must be a whole number"),
        ({"reward": 1.0, "policy_version": math.nan}, "policy_version must be a whole number"),
        ({"reward": 1.0, "trajectory_id": ("a", 1)}, "trajectory_id \\('a', 1\\)"),
        ({"reward": "1"}, "the reward '1', which is no number"),
        ({"reward": " 1_0 ", "success": True}, "no number"),
        ({"reward": "nan"}, "the reward 'nan', which is no number"),
        ({"reward": b"1"}, "no number"),
        ({"reward": memoryview(b"1")}, "no number"),
        ({"reward": np.array("1")}, "no number"),
        ({"reward": np.complex128(1)}, "no number"),
        ({"reward": Unfriendly()}, "has the reward a value of type Unfriendly"),
        ({"reward": 1.0, "success": np.complex128(1)}, "has the success"),
        ({"reward": 1.0, "status": Unfriendly()}, "has the status a value of type Unfriendly"),
        ({"reward": 1.0, "n_tokens": -(10**5000)}, "n_tokens must be a whole number in"),
        (
            {"reward": 1.0, "policy_version": 2**63},
            "policy_version must be a whole number in \\[0, 9223372036854775807\\]",
        ),
        ({"reward": 1.0, "policy_version": -1}, "policy_version must be a whole number in"),
        (
            {"reward": 1.0, "policy_version": 10**5000},
            "policy_version must be a whole number in .* of type int",
        ),
        ({"reward": 1.0, "trajectory_id": 10**5000}, "a whole number of up to 2048 bits"),
        ({"reward": 1.0, "protected": np.array([1, 2])}, "protected=array"),
        ({"reward": 1.0, "protected": "no"}, "protected='no'; pass True or False"),
    ],
)
def test_a_result_that_cannot_be_read_is_refused_and_nothing_is_taken_in(fields, message):
    controller = simple(rollouts=4)
    controller.begin(["a"])
    (request,) = controller.ask()
    before = controller.state_dict()
    with pytest.raises(ContractError, match=message):
        controller.tell(
            [
                outcome(request.rollout_ids[0], "a", 1.0),
                Outcome(rollout_id=request.rollout_ids[1], prompt_id="a", **fields),
            ]
        )
    assert before == controller.state_dict()


def test_an_error_that_cannot_say_what_it_is_counts_as_any_other():
    controller = simple(rollouts=4)
    controller.begin(["a"])
    (request,) = controller.ask()
    controller.tell(
        Outcome(rollout_id=i, prompt_id="a", reward=None, error=Unfriendly()) for i in request.rollout_ids
    )
    assert controller.first_error == "an error of type Unfriendly, whose text cannot be had"


def test_numbers_of_every_library_are_rewards():
    told = [Fraction(1), Decimal(0), np.array(1.0), np.uint8(0)]
    controller = simple(rollouts=4)
    controller.begin(["a"])
    (request,) = controller.ask()
    controller.tell(
        Outcome(rollout_id=i, prompt_id="a", reward=reward, protected=np.bool_(True))
        for i, reward in zip(request.rollout_ids, told, strict=True)
    )
    assert controller.finish().rewards.tolist() == [1.0, 0.0, 1.0, 0.0]


@pytest.mark.parametrize(
    "wrong",
    [
        {"step": 2**53},
        {"step": 10**5000},
        {"step": "next"},
        {"policy_version": 2**63},
        {"policy_version": -1},
        {"policy_version": 1.7},
        {"policy_version": "abc"},
        {"policy_version": Unfriendly()},
    ],
    ids=[*"abcdefgh"],
)
def test_a_step_or_version_that_no_batch_or_state_can_hold_is_refused_and_no_step_is_open(wrong):
    controller = simple(rollouts=4)
    before = controller.state_dict()
    with pytest.raises(ArgumentError, match=f"{next(iter(wrong))} must be a whole number in"):
        controller.begin(["a"], **wrong)
    assert before == controller.state_dict()
    assert not controller.is_open


@pytest.mark.parametrize("name", ["uniform", "vip"])
def test_the_last_step_and_version_end_in_a_batch_and_a_state_that_loads(name):
    def fresh():
        return Controller(preset(name), budget=Budget(rollouts=8))

    controller = fresh()
    controller.begin(["a"], step=2**53 - 1, policy_version=2**63 - 1)
    for request in controller.ask():
        controller.tell(outcome(i, "a", i % 2) for i in request.rollout_ids)
    assert set(controller.finish().policy_version.tolist()) == {2**63 - 1}
    other, state = fresh(), through_json(controller.state_dict())
    other.load_state_dict(state)
    assert through_json(other.state_dict()) == state
    with pytest.raises(ArgumentError, match="step must be a whole number"):
        controller.begin(["a"])


def test_numpy_numbers_are_told_and_saved_like_any_other():
    controller = simple(rollouts=4)
    controller.begin(np.array([3, 4]), policy_version=np.int64(7))
    for request in controller.ask():
        controller.tell(
            Outcome(
                rollout_id=np.int64(i),
                prompt_id=np.int64(request.prompt_id),
                reward=np.float32(1.0),
                success=np.bool_(True),
                n_tokens=np.int32(5),
                policy_version=np.int64(6),
                trajectory_id=np.int64(i),
            )
            for i in request.rollout_ids
        )
    through_json(controller.state_dict())
    assert controller.finish().policy_version.tolist() == [6, 6, 6, 6]


# --- ask anytime, order, determinism ---------------------------------------------------------------------------


@given(make=controllers(), host=hosts(), count=st.integers(1, 8), capacity=st.none() | st.integers(1, 9))
def test_two_controllers_told_the_same_decide_the_same_bit_for_bit(make, host, count, capacity):
    first, second = feasible(make, range(count)), feasible(make, range(count))
    for step in range(2):
        batches = []
        for controller in (first, second):
            rng = np.random.default_rng(step)
            batches.append(
                run_step(controller, host, range(count), capacity=capacity, rng=rng, begin=step > 0)
            )
        assert batches[0][1] == batches[1][1]
        assert_same_batch(batches[0][0], batches[1][0])
    assert first.state_dict() == second.state_dict()


@given(make=controllers(), host=hosts(), count=st.integers(1, 8), seed=st.integers(0, 99))
def test_the_order_inside_a_tell_does_not_matter(make, host, count, seed):
    plain, mixed = feasible(make, range(count)), feasible(make, range(count))
    rng = np.random.default_rng(seed)
    while not plain.is_done:
        requests = plain.ask()
        assert requests == mixed.ask()
        outcomes = host.answer(requests)
        plain.tell(outcomes)
        rng.shuffle(outcomes)
        mixed.tell(outcomes)
    assert_same_batch(plain.finish(), mixed.finish())
    assert plain.state_dict() == mixed.state_dict()


def test_ask_may_come_at_any_time_and_empty_is_not_done():
    controller = simple(rollouts=4)
    controller.begin(["a", "b"])
    assert controller.ask(0) == []
    requests = controller.ask()
    assert controller.ask() == []
    assert not controller.is_done
    controller.tell([])
    controller.tell(Host().answer(requests))
    assert controller.is_done
    assert controller.ask() == []


@given(capacity=st.integers(1, 20))
def test_a_capacity_bounds_what_is_asked_and_loses_nothing(capacity):
    controller = simple("sara", 64, pool=range(40))
    controller.begin(PROMPTS)
    while not controller.is_done:
        requests = controller.ask(capacity)
        assert 0 < sum(len(r.rollout_ids) for r in requests) <= capacity
        controller.tell(Host().answer(requests))


def test_seeds_differ_within_a_prompt_and_follow_prompt_and_step_alone():
    def seeds(order, capacity):
        controller = simple(rollouts=16)
        _, asked = run_step(controller, Host(), order, capacity=capacity)
        return {(r.prompt_id, r.seed + j) for r in asked for j in range(len(r.rollout_ids))}, sum(
            len(r.rollout_ids) for r in asked
        )

    one, n = seeds([1, 2, 3, 4], None)
    two, _ = seeds([4, 3, 2, 1], 3)
    assert one == two
    assert len(one) == n


@given(seed=st.integers(0, 200), speculate=st.booleans())
def test_prefix_verdicts_do_not_depend_on_the_order_of_arrival(seed, speculate):
    strategy = preset(
        "sara", group_size=8, schedule=(3, 5), threshold=0.6, speculate=speculate, over_provision=8.0
    )

    def verdicts(rng):
        controller = Controller(strategy, budget=Budget(rollouts=8 * 12), retries=0.0)
        run_step(controller, Host(seed=seed), range(12), rng=rng)
        return [(g.prompt_id, g.committed, g.stopped_at) for g in controller._engine.state.groups]

    assert verdicts(None) == verdicts(np.random.default_rng(seed))


def test_verdicts_on_arrival_use_whatever_came():
    def last_results_first(verdict_on):
        controller = Controller(
            preset("sara", group_size=4, schedule=(2,), speculate=True, verdict_on=verdict_on),
            budget=Budget(rollouts=4),
        )
        controller.begin(["a"])
        (request,) = controller.ask()
        controller.tell(outcome(i, "a", r) for i, r in zip(request.rollout_ids[2:], [1.0, 0.0], strict=True))
        return controller._engine.state.groups[0].committed

    assert last_results_first("arrival") is True
    assert last_results_first("prefix") is None


# --- save and load ---------------------------------------------------------------------------------------------


@given(
    make=controllers(),
    host=hosts(),
    count=st.integers(1, 8),
    stop=st.integers(0, 12),
    between=st.booleans(),
    cut=st.integers(1, 9),
    capacity=st.none() | st.integers(1, 12),
)
def test_save_load_continue_equals_never_stopped(make, host, count, stop, between, cut, capacity):
    def run(interrupted):
        controller = feasible(make, range(count))
        trace, moves, waiting = [], 0, []
        for step in range(3):
            if step:
                controller.begin(range(count))
            while not controller.is_done:
                waiting += host.answer(controller.ask(capacity))
                if interrupted and moves == stop:
                    fresh = make()
                    fresh.load_state_dict(through_json(controller.state_dict()))
                    controller = fresh
                    # The host lost what was out: it gets the same ids and seeds, hence the same results.
                    again = host.answer(controller.ask(len(controller._engine.state.lost)))
                    lost = {o.rollout_id: o for o in waiting}
                    assert all(lost[o.rollout_id] == o for o in again)
                moves += 1
                told, waiting = waiting[:cut], waiting[cut:]
                controller.tell(told)
            batch = controller.finish()
            waiting = []
            trace.append(batch)
            if interrupted and between:
                fresh = make()
                fresh.load_state_dict(through_json(controller.state_dict()))
                controller = fresh
        return trace, controller.state_dict()

    (left, left_state), (right, right_state) = run(False), run(True)
    for one, two in zip(left, right, strict=True):
        assert_same_batch(one, two)
    assert through_json(left_state) == through_json(right_state)


def test_what_is_asked_again_keeps_its_ids_and_seeds_around_what_was_told():
    controller = simple(rollouts=4)
    controller.begin(["a"])
    (request,) = controller.ask()
    controller.tell([outcome(request.rollout_ids[1], "a", 1.0)])
    fresh = simple(rollouts=4)
    fresh.load_state_dict(through_json(controller.state_dict()))
    again = [(i, r.seed + j) for r in fresh.ask() for j, i in enumerate(r.rollout_ids)]
    assert again == [(i, request.seed + j) for j, i in enumerate(request.rollout_ids) if j != 1]


def test_a_state_of_another_prompt_set_version_or_shape_is_refused_and_changes_nothing():
    controller = simple("sara", 64, pool=range(40))
    run_step(controller, Host(), PROMPTS)
    good = through_json(controller.state_dict())
    other = simple("sara", 64, pool=range(41))
    with pytest.raises(StateError, match="another prompt set"):
        other.load_state_dict(good)
    fresh = simple("sara", 64, pool=range(40))
    before = fresh.state_dict()
    for bad, message in [
        ({**good, "version": 99}, "version 99"),
        ({**good, "version": True}, "version True"),
        ({k: v for k, v in good.items() if k != "late"}, "lacks \\['late'\\]"),
        ({**good, "belief": {}}, "belief"),
        ({**good, "carried": [{"prompt_id": 1}]}, "a group that this neyman cannot read"),
        ({**good, "yield": {}}, "yield state must have"),
    ]:
        with pytest.raises(StateError, match=message):
            fresh.load_state_dict(bad)
        assert before == fresh.state_dict()
    with pytest.raises(StateError, match="other fields"):
        fresh.load_state_dict({**good, "open": {}})
    assert before == fresh.state_dict()


def test_a_state_survives_a_prediction_that_is_not_known():
    from neyman.step._group import Group, Slot
    from neyman.step.messages import Reason

    group = Group(prompt_id="a", size=2, reason=Reason.PROBE, slots=[Slot()])
    again = Group.from_state(through_json(group.state_dict()))
    assert math.isnan(again.predicted)
    assert math.isnan(again.slots[0].reward)
    assert group.state_dict() == again.state_dict()


# --- missing results -------------------------------------------------------------------------------------------


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


# --- success and reward ----------------------------------------------------------------------------------------


def test_success_is_judged_and_reward_is_trained():
    controller = simple("dynamic-sampling", 8)
    controller.begin(["long", "mixed"])
    rewards = {"long": [-0.1, -0.5, -0.2, -0.9], "mixed": [0.9, -0.1, -0.1, 0.8]}
    for r in controller.ask():
        controller.tell(
            outcome(i, r.prompt_id, x, success=x > 0.5)
            for i, x in zip(r.rollout_ids, rewards[r.prompt_id], strict=True)
        )
    batch = controller.finish()
    assert batch.prompt_ids == ("mixed",) * 4
    assert batch.success.tolist() == [1, 0, 0, 1]
    assert batch.rewards.tolist() == [0.9, -0.1, -0.1, 0.8]


def test_final_rewards_of_the_host_replace_what_was_told():
    controller = simple(rollouts=8)
    batch, _ = run_step(controller, Host(rates={"a": 0.5, "b": 0.5}), ["a", "b"])
    final = np.arange(8.0)
    again = batch.with_rewards(final)
    expected = neyman.group_advantages(final, batch.groups, estimator="grpo")
    assert expected.tolist() == again.advantages.tolist()
    assert again.weights is batch.weights
    with pytest.raises(ArgumentError, match="one entry per row"):
        batch.with_rewards([1.0])


def test_final_rewards_of_copies_are_in_no_statistic():
    controller = simple("dynamic-sampling", 16, train_rows=16)
    batch, _ = run_step(
        controller, Host(rates={"a": 0.5, "b": 0.0, "c": 0.0, "d": 0.0}), ["a", "b", "c", "d"]
    )
    again = batch.with_rewards(np.arange(16.0))
    assert (~again.counted).any()
    assert np.isnan(again.rewards[~again.counted]).all()
    assert not again.advantages[~again.counted].any()


def test_a_batch_travels_between_processes():
    import pickle

    batch, _ = run_step(simple(rollouts=8), Host(), ["a", "b"])
    assert_same_batch(batch, pickle.loads(pickle.dumps(batch)).with_rewards(batch.rewards))


# --- closing ---------------------------------------------------------------------------------------------------


def test_fill_copies_have_no_weight_and_no_advantage():
    controller = simple("sara", 32, train_rows=32)
    batch, _ = run_step(
        controller, Host(rates={"a": 0.5, "b": 0.0}), ["a", "b", "c", "d", "e", "f", "g", "h"]
    )
    copies = batch.groups < 0
    assert len(batch) == 32
    assert copies.any()
    assert not batch.weights[copies].any()
    assert not batch.advantages[copies].any()


def test_rows_come_in_multiples_of_the_divisor_without_any_being_cut():
    controller = simple(rollouts=16, divisor=8, retries=0.0)
    batch, _ = run_step(controller, Host(failing=0.2, seed=3), PROMPTS)
    assert batch.report["rows_filled"] > 0
    assert len(batch) == 16


@pytest.mark.parametrize("dead_groups", ["keep", "exclude"])
def test_weights_give_the_mean_of_group_means(dead_groups):
    controller = simple("vip", 64, train_rows=64, options={"dead_groups": dead_groups}, pool=range(40))
    for _ in range(4):
        batch, _ = run_step(controller, Host(failing=0.1), PROMPTS)
        values = np.random.default_rng(0).normal(size=len(batch))
        groups = [batch.counted & (batch.groups == g) for g in range(batch.groups.max() + 1)]
        if dead_groups == "exclude":
            groups = [g for g in groups if 0 < batch.success[g].sum() < g.sum()]
        means = [values[g].mean() for g in groups if g.any()]
        assert np.mean(means) == pytest.approx(np.mean(batch.weights * values))


def test_an_early_end_by_the_host_gives_a_batch_and_what_comes_later_is_late():
    controller = simple(rollouts=8)
    controller.begin(["a", "b"])
    requests = controller.ask(6)
    results = Host().answer(requests)
    controller.tell(results[:3])
    batch = controller.finish()
    assert batch.stop_reason is StopReason.HOST
    assert batch.report["rows"] == 3
    controller.begin(["c"])
    with pytest.raises(ContractError, match="out of line"):
        controller.tell([outcome(results[4].rollout_id, "c", 1.0)])
    controller.tell(results[3:] + results[3:])
    controller.tell(results)  # told again, and of a closed step: nothing is counted twice
    assert controller.ledger.rollouts(Fate.LATE) == 3
    assert_consistent(controller)


def test_an_empty_pool_ends_the_step_with_what_there_is():
    controller = Controller(
        preset("dynamic-sampling", group_size=4), budget=Budget(rollouts=64), train_rows=16, pool=range(3)
    )
    batch, _ = run_step(controller, Host(rates=dict.fromkeys(range(3), 0.5)), [0])
    assert batch.stop_reason is StopReason.POOL
    assert controller.ledger.prompts_visited == 3
    assert len(batch) == 16


def test_without_candidates_all_prompts_come_from_the_pool():
    for name in ("uniform", "vip", "sara", "neyman"):
        controller = simple(name, 64, pool=range(40))
        _, asked = run_step(controller, Host(), [])
        assert len({r.prompt_id for r in asked}) >= 8
    with pytest.raises(ArgumentError, match="no candidates and the controller has no pool"):
        simple().begin([])


def test_a_prompt_that_stands_twice_counts_once():
    controller = simple(rollouts=8)
    batch, _ = run_step(controller, Host(), ["a", "a", "b", "a"])
    assert batch.prompt_ids == ("a",) * 4 + ("b",) * 4


def test_streamed_groups_leave_once_and_as_soon_as_they_close():
    controller = simple("uniform, streaming", 12)
    controller.begin(["a", "b", "c"])
    a, b, c = (Host().outcomes(r) for r in controller.ask())
    assert len(controller.drain()) == 0
    controller.tell([*a, *b[:2]])
    first = controller.drain()
    assert set(first.prompt_ids) == {"a"}
    assert first.stop_reason is StopReason.OPEN
    state = through_json(controller.state_dict())
    controller = simple("uniform, streaming", 12)
    controller.load_state_dict(state)
    assert len(controller.drain()) == 0, "what was handed out is remembered"
    controller.tell([*b[2:], *c])
    assert set(controller.drain().prompt_ids) == {"b", "c"}
    assert [r.prompt_id for r in controller.group_reports] == ["a", "b", "c"]
    assert len(controller.finish()) == 0
    assert_consistent(controller)


def test_groups_that_will_be_counted_again_are_not_drained():
    controller = simple("vip, streaming", 32)
    controller.begin(["a", "b"])
    requests = controller.ask()
    controller.tell(Host().outcomes(requests[0]))
    assert len(controller.drain()) == 0
    whole = simple()
    whole.begin(["a"])
    with pytest.raises(CallOrderError, match="close='streaming'"):
        whole.drain()


def test_after_a_commit_a_group_may_stop_as_it_is():
    def rollouts(after_commit):
        controller = Controller(
            preset("sara", group_size=8, after_commit=after_commit), budget=Budget(rollouts=8)
        )
        controller.begin(["a"])
        tell_all(controller, lambda place: float(place == 0))
        batch, _ = run_step(controller, Host(), [], begin=False)
        return len(batch)

    assert rollouts("complete") == 8
    assert rollouts("stop") == 4


def test_speculation_asks_for_whole_groups_and_cancels_what_a_verdict_makes_needless():
    controller = Controller(
        preset("sara", group_size=8, speculate=True), budget=Budget(rollouts=8), retries=0.0
    )
    controller.begin(["a"])
    (request,) = controller.ask()
    assert len(request.rollout_ids) == 8
    controller.tell(outcome(i, "a", 0.0) for i in request.rollout_ids[:4])
    (cancel,) = controller.cancellations()
    assert request.rollout_ids[4:] == cancel.rollout_ids
    assert controller.is_done
    controller.tell([outcome(request.rollout_ids[4], "a", 1.0)])
    assert controller.cancellations() == []
    controller.finish()
    assert controller.ledger.rollouts(Fate.ABANDONED) == 5
    assert_consistent(controller)


def test_committed_groups_are_completed_from_the_allowance_or_closed_as_they_are():
    def rows(from_allowance):
        controller = Controller(
            preset("sara", group_size=8, complete_from_allowance=from_allowance, over_provision=2.0),
            budget=Budget(rollouts=8),
            retries=1.0,
        )
        controller.begin(["a", "b"])
        tell_all(controller, lambda place: float(place % 2))
        return len(run_step(controller, Host(), [], begin=False)[0])

    # 8 rollouts probe two prompts, 4 each; both commit, and completing them needs 8 more.
    assert rows(from_allowance=False) == 8
    assert rows(from_allowance=True) == 16


def test_what_was_handed_out_is_not_extended_afterwards():
    controller = simple("sara, streaming", 16)  # groups of 4, looked at after 2
    controller.begin(["a", "b"])
    a, b = controller.ask()
    controller.tell(outcome(i, "a", float(n)) for n, i in enumerate(a.rollout_ids))
    (rest,) = controller.ask()
    controller.tell(outcome(i, "a", 1.0) for i in rest.rollout_ids)
    assert set(controller.drain().prompt_ids) == {"a"}
    controller.tell(outcome(i, "b", 0.0) for i in b.rollout_ids)
    assert {r.prompt_id for r in controller.ask()} == {"b"}


def test_groups_with_results_still_out_are_not_handed_out():
    strategy = preset("sara", group_size=8, speculate=True, close="streaming")
    controller = Controller(strategy, budget=Budget(rollouts=8))
    controller.begin(["a"])
    (request,) = controller.ask()
    controller.tell(outcome(i, "a", 0.0) for i in request.rollout_ids[:4])
    assert len(controller.drain()) == 0, "it is given up, but four results may still come"
    controller.tell(outcome(i, "a", 0.0) for i in request.rollout_ids[4:])
    assert len(controller.drain()) == 8
    assert_consistent(controller)


def test_a_group_that_stops_gives_back_what_it_had_not_asked_for():
    strategy = preset("sara", group_size=8, speculate=True, after_commit="stop")
    controller = Controller(strategy, budget=Budget(rollouts=8))
    controller.begin(["a"])
    (request,) = controller.ask(3)
    controller.tell(outcome(i, "a", float(n)) for n, i in enumerate([*request.rollout_ids[:2]]))
    assert controller.ask() == []
    controller.tell([outcome(request.rollout_ids[2], "a", 1.0)])
    assert controller.is_done
    assert len(controller.finish()) == 3


def test_a_retry_that_is_not_needed_any_more_goes_back_to_the_allowance():
    controller = Controller(
        preset("sara", group_size=8, speculate=True), budget=Budget(rollouts=8), retries=0.5
    )
    controller.begin(["a"])
    (request,) = controller.ask()
    controller.tell([outcome(request.rollout_ids[6], "a", None)])
    controller.tell(outcome(i, "a", 0.0) for i in request.rollout_ids[:4])
    assert controller.is_done
    assert (controller._engine.state.left, controller._engine.state.retries_left) == (0, 4)
    assert_consistent(controller)


def test_a_wave_is_not_topped_up_while_its_groups_are_undecided():
    controller = Controller(
        preset("dynamic-sampling", group_size=4, over_provision=1.0),
        budget=Budget(rollouts=64),
        train_rows=8,
        pool=range(20),
    )
    controller.begin([0, 1])
    requests = controller.ask()
    assert [r.prompt_id for r in requests] == [0, 1]
    controller.tell([outcome(requests[0].rollout_ids[0], 0, 1.0)])
    assert controller.ask() == []


def test_complete_groups_are_trained_before_short_ones():
    controller = Controller(
        preset("dynamic-sampling", group_size=4, over_provision=1.5),
        budget=Budget(rollouts=64),
        train_rows=8,
        retries=0.0,
    )
    controller.begin(["a", "b", "c"])
    requests = {r.prompt_id: r.rollout_ids for r in controller.ask()}
    controller.tell(
        outcome(
            i,
            p,
            None if (p, n) == ("a", 3) else float(n % 2),
            status="failed" if (p, n) == ("a", 3) else "ok",
        )
        for p, ids in requests.items()
        for n, i in enumerate(ids)
    )
    batch = controller.finish()
    assert batch.prompt_ids == ("b",) * 4 + ("c",) * 4
    assert batch.counted.all()


# --- call order and arguments ----------------------------------------------------------------------------------


def test_calls_out_of_order_say_what_to_call():
    controller = simple()
    tell = lambda: controller.tell([])  # noqa: E731
    for call in (controller.ask, controller.finish, tell, controller.drain, controller.cancellations):
        with pytest.raises(CallOrderError, match="call begin first"):
            call()
    controller.begin(["a"])
    for call in (lambda: controller.begin(["a"]), lambda: controller.load_state_dict({})):
        with pytest.raises(CallOrderError, match="call finish first"):
            call()
    controller.finish()
    with pytest.raises(
        ArgumentError, match="step must be a whole number in \\[1, 9007199254740991\\], got 0"
    ):
        controller.begin(["a"], step=0)


def test_numbers_that_do_not_divide_are_refused_with_the_legal_ones():
    with pytest.raises(ArgumentError, match="a multiple of divisor=8, got 20; the nearest are 16 and 24"):
        simple(rollouts=20, divisor=8)
    with pytest.raises(ArgumentError, match="got 4; the least is 8"):
        simple(rollouts=4, divisor=8)
    controller = simple("sara", 64, train_rows=30)
    with pytest.raises(ArgumentError, match=r"group size 4, got 30.*nearest are 28 and 32"):
        controller.begin(PROMPTS)


@pytest.mark.parametrize("given_", ["vip", None, 3, preset])
def test_what_is_no_strategy_is_named(given_):
    with pytest.raises(ArgumentError, match=r"strategy must be a neyman\.Strategy, got .*preset\('vip'\)"):
        Controller(given_, budget=Budget(rollouts=8))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"retries": -0.1}, "retries"),
        ({"retries": 3}, r"retries must be .*\[0.0, 1.0\], got 3; it is a share .* max_tries"),
        ({"divisor": 0}, "divisor"),
        ({"fill": "zeros"}, "fill"),
        ({"aggregation": "mean"}, "aggregation"),
        ({"seed": 0.5}, "seed"),
        ({"pool": [1, 1]}, "stands in it twice"),
        ({"pool": []}, "pool"),
        ({"pool": [None]}, "pool must hold strings or integers"),
        ({"options": {"prompt_weight": "equal_tokens"}}, "token_mean"),
    ],
)
def test_illegal_arguments_name_themselves(arguments, message):
    with pytest.raises(ArgumentError, match=message):
        simple(**arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "exactly one"),
        ({"rollouts": 1, "tokens": 1}, "exactly one"),
        ({"rollouts": 0}, "rollouts must be >= 1"),
        ({"tokens": 100}, "needs tokens_per_rollout"),
        ({"tokens": 100, "tokens_per_rollout": 200}, "tokens_per_rollout must be"),
    ],
)
def test_a_budget_is_one_positive_number(arguments, message):
    with pytest.raises(ArgumentError, match=message):
        Budget(**arguments)


def test_groups_of_one_can_never_be_mixed_and_are_refused():
    controller = Controller(preset("sara"), budget=Budget(rollouts=4))
    with pytest.raises(ArgumentError, match="group size must be >= 2, got 1 for 4 candidates"):
        controller.begin(range(4))


def test_padding_is_in_the_account():
    controller = simple(rollouts=4)
    controller.begin(["a"])
    controller.record_padding(3, 30)
    assert controller.ledger.tokens(Fate.PADDING) == 30
    assert_consistent(controller)
    with pytest.raises(ArgumentError, match="rollouts must be >= 0"):
        controller.record_padding(-1, 0)


def test_a_report_says_why_each_prompt_got_its_rollouts():
    controller = simple("sara", 64, pool=range(40))
    run_step(controller, Host(), PROMPTS)
    reports = controller.group_reports
    assert sum(r.rollouts for r in reports) == controller._engine.state.asked
    assert {r.outcome for r in reports} <= {"trained", "abandoned", "surplus", "dropped"}
    assert all(r.reason for r in reports)
    assert json.dumps([r.outcome for r in reports])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["sara", "sara, speculate", "vip, probe"])
def test_ten_thousand_prompts_told_in_small_portions_end_in_a_balanced_step(name):
    controller = simple(name, 80_000, pool=range(20_000))
    controller.begin(range(10_000))
    waiting = []
    while not controller.is_done:
        requests = controller.ask(64)
        waiting += [
            outcome(i, r.prompt_id, float(i * r.prompt_id % 7 == 0)) for r in requests for i in r.rollout_ids
        ]
        told, waiting = waiting[:64], waiting[64:]
        controller.tell(told)
    batch = controller.finish()
    assert len(batch) > 0
    assert 0 < controller.ledger.requested <= 88_000  # the budget and its allowance for failures


def test_a_group_counted_again_after_its_probe_says_so():
    controller = neyman.Controller(
        neyman.preset("neyman", among=1.0), neyman.Budget(rollouts=64), pool=range(40)
    )
    controller.begin(range(8))
    while not controller.is_done:
        controller.tell(
            [outcome(i, r.prompt_id, float(i % 2)) for r in controller.ask() for i in r.rollout_ids]
        )
    controller.finish()
    reasons = [r.reason for r in controller.group_reports]
    assert set(reasons[:8]) == {neyman.Reason.RECOUNT.value}
    assert set(reasons[12:]) <= {neyman.Reason.PLANNED.value}, (
        "opened beside the probed ones, not counted again"
    )


def test_a_restored_step_does_not_wait_for_cancelled_rollouts_that_nobody_asks_for_again():
    def make():
        strategy = preset(
            "sara", group_size=8, schedule=(2,), speculate=True, threshold=0.9, close="fixed_spend"
        )
        return Controller(strategy, Budget(tokens=400, tokens_per_rollout=10), pool=range(100))

    controller = make()
    controller.begin(range(5))
    requests = controller.ask(capacity=20)
    controller.tell(outcome(i, r.prompt_id, 0, n_tokens=30) for r in requests for i in r.rollout_ids[:2])
    restored = make()
    restored.load_state_dict(through_json(controller.state_dict()))
    for _ in range(100):
        if restored.is_done:
            break
        restored.tell(
            outcome(i, r.prompt_id, i % 2, n_tokens=30) for r in restored.ask() for i in r.rollout_ids
        )
        assert_consistent(restored)
    assert restored.is_done
    assert restored.finish().stop_reason is StopReason.BUDGET


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("step",), None),
        (("step",), "3"),
        (("clock",), -1),
        (("next_rollout",), 0),
        (("next_rollout",), 7.5),
        (("passes",), math.nan),
        (("late",), [[1]]),
        (("late",), [[99, "a"]]),
        (("carried",), {"a": 1}),
        (("carried",), [None]),
        (("memory",), [["a", 3]]),
        (("seed",), None),
        (("ledger", "requested"), 17),
        (("ledger", "requested"), "8"),
        (("ledger", "account", "failed", "rollouts"), 1),
        (("ledger", "visits"), 3),
        (("ledger", "seconds", "update"), -1.0),
        (("yield",), None),
        (("open", "groups"), None),
        (("open", "groups", 0, "slots", 0, "state"), "ASLEEP"),
        (("open", "groups", 0, "slots", 0, "state"), ["OUT"]),
        (("open", "groups", 0, "slots", 0, "reward"), "1"),
        (("open", "groups", 0, "slots", 0, "rollout_id"), 1),
        (("open", "groups", 0, "slots", 0, "tries"), -5),
        (("open", "groups", 0, "settled"), 9),
        (("open", "groups", 0, "prior"), [0.0, 1.0]),
        (("open", "groups", 0, "prompt_id"), "b"),
        (("open", "groups", 0, "prompt_id"), {}),
        (("open", "live"), [0, 1, 2]),
        (("open", "live"), []),
        (("open", "left"), 3),
        (("open", "asked"), -1),
        (("open", "reports"), [{"prompt_id": 1}]),
        (("open", "first_error"), 7),
    ],
    ids=lambda value: ".".join(map(str, value)) if isinstance(value, tuple) else repr(value),
)
def test_a_damaged_state_is_refused_and_changes_nothing(path, value):
    controller = simple(rollouts=16)
    controller.begin(["a", "b"])
    controller.tell(Host().answer(controller.ask(6)))
    state = json.loads(json.dumps(controller.state_dict()))
    holder = state
    for key in path[:-1]:
        holder = holder[key]
    assert holder[path[-1]] != value
    holder[path[-1]] = value
    other = simple(rollouts=16)
    before = other.state_dict()
    with pytest.raises(StateError, match=r"controller state|ledger|yield|the state holds a (group|rollout)"):
        other.load_state_dict(state)
    assert other.state_dict() == before
    assert not other.is_open
