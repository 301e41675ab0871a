"""The decisions of a step: which groups are open, how far each is planned, and what a result changes."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from typing import Any, final

import numpy as np

from neyman import beliefs
from neyman._checks import FloatP
from neyman.errors import StateError
from neyman.groups import Group, Phase, Slot, SlotState
from neyman.keyed import PromptId, keyed_rng
from neyman.ledger import Fate, Ledger
from neyman.messages import Told
from neyman.pool import Pool
from neyman.rules import Evidence, StepView
from neyman.step import Budget, Cancel, GroupReport, Reason, Status
from neyman.strategy import Strategy
from neyman.waves import Waves


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
        self.strategy = strategy.with_options(belief=copy.deepcopy(strategy.belief))
        self.budget, self.train_rows, self.pool, self.seed = budget, train_rows, pool, seed
        self.retry_share = retries
        self.ledger = Ledger()
        self.step = -1
        self.next_rollout = 0
        self.carried: list[Group] = []
        self.waves = Waves(self)
        self._reset([], 0)

    def _reset(self, candidates: list[PromptId], policy_version: int) -> None:
        self.candidates, self.policy_version = candidates, policy_version
        self.groups: list[Group] = []
        self.opened: set[PromptId] = set()
        self.where: dict[int, tuple[int, Group, Slot]] = {}
        self.live: dict[int, None] = {}
        self.queue: dict[int, None] = {}
        self.cancels: list[Cancel] = []
        self.left = self.budget.planned_rollouts
        self.retries_left = math.floor(self.retry_share * self.left)
        self.recount_pending = False
        self.exhausted = False
        self.rounds = 0
        self.awaiting_round = False
        self.tokens_told = 0
        self.first_error: str | None = None
        self.drained: set[int] = set()
        self.reports: list[GroupReport] = []

    @property
    def is_done(self) -> bool:
        """Whether nothing is planned, out and wanted, or to be counted again."""
        return not self.live and not self.recount_pending

    @property
    def average(self) -> int:
        """Rollouts per host-brought prompt that the step's target allows."""
        target = self.train_rows if self.strategy.close == "fixed_train" and self.train_rows else None
        return max(1, (target or self.budget.planned_rollouts) // max(1, len(self.candidates)))

    def begin(self, candidates: list[PromptId], step: int, policy_version: int) -> None:
        """Open the first groups of a step."""
        passed, self.step = step - self.step, step
        self._reset(candidates, policy_version)
        self.strategy.belief.advance(passed)
        if self.strategy.verdict is None:
            self._plan_at_once()
        else:
            self.waves.begin()

    def view(self) -> StepView:
        """Return the step as a selection rule sees it."""
        exclude = self.opened | set(self.candidates)
        return StepView(
            step=self.step,
            candidates=tuple(c for c in self.candidates if c not in self.opened),
            fresh=lambda count: self.pool.peek(count, exclude) if self.pool is not None else [],
            belief=self.strategy.belief,
            rng=lambda *keys: keyed_rng(self.seed, self.step, *keys),
        )

    def open(self, prompt_ids: Sequence[PromptId], *, size: int, length: int, reason: Reason) -> list[Group]:
        """Open groups and plan their first slots, which spends the budget."""
        groups = []
        mean, variance = self.strategy.belief.predict(prompt_ids)
        for place, prompt_id in enumerate(prompt_ids):
            group = Group(prompt_id=prompt_id, size=size, reason=reason)
            group.predicted, group.uncertainty = float(mean[place]), math.sqrt(variance[place])
            if self.strategy.verdict is not None:
                group.looks = self.strategy.verdict.looks(size)
            else:
                group.phase = Phase.COMMITTED
            self.add(group)
            self.plan(len(self.groups) - 1, length)
            groups.append(group)
        if self.pool is not None:
            self.pool.open(prompt_ids)
        self.ledger.visit(prompt_ids)
        return groups

    def add(self, group: Group) -> None:
        """Put a group into play."""
        self.groups.append(group)
        self.opened.add(group.prompt_id)
        self.live[len(self.groups) - 1] = None

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
            self.queue[index] = None
            self.live[index] = None
        return paid

    def _plan_at_once(self) -> None:
        rule = self.strategy.allocate
        count = max(1, round(self.strategy.prompts * len(self.candidates))) if self.candidates else 1
        if rule.probe:
            count = min(count, max(1, self.left // rule.probe))
        ids = self.strategy.select.pick(self.view(), count)
        self.exhausted = len(ids) < count
        if not ids:
            return
        if rule.probe and rule.probe * len(ids) <= self.left:
            self.open(ids, size=rule.probe, length=rule.probe, reason=Reason.PROBE)
            self.recount_pending = True
            return
        counts = rule.counts(self.evidence(ids, np.zeros(len(ids), dtype=np.int64)), self.left)
        for prompt_id, n in zip(ids, counts.tolist(), strict=True):
            if n:
                self.open([prompt_id], size=n, length=n, reason=Reason.PLANNED)

    def evidence(self, ids: Sequence[PromptId], issued: Any) -> Evidence:
        """Join the belief with the outcomes of this step, as a Beta per prompt."""
        a, b = beliefs.beta_parameters(self.strategy.belief, ids)
        by_id = {group.prompt_id: group for group in self.groups}
        told = [by_id[i].outcomes() if i in by_id else (0, 0) for i in ids]
        successes: FloatP = np.array([s for s, _ in told], dtype=np.float64)
        trials: FloatP = np.array([n for _, n in told], dtype=np.float64)
        return Evidence(
            ids=ids, belief=self.strategy.belief, a=a + successes, b=b + trials - successes, issued=issued
        )

    def _recount(self) -> None:
        self.recount_pending = False
        issued = np.array([len(group.slots) for group in self.groups], dtype=np.int64)
        total = int(issued.sum()) + self.left
        ids = [group.prompt_id for group in self.groups]
        counts = self.strategy.allocate.counts(self.evidence(ids, issued), total)
        for index, n in enumerate(counts.tolist()):
            self.groups[index].size, self.groups[index].reason = n, Reason.CONTINUE
            self.plan(index, n)

    def tell(self, news: list[Told]) -> None:
        """Take in checked outcomes and draw the consequences, group by group in their order."""
        touched: set[int] = set()
        for told in news:
            group = self.groups[told.group_index]
            self.awaiting_round = False
            self.tokens_told += told.outcome.n_tokens
            if told.is_missing:
                self._miss(told, group)
            else:
                version = told.outcome.policy_version
                group.record(
                    told.slot,
                    told.outcome,
                    told.reward,
                    told.success,
                    self.policy_version if version is None else version,
                )
            touched.add(told.group_index)
        for index in sorted(touched):
            self._settle(index)
        self._next_moves()

    def close_plans(self) -> None:
        """Give up planned slots that the token budget cannot pay any more."""
        for index in list(self.live):
            self.retire(index)
        self.left = 0
        self.recount_pending = False

    def _miss(self, told: Told, group: Group) -> None:
        status = Status(told.outcome.status)
        fate = {Status.TIMEOUT: Fate.TIMEOUT, Status.ABORTED: Fate.ABORTED}.get(status, Fate.FAILED)
        self.ledger.settle(fate, told.outcome.n_tokens)
        self.first_error = self.first_error or told.outcome.error
        slot = told.slot
        slot.delivered = status is Status.OK
        if group.is_live and slot.tries < self.strategy.max_tries and self.retries_left > 0:
            self.retries_left -= 1
            slot.state, group.reason = SlotState.PLANNED, Reason.RETRY
            self.queue[told.group_index] = None
        else:
            slot.state = SlotState.MISSING

    def _settle(self, index: int) -> None:
        group = self.groups[index]
        if group.phase is Phase.OPEN:
            self.waves.judge(index)
        if not group.is_live or group.is_resolved:
            self.retire(index)

    def retire(self, index: int) -> None:
        """Take a group out of play; what it planned and did not ask for goes back to the budget."""
        group = self.groups[index]
        self.live.pop(index, None)
        self.queue.pop(index, None)
        planned = [slot for slot in group.slots if slot.state is SlotState.PLANNED]
        if planned:
            self.left += sum(slot.tries == 0 for slot in planned)
            self.retries_left += sum(slot.tries > 0 for slot in planned)
            group.slots = [slot for slot in group.slots if slot.state is not SlotState.PLANNED]
        out = tuple(
            s.rollout_id for s in group.slots if s.state is SlotState.OUT and s.rollout_id is not None
        )
        if out and not group.is_live:
            self.cancels.append(Cancel(prompt_id=group.prompt_id, rollout_ids=out, reason=group.reason))

    def _next_moves(self) -> None:
        if self.strategy.verdict is not None:
            self.waves.advance()
        elif self.recount_pending and not self.live:
            self._recount()

    def settle_all(self) -> None:
        """Nothing is awaited any more: retire what is left in play."""
        for index in list(self.live):
            self.retire(index)
        self.recount_pending = False

    def cancellations(self) -> list[Cancel]:
        """Return the cancellations since the last call."""
        cancels, self.cancels = self.cancels, []
        return cancels

    def state_dict(self) -> dict[str, Any]:
        """Return what outlives a step, JSON-safe."""
        return {
            "step": self.step,
            "next_rollout": self.next_rollout,
            "belief": self.strategy.belief.state_dict(),
            "ledger": self.ledger.state_dict(),
            "carried": [group.state_dict() for group in self.carried],
            "yield": self.waves.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what outlives a step."""
        self.step, self.next_rollout = int(state["step"]), int(state["next_rollout"])
        self.strategy.belief.load_state_dict(state["belief"])
        self.ledger.load_state_dict(state["ledger"])
        self.carried = [Group.from_state(raw) for raw in state["carried"]]
        self.waves.load_state_dict(state["yield"])

    _OPEN_SCALARS = (
        "policy_version",
        "left",
        "retries_left",
        "recount_pending",
        "exhausted",
        "rounds",
        "tokens_told",
        "first_error",
    )

    def open_state(self) -> dict[str, Any]:
        """Return the open step, JSON-safe."""
        return {
            "candidates": list(self.candidates),
            "groups": [group.state_dict() for group in self.groups],
            "live": list(self.live),
            **{name: getattr(self, name) for name in self._OPEN_SCALARS},
        }

    def load_open(self, state: Mapping[str, Any]) -> None:
        """Restore an open step; what was out is planned again under its own ids."""
        if set(state) != {"candidates", "groups", "live", *self._OPEN_SCALARS}:
            raise StateError(f"the open step of the state has other fields than expected: {sorted(state)}")
        self._reset(list(state["candidates"]), state["policy_version"])
        for raw in state["groups"]:
            self.add(Group.from_state(raw))
        self.live = dict.fromkeys(state["live"])
        for name in self._OPEN_SCALARS:
            setattr(self, name, state[name])
        for index, group in enumerate(self.groups):
            for slot in group.slots:
                if slot.state is SlotState.OUT and group.is_live:
                    slot.state, slot.reissue = SlotState.PLANNED, True
                elif slot.rollout_id is not None:
                    self.where[slot.rollout_id] = (index, group, slot)
                if slot.state is SlotState.PLANNED:
                    self.queue[index] = None
