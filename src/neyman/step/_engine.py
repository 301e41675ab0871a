"""The decisions of a step: which groups are open, how far each is planned, and what a result changes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, final

import numpy as np

from neyman import beliefs
from neyman.errors import StateError
from neyman.randomness import PromptId
from neyman.step._dead_groups import DeadGroups
from neyman.step._group import MISSING, OUT, PLANNED, VALID, Group, Phase, Slot
from neyman.step._parse import News, Place, Told
from neyman.step._pool import Pool
from neyman.step._queue import Waiting
from neyman.step._request import priority
from neyman.step._right_answers import Memory
from neyman.step._view import Moments, evidence, step_view
from neyman.step._waves import Waves
from neyman.step.ledger import Fate, Ledger
from neyman.step.messages import Budget, Cancel, GroupReport, Reason, Status
from neyman.strategy import Strategy

_GROUP_SIZE = 8  # where the host brings no prompts that the budget could be divided by
_KEPT = ("step", "clock", "next_rollout")
_OPEN = (
    "policy_version",
    "left",
    "retries_left",
    "recounts_left",
    "exhausted",
    "was_cut",
    "rounds",
    "awaiting_round",
    "asked",
    "tokens_told",
    "first_error",
)


@final
class Engine:
    """The state of a step and the moves on it; `Controller` guards the order of the calls.

    A slot of a group is planned, out, valid or missing. Planning a slot spends the budget; asking for it does
    not, so what was planned can always be asked for.
    """

    def __init__(
        self,
        strategy: Strategy,
        budget: Budget,
        *,
        train_rows: int | None,
        pool: Pool | None,
        seed: int,
        retries: float,
    ) -> None:
        self.strategy = strategy
        self.budget, self.train_rows, self.pool, self.seed = budget, train_rows, pool, seed
        self.retry_share = retries
        self.ledger = Ledger()
        self.step = -1
        self.clock = -1  # the step to which the belief has been advanced
        self.passes = 0.0  # over the pool, by the rollouts asked for before this step
        self.next_rollout = 0
        self.carried: list[Group] = []
        self.memory = Memory()
        self.waves = Waves(self)
        self.dead = DeadGroups()
        self._reset([], 0)

    def _reset(self, candidates: list[PromptId], policy_version: int) -> None:
        self.candidates, self.policy_version = candidates, policy_version
        self.groups: list[Group] = []
        self.unopened = dict.fromkeys(candidates)
        self.taken = set(candidates)  # brought or opened: the pool must not offer them
        self.where: dict[int, Place] = {}
        self.live: dict[int, None] = {}
        self.waiting = Waiting()
        self.lost: list[tuple[int, Slot]] = []  # out when the state was saved
        self.forsaken: list[Slot] = []  # likewise, of groups that had ended: nobody asks for them again
        self.cancels: list[Cancel] = []
        self.left = self.budget.planned_rollouts
        self.retries_left = math.floor(self.retry_share * self.left + 1e-9)
        self.recounts_left = 0
        self.exhausted = False
        self.was_cut = False  # by the token budget
        self.rounds = 0
        self.awaiting_round = False
        self.asked = 0
        self.out = 0
        self.tokens_told = 0
        self.first_error: str | None = None
        self.drained: set[int] = set()
        self.reports: list[GroupReport] = []

    @property
    def recount_pending(self) -> bool:
        """Whether what is left of the budget waits for the probes' results."""
        return self.recounts_left > 0

    @property
    def is_done(self) -> bool:
        """Whether nothing is planned, out and wanted, or to be counted again."""
        return not self.live and not self.recount_pending

    @property
    def awaited(self) -> int:
        """Rollouts that are out and may still come; those that only the saving process knew of may not."""
        return self.out - sum(slot.state is OUT for slot in self.forsaken)

    @property
    def average(self) -> int:
        """Rollouts per host-brought prompt that the step's target allows."""
        if not self.candidates:
            return _GROUP_SIZE
        target = self.train_rows if self.strategy.close == "fixed_train" and self.train_rows else None
        return max(1, (target or self.budget.planned_rollouts) // len(self.candidates))

    def begin(self, candidates: list[PromptId], step: int, policy_version: int) -> None:
        """Open the first groups of a step; an error leaves the controller as it was."""
        before = self.step
        self._reset(candidates, policy_version)
        self.step = step
        self.memory.forget(step, self.strategy.replay_age)
        if step > self.clock:
            self.strategy.belief.advance(step - self.clock)
            self.clock = step
        try:
            if self.strategy.verdict is None:
                self._plan_at_once()
            else:
                self.waves.begin()
        except Exception:
            for index in range(len(self.groups)):
                self.release(index)
            self.carried += [group for group in self.groups if group.carried]
            self._reset([], policy_version)
            self.step = before
            raise

    def open(
        self, ids: list[PromptId], moments: Moments, *, sizes: list[int], lengths: list[int], reason: Reason
    ) -> None:
        """Open groups and plan their first slots, which spends the budget; what it cannot pay stays closed."""
        mean, variance = moments
        a, b = beliefs.match_beta(mean, variance)
        opened = []
        for place, prompt_id in enumerate(ids):
            if not self.left or not lengths[place]:
                continue
            group = Group(prompt_id=prompt_id, size=sizes[place], reason=reason)
            group.predicted, group.uncertainty = float(mean[place]), math.sqrt(variance[place])
            group.prior = (float(a[place]), float(b[place]))
            if self.strategy.verdict is None:
                group.phase = Phase.COMMITTED
            else:
                group.looks = self.waves.looks
            self.plan(self.add(group), lengths[place])
            opened.append(prompt_id)
        if self.pool is not None:
            self.pool.open(opened, self.passes)
        self.ledger.visit(opened)

    def add(self, group: Group) -> int:
        """Put a group into play and return its index."""
        index = len(self.groups)
        self.groups.append(group)
        self.unopened.pop(group.prompt_id, None)
        self.taken.add(group.prompt_id)
        self.live[index] = None
        for slot in group.slots:
            if slot.rollout_id is not None:
                self.where[slot.rollout_id] = (index, group, slot)
        return index

    def plan(self, index: int, length: int, *, from_allowance: bool = False) -> int:
        """Extend a group towards ``length`` slots as far as the budget goes; return the slots added."""
        group = self.groups[index]
        wanted = max(0, length - len(group.slots))
        paid = min(wanted, self.left)
        self.left -= paid
        if from_allowance:
            extra = min(wanted - paid, self.retries_left)
            self.retries_left -= extra
            paid += extra
        group.plan(len(group.slots) + paid)
        if paid:
            self.live[index] = None
            self._wait(index)
        return paid

    def _wait(self, index: int) -> None:
        self.waiting.push(index, priority(self.groups[index].reason))

    def _plan_at_once(self) -> None:
        rule = self.strategy.allocate
        if self.candidates:
            count = max(1, round(self.strategy.prompts * len(self.candidates)))
        else:
            count = max(1, self.left // rule.group_size(self.average))
        if rule.probe:
            count = min(count, max(1, self.left // rule.probe))
        ids = self.strategy.select.pick(step_view(self), count)
        self.exhausted = len(ids) < count
        if not ids:
            return
        first = rule.probe if rule.probe * len(ids) <= self.left else 0
        issued = np.full(len(ids), first, dtype=np.int64)
        # After a probe the counts are taken again; that they exist is checked now, not in the middle of a step.
        moments = self.strategy.belief.predict(ids)
        counts = rule.counts(evidence(self, ids, issued, moments), self.left).tolist()
        self.recounts_left = getattr(rule, "recounts", 1) if first else 0
        sizes = issued.tolist() if first else counts
        self.open(ids, moments, sizes=sizes, lengths=sizes, reason=Reason.PROBE if first else Reason.PLANNED)

    def _recount(self) -> None:
        """Give out the next share of what is left in the light of what is known by now."""
        rule, share = self.strategy.allocate, math.ceil(self.left / self.recounts_left)
        self.recounts_left -= 1
        ids = [group.prompt_id for group in self.groups]
        issued = [len(group.slots) for group in self.groups]
        if getattr(rule, "opens", False):
            fresh = self.strategy.select.pick(step_view(self), share // rule.probe)
            ids, issued = ids + fresh, issued + [0] * len(fresh)
        mean, variance = self.strategy.belief.predict(ids)
        known = evidence(self, ids, np.array(issued, dtype=np.int64), (mean, variance))
        counts = rule.counts(known, sum(issued) + share).tolist()
        for group, n in zip(self.groups, counts, strict=False):
            group.size, group.reason = n, Reason.RECOUNT
        for index in range(opened := len(self.groups)):
            self.plan(index, counts[index])
        rest, planned = (mean[opened:], variance[opened:]), counts[opened:]
        self.open(ids[opened:], rest, sizes=planned, lengths=planned, reason=Reason.PLANNED)

    def tell(self, news: News) -> None:
        """Take in checked outcomes and draw the consequences, group by group in their order."""
        for told in news.results:
            self.awaiting_round = False
            self.out -= 1
            self.tokens_told += told.n_tokens
            if told.is_missing:
                self._miss(told)
            else:
                self._record(told)
        for told in news.fragments:
            self.tokens_told += told.n_tokens
            told.slot.n_tokens += told.n_tokens
            if told.group_index in self.drained:  # its account is settled: the tokens follow
                mixed = self.groups[told.group_index].is_mixed
                self.ledger.settle(Fate.TRAINED if mixed else Fate.UNIFORM, told.n_tokens, 0)
        for index in sorted({told.group_index for told in news.results}):
            self._settle(index)
        if self.strategy.verdict is not None:
            self.waves.advance()
        elif self.recount_pending and not self.live:
            self._recount()

    def _record(self, told: Told) -> None:
        slot, version = told.slot, told.policy_version
        slot.state, slot.reward, slot.success = VALID, told.reward, told.success
        slot.n_tokens, slot.trajectory_id, slot.delivered = told.n_tokens, told.trajectory_id, True
        slot.protected = told.protected
        slot.policy_version = self.policy_version if version is None else version

    def _miss(self, told: Told) -> None:
        group, slot = self.groups[told.group_index], told.slot
        fate = {Status.TIMEOUT: Fate.TIMEOUT, Status.ABORTED: Fate.ABORTED}.get(told.status, Fate.FAILED)
        self.ledger.settle(fate, told.n_tokens)
        self.first_error = self.first_error or told.error
        slot.delivered = told.delivered
        if group.is_live and slot.tries < self.strategy.max_tries and self.retries_left > 0:
            self.retries_left -= 1
            slot.state, group.reason = PLANNED, Reason.RETRY
            self._wait(told.group_index)
        else:
            slot.state = MISSING

    def _settle(self, index: int) -> None:
        group = self.groups[index]
        if group.phase is Phase.OPEN:
            self.waves.judge(index)
        if not group.is_live or group.is_resolved:
            self.retire(index)
            if not group.outcomes()[1]:
                group.reason = Reason.GIVEN_UP
        elif index in self.waiting:
            self._wait(index)  # its reason, hence its rank, may have changed

    def retire(self, index: int) -> None:
        """Take a group out of play; what it planned and did not ask for goes back to the budget."""
        if index not in self.live:
            return
        group = self.groups[index]
        del self.live[index]
        self.release(index)
        if not group.is_live and (out := group.out()):
            self.cancels.append(
                Cancel(prompt_id=group.prompt_id, rollout_ids=tuple(out), reason=group.reason)
            )
        if self.strategy.verdict is not None:
            self.waves.retired(index)

    def release(self, index: int) -> None:
        """Give back what a group planned and did not ask for."""
        self.waiting.discard(index)
        for slot in self.groups[index].release():
            self.left += slot.tries == 0
            self.retries_left += slot.tries > 0

    def tick(self) -> None:
        """Count the passes over the pool that the step's rollouts make."""
        if self.pool is not None:
            self.passes += self.asked / (self.average * len(self.pool))

    def close_plans(self) -> None:
        """Give up what the token budget cannot pay any more."""
        self.was_cut = self.was_cut or not self.is_done
        self.settle_all()
        self.left = 0

    def settle_all(self) -> None:
        """Nothing is awaited any more: retire what is left in play."""
        for index in list(self.live):
            self.retire(index)
        self.recounts_left = 0

    def cancellations(self) -> list[Cancel]:
        """Return the cancellations since the last call."""
        cancels, self.cancels = self.cancels, []
        return cancels

    def state_dict(self) -> dict[str, Any]:
        """Return what outlives a step beside the belief, JSON-safe."""
        return {
            **{name: getattr(self, name) for name in _KEPT},
            "passes": self.passes,
            "ledger": self.ledger.state_dict(),
            "carried": [group.state_dict() for group in self.carried],
            "memory": self.memory.state_dict(),
            "yield": self.waves.observed.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what outlives a step beside the belief."""
        for name in _KEPT:
            setattr(self, name, int(state[name]))
        self.passes = float(state["passes"])
        self.ledger.load_state_dict(state["ledger"])
        self.carried = [Group.from_state(raw) for raw in state["carried"]]
        self.memory.load_state_dict(state["memory"])
        self.waves.observed.load_state_dict(state["yield"])

    def open_state(self) -> dict[str, Any]:
        """Return the open step, JSON-safe."""
        return {
            "candidates": list(self.candidates),
            "groups": [group.state_dict() for group in self.groups],
            "live": list(self.live),
            "drained": sorted(self.drained),
            "reports": [asdict(report) for report in self.reports],
            "price": None if self.strategy.verdict is None else self.waves.price,
            **{name: getattr(self, name) for name in _OPEN},
        }

    def load_open(self, state: Mapping[str, Any]) -> None:
        """Restore an open step; what was out is asked for again under its own ids.

        Raises:
            StateError: other fields than expected.
        """
        if set(state) != {"candidates", "groups", "live", "drained", "reports", "price", *_OPEN}:
            raise StateError(f"the open step of the state has other fields than expected: {sorted(state)}")
        self._reset(list(state["candidates"]), state["policy_version"])
        for raw in state["groups"]:
            self.add(Group.from_state(raw))
        self.live, self.drained = dict.fromkeys(state["live"]), set(state["drained"])
        self.reports = [GroupReport(**raw) for raw in state["reports"]]
        for name in _OPEN:
            setattr(self, name, state[name])
        for index, group in enumerate(self.groups):
            out = [slot for slot in group.slots if slot.state is OUT]
            self.out += len(out)
            if index not in self.live:
                self.forsaken += out
                continue
            self.lost += [(index, slot) for slot in out]
            if any(slot.state is PLANNED for slot in group.slots):
                self._wait(index)
        if self.strategy.verdict is not None:
            self.waves.restore(state["price"])
