"""Counts for all prompts at once, or after a probe: the planner of strategies without a verdict."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, final

import numpy as np

from neyman.errors import StateError
from neyman.step._group import Group
from neyman.step._state import StepState
from neyman.step._view import evidence, step_view
from neyman.step.messages import Reason


@final
class AtOnce:
    """Plan the whole budget when the step begins; with a probe, plan its rest again when the probe's results are in."""

    target = None
    sees_whole_groups = True

    def __init__(self, state: StepState) -> None:
        self._state = state
        self._recounts_left = 0

    @property
    def is_pending(self) -> bool:
        """Whether the rest of the budget waits for the probe's results."""
        return self._recounts_left > 0

    def begin(self) -> None:
        """Select prompts and plan their counts, or their probes."""
        state, rule, self._recounts_left = self._state, self._state.strategy.allocate, 0
        if state.candidates:
            count = max(1, round(state.strategy.prompts * len(state.candidates)))
        else:
            count = max(1, state.left // rule.group_size(state.average))
        if rule.probe:
            count = min(count, max(1, state.left // rule.probe))
        ids = state.strategy.select.pick(step_view(state), count)
        state.mark_exhausted(len(ids) < count)
        if not ids:
            return
        # Too small a budget is planned at once.
        first = rule.probe if rule.probe * len(ids) <= state.left else 0
        issued = np.full(len(ids), first, dtype=np.int64)
        # After a probe the counts are taken again; that they exist is checked now, not in the middle of a step.
        moments = state.strategy.belief.predict(ids)
        counts = rule.counts(evidence(state, ids, issued, moments), state.left).tolist()
        self._recounts_left = rule.recounts if first else 0
        sizes = issued.tolist() if first else counts
        state.open(ids, moments, sizes=sizes, lengths=sizes, reason=Reason.PROBE if first else Reason.PLANNED)

    def judge(self, index: int) -> None:
        """Judge nothing: groups are committed when they are opened."""

    def retire(self, index: int) -> None:
        """Take a group out of play."""
        self._state.retire(index)

    def advance(self) -> None:
        """Give out the next share of the rest once every result of the last one is in."""
        if self.is_pending and not self._state.live:
            self._recount()

    def _recount(self) -> None:
        state, rule = self._state, self._state.strategy.allocate
        share = math.ceil(state.left / self._recounts_left)
        self._recounts_left -= 1
        ids = [group.prompt_id for group in state.groups]
        issued = [len(group.slots) for group in state.groups]
        if rule.opens:
            fresh = state.strategy.select.pick(step_view(state), share // rule.probe)
            # No rollout yet: the rule may leave them closed.
            ids, issued = ids + fresh, issued + [0] * len(fresh)
        mean, variance = state.strategy.belief.predict(ids)
        known = evidence(state, ids, np.array(issued, dtype=np.int64), (mean, variance))
        counts = rule.counts(known, sum(issued) + share).tolist()
        for group, n in zip(state.groups, counts, strict=False):
            group.resize(n, Reason.RECOUNT)
        for index in range(opened := len(state.groups)):
            state.plan(index, counts[index])
        rest, planned = (mean[opened:], variance[opened:]), counts[opened:]
        state.open(ids[opened:], rest, sizes=planned, lengths=planned, reason=Reason.PLANNED)

    def stop(self) -> None:
        """Leave the rest of the budget unspent."""
        self._recounts_left = 0

    def is_wanted(self, group: Group) -> bool:
        """Carry nothing over: every group trains in its own step."""
        del group
        return False

    def audit(self, *, is_final: bool) -> dict[str, float]:
        """Report nothing: no verdict was taken."""
        del is_final
        return {}

    def state_dict(self) -> dict[str, Any]:
        """Return the recounts that are still to come, JSON-safe."""
        return {"price": None, "recounts_left": self._recounts_left}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take up an open step.

        Raises:
            StateError: a number of recounts that is none, or a price, which no verdict can have here.
        """
        recounts = state["recounts_left"]
        if state["price"] is not None or type(recounts) is not int or recounts < 0:
            raise StateError(
                f"a step without a verdict has no price and a whole number of recounts, got {state['price']!r:.80} "
                f"and {recounts!r:.80}"
            )
        self._recounts_left = recounts
