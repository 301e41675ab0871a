"""The controller under any sequence of calls, for every preset: what must hold is checked after each."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from fuzz.tally import count
from neyman import Cancel, Controller, MissingReward, Outcome, Request
from neyman.errors import ArgumentError, ContractError, NeymanError
from neyman.randomness import PromptId
from strategies import Host, assert_consistent, assert_sound_batch, controllers, hosts, through_json

_UNSHOWABLE = "10**5000"  # in the place of the number itself, which Hypothesis could not show


def _meant(wrong: object) -> object:
    return 10**5000 if isinstance(wrong, str) and wrong == _UNSHOWABLE else wrong


@st.composite
def blunders(draw: st.DrawFn) -> dict[str, object]:
    """Draw fields of an outcome that must be refused."""
    field, wrong = draw(
        st.sampled_from(
            [
                ("reward", float("inf")),
                ("reward", "right"),
                ("reward", [1.0]),
                ("reward", 10**400),
                ("reward", "1"),
                ("reward", "nan"),
                ("reward", b"1"),
                ("reward", np.complex128(1)),
                ("protected", np.array([1, 0])),
                ("n_tokens", -(10**400)),
                ("policy_version", 2**63),
                ("policy_version", -1),
                ("trajectory_id", _UNSHOWABLE),
                ("success", "yes"),
                ("prompt_id", "another"),
                ("prompt_id", None),
                ("rollout_id", [0]),
                ("rollout_id", 10**9),
                ("rollout_id", -1),
                ("n_tokens", -1),
                ("n_tokens", 0.5),
                ("policy_version", "latest"),
                ("trajectory_id", ()),
                ("status", "fine"),
            ]
        )
    )
    return {"reward": 1.0, "success": None, field: _meant(wrong)}


class Steps(RuleBasedStateMachine):
    """A host that asks, tells, cancels, loses, blunders, saves and restores as it likes."""

    @initialize(make=controllers(), host=hosts(), shuffle=st.integers(0, 1000))
    def start(self, make, host: Host, shuffle: int) -> None:
        self.make = make
        self.host = host
        self.controller: Controller = make()
        self.rng = np.random.default_rng(shuffle)
        self.pending: list[Outcome] = []
        self.told: list[Outcome] = []
        self.asked: dict[int, PromptId] = {}
        self.cancelled: set[int] = set()
        self.next_prompt = 0

    def is_open(self) -> bool:
        return self.controller.is_open

    @precondition(lambda self: not self.controller.is_open)
    @rule(
        count=st.integers(1, 8),
        stride=st.integers(0, 8),
        version=st.none() | st.sampled_from([0, 2**53 + 1, 2**63 - 1]),
    )
    def begin(self, count: int, stride: int, version: int | None) -> None:
        candidates = [(self.next_prompt + i) % 40 for i in range(count)]
        self.next_prompt += stride
        try:
            self.controller.begin(candidates, policy_version=version)
        except ValueError:  # infeasible or indivisible: nothing may have changed
            assert not self.controller.is_open

    @precondition(lambda self: not self.controller.is_open)
    @rule(
        name=st.sampled_from(["step", "policy_version"]),
        wrong=st.sampled_from(
            [-1, 2**63, 10**400, -(10**400), _UNSHOWABLE, 0.5, "next", math.inf, [1], np.array([1, 2])]
        ),
    )
    def begin_with_nonsense(self, name: str, wrong: object) -> None:
        before = through_json(self.controller.state_dict())
        try:
            self.controller.begin([1, 2, 3], **{name: _meant(wrong)})
        except ArgumentError:
            assert through_json(self.controller.state_dict()) == before
        else:
            raise AssertionError(f"{name}={wrong!r:.80} was taken in")

    def take(self, requests: list[Request]) -> None:
        for request in requests:
            for rollout_id in request.rollout_ids:
                assert self.asked.setdefault(rollout_id, request.prompt_id) == request.prompt_id
            assert 0 <= request.seed < 2**31 - len(request.rollout_ids)
        self.pending += self.host.answer(requests)

    @precondition(is_open)
    @rule(capacity=st.none() | st.integers(0, 20))
    def ask(self, capacity: int | None) -> None:
        requests = self.controller.ask(capacity)
        if capacity is not None:
            assert sum(len(request.rollout_ids) for request in requests) <= capacity
        if self.controller.is_done:
            assert requests == []
        self.take(requests)

    @precondition(is_open)
    @rule(share=st.floats(0.0, 1.0))
    def tell(self, share: float) -> None:
        self.rng.shuffle(self.pending)
        cut = round(share * len(self.pending))
        told, self.pending = self.pending[:cut], self.pending[cut:]
        self.controller.tell(told)
        self.told += told

    @precondition(is_open)
    @rule(share=st.floats(0.0, 1.0), status=st.sampled_from(["failed", "timeout", "aborted"]))
    def tell_that_they_are_missing(self, share: float, status: str) -> None:
        cut = round(share * len(self.pending))
        lost, self.pending = self.pending[:cut], self.pending[cut:]
        reward = MissingReward("the verifier hangs", status)
        self.told += [replace(outcome, reward=reward, success=None, status="ok") for outcome in lost]
        self.controller.tell(self.told[len(self.told) - cut :])

    @precondition(lambda self: self.controller.is_open and self.pending)
    @rule(blunder=blunders())
    def tell_nonsense(self, blunder: dict[str, object]) -> None:
        before = through_json(self.controller.state_dict())
        mine = {i for group in self.controller._engine.state.groups for i in group.out()}
        wrong = next((o for o in self.pending if o.rollout_id in mine), None)
        if wrong is None:
            return  # all that is pending is late: its reward is not looked at
        try:
            self.controller.tell([*self.pending, replace(wrong, **{"status": "ok", **blunder})])
        except ContractError:
            assert through_json(self.controller.state_dict()) == before
        else:
            raise AssertionError(f"{list(blunder)} was taken in")

    @rule(call=st.sampled_from(["begin", "ask", "tell", "finish", "drain", "cancellations", "load"]))
    def call_out_of_order(self, call: str) -> None:
        controller, before = self.controller, through_json(self.controller.state_dict())
        calls = {
            "begin": lambda: controller.begin([1, 2, 3]),
            "load": lambda: controller.load_state_dict(before),
            "tell": lambda: controller.tell([]),
        }
        wants_open = call not in ("begin", "load")
        if controller.is_open == wants_open:
            return
        try:
            calls.get(call, getattr(controller, call, None))()
        except NeymanError:
            assert through_json(controller.state_dict()) == before
        else:
            raise AssertionError(f"{call} was taken in")

    @precondition(lambda self: self.pending)
    @rule(share=st.floats(0.0, 1.0))
    def lose(self, share: float) -> None:
        del self.pending[: round(share * len(self.pending))]

    @precondition(is_open)
    @rule(number=st.integers(1, 5))
    def tell_again(self, number: int) -> None:
        before = self.controller.ledger.rollouts()
        self.controller.tell(self.told[-number:] + self.told[:number])
        assert self.controller.ledger.rollouts() == before

    @precondition(is_open)
    @rule(honour=st.booleans())
    def cancel(self, honour: bool) -> None:
        for cancel in self.controller.cancellations():
            assert isinstance(cancel, Cancel)
            ids = set(cancel.rollout_ids)
            assert not ids & self.cancelled, "a rollout is cancelled once"
            self.cancelled |= ids
            if honour:
                self.pending = [
                    Outcome(rollout_id=o.rollout_id, prompt_id=o.prompt_id, reward=None, status="aborted")
                    if o.rollout_id in ids
                    else o
                    for o in self.pending
                ]

    @rule(host_survives=st.booleans())
    def save_and_load(self, host_survives: bool) -> None:
        state = through_json(self.controller.state_dict())
        fresh = self.make()
        fresh.load_state_dict(state)
        assert through_json(fresh.state_dict()) == state
        self.controller = fresh
        self.cancelled = set()
        if not host_survives:
            self.pending = []

    @precondition(is_open)
    @rule()
    def run_out(self) -> None:
        for _ in range(1000):
            if self.controller.is_done:
                break
            self.take(self.controller.ask())
            told, self.pending = self.pending, []
            if not told:  # what is awaited was lost: the host says so
                groups = self.controller._engine.state.groups
                told = [
                    Outcome(rollout_id=i, prompt_id=g.prompt_id, reward=None, status="failed")
                    for g in groups
                    for i in g.out()
                ]
            self.told += told
            self.controller.tell(told)
        assert self.controller.is_done
        self.finish()

    @precondition(is_open)
    @rule()
    def finish(self) -> None:
        done, engine = self.controller.is_done, self.controller._engine.state
        batch = self.controller.finish()
        if self.controller.strategy.close != "streaming":
            assert_sound_batch(self.controller, batch, self.asked)
        if not done:
            assert batch.stop_reason.name == "HOST"
        elif self.controller.strategy.close == "fixed_spend" and engine.groups and not engine.was_cut:
            paid = sum(not slot.replayed for group in engine.groups for slot in group.slots)
            assert paid + engine.left == engine.budget.planned_rollouts
            assert engine.left == 0 or engine.exhausted

    @precondition(lambda self: self.controller.is_open and self.controller.strategy.close == "streaming")
    @rule()
    def drain(self) -> None:
        assert_sound_batch(self.controller, self.controller.drain(), self.asked)

    @invariant()
    def holds(self) -> None:
        if hasattr(self, "controller"):
            count("controller, calls", "open" if self.controller.is_open else "closed")
            assert_consistent(self.controller)


TestSteps = Steps.TestCase
