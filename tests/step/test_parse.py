"""Outcomes and the requests they belong to: joined by id, checked before anything is taken in."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

from neyman import Budget, Controller, Outcome, preset
from neyman.errors import ArgumentError, ContractError
from strategies import (
    outcome,
    simple,
    through_json,
)


class Unfriendly(Exception):
    """What a reward function may raise or return: nothing can be made of it, nor be shown."""

    def _fail(self, *_):
        raise RuntimeError("no")

    __repr__ = __str__ = __float__ = __eq__ = __hash__ = __bool__ = _fail


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
