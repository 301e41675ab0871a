"""A step in motion: requests go out, outcomes come in, and the planner of the strategy decides."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, final

from neyman.randomness import PromptId
from neyman.step._group import Phase
from neyman.step._once import AtOnce
from neyman.step._parse import Arrivals
from neyman.step._planner import PLANNED, Planner
from neyman.step._request import requests, token_room
from neyman.step._state import StepState
from neyman.step._waves import Waves
from neyman.step.messages import Reason, Request


@final
class Engine:
    """A step's state and its planner; `neyman.Controller` guards the order of the calls."""

    def __init__(self, state: StepState) -> None:
        self.state = state
        self.planner: Planner = AtOnce(state) if state.strategy.verdict is None else Waves(state)

    @property
    def is_done(self) -> bool:
        """Whether nothing is planned, out and wanted, or to be counted again."""
        return not self.state.live and not self.planner.is_pending

    def begin(self, candidates: list[PromptId], step: int, policy_version: int) -> None:
        """Open the first groups of a step; an error leaves no step open."""
        before = self.state.step
        self.state.begin(candidates, step, policy_version)
        try:
            self.planner.begin()
        except Exception:
            self.state.abandon_begin(before)
            raise

    def ask(self, capacity: int | None) -> list[Request]:
        """Return the rollouts to generate next, within the capacity and the token budget."""
        state, again = self.state, requests(self.state, self.state.hand_out_lost(capacity))
        if capacity is not None:
            capacity -= sum(len(request.rollout_ids) for request in again)
        room = token_room(state)
        if room is not None and room <= 0 and not state.awaited:
            done = self.is_done  # asked before the groups are retired, which ends the step
            self.stop()
            state.cut(is_done=done)
        if room is not None:
            capacity = max(0, room if capacity is None else min(room, capacity))
        fresh: list[Request] = []
        while (capacity is None or capacity > 0) and (index := state.queue.first()) is not None:
            slots = state.hand_out(index, capacity)
            fresh += requests(state, [(index, slot) for slot in slots])
            if capacity is not None:
                capacity -= len(slots)
        if fresh:
            state.count_round()
        return again + fresh

    def receive(self, arrivals: Arrivals) -> None:
        """Take in checked outcomes and draw the consequences, group by group in their order."""
        for result in arrivals.results:
            self.state.receive(result)
        for fragment in arrivals.fragments:
            self.state.receive_fragment(fragment)
        # In the order of groups, not of arrivals: the same results give the same decisions on every rank.
        for index in sorted({result.group_index for result in arrivals.results}):
            self._settle(index)
        self.planner.advance()

    def _settle(self, index: int) -> None:
        group = self.state.groups[index]
        if group.phase is Phase.OPEN:
            self.planner.judge(index)
        if not group.is_live or group.is_resolved:
            self.planner.retire(index)
            if not group.outcomes()[1]:
                group.move(group.phase, Reason.GIVEN_UP)
        else:
            self.state.requeue(index)

    def stop(self) -> None:
        """Await nothing more: retire the groups in play, and plan no further ones."""
        for index in list(self.state.live):
            self.planner.retire(index)
        self.planner.stop()

    def open_state(self) -> dict[str, Any]:
        """Return the open step, JSON-safe."""
        return {**self.state.open_state(), **self.planner.state_dict()}

    def load_open(self, saved: Mapping[str, Any]) -> None:
        """Restore an open step; rollouts that were out are requested again under their own ids."""
        self.state.load_open({name: value for name, value in saved.items() if name not in PLANNED})
        self.planner.restore(saved)
