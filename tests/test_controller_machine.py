"""The controller under any sequence of calls, for every preset: what must hold is checked after each."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from neyman import Cancel, Controller, Outcome, Request
from neyman.keyed import PromptId
from strategies import Host, assert_consistent, assert_sound_batch, controllers, hosts, through_json


class Steps(RuleBasedStateMachine):
    """A host that asks, tells, cancels, loses, saves and restores as it likes."""

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
    @rule(count=st.integers(1, 8), stride=st.integers(0, 8))
    def begin(self, count: int, stride: int) -> None:
        candidates = [(self.next_prompt + i) % 40 for i in range(count)]
        self.next_prompt += stride
        try:
            self.controller.begin(candidates)
        except ValueError:  # infeasible or indivisible: nothing may have changed
            assert not self.controller.is_open

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
    @rule(count=st.integers(1, 5))
    def tell_again(self, count: int) -> None:
        before = self.controller.ledger.rollouts()
        self.controller.tell(self.told[-count:] + self.told[:count])
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
            self.told += told
            self.controller.tell(told)
        assert self.controller.is_done
        self.finish()

    @precondition(is_open)
    @rule()
    def finish(self) -> None:
        done, engine = self.controller.is_done, self.controller._engine
        batch = self.controller.finish()
        if self.controller.strategy.close != "streaming":
            assert_sound_batch(self.controller, batch, self.asked)
        if not done:
            assert batch.stop_reason.name == "HOST"
        elif self.controller.strategy.close == "fixed_spend" and engine.groups and not engine.was_cut:
            paid = sum(len(group.slots) for group in engine.groups)
            assert paid + engine.left == engine.budget.planned_rollouts
            assert engine.left == 0 or engine.exhausted

    @precondition(lambda self: self.controller.is_open and self.controller.strategy.close == "streaming")
    @rule()
    def drain(self) -> None:
        assert_sound_batch(self.controller, self.controller.drain(), self.asked)

    @invariant()
    def holds(self) -> None:
        if hasattr(self, "controller"):
            assert_consistent(self.controller)


TestSteps = Steps.TestCase
