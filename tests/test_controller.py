"""The controller: order of calls, legal arguments, and the account of a step."""

from __future__ import annotations

import json
import math

import pytest

import neyman
from neyman import Budget, Controller, Fate, StopReason, preset
from neyman.errors import ArgumentError, CallOrderError, StateError
from strategies import (
    Host,
    assert_consistent,
    outcome,
    run_step,
    simple,
    through_json,
)

PROMPTS = list(range(8))


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
