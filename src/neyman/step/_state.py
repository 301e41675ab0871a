"""The state of a step and the changes to it: groups in play, the budget, rollouts that are out.

Planners and readers look at its attributes and change them through its methods alone, so that all code that keeps the
account balanced stands in this file.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, final

from neyman import beliefs
from neyman._checks import FloatP
from neyman.errors import StateError
from neyman.randomness import PromptId
from neyman.step._dead_groups import DeadGroups
from neyman.step._group import MISSING, OUT, PLANNED, VALID, Group, Phase, Slot
from neyman.step._parse import Place, Result
from neyman.step._queue import Queue, priority
from neyman.step._right_answers import RightAnswers
from neyman.step._yield import Yield
from neyman.step.ledger import Fate, Ledger
from neyman.step.messages import Budget, Cancel, GroupReport, Reason, Status
from neyman.step.pool import Pool
from neyman.strategy import Strategy

Moments = tuple[FloatP, FloatP]  # mean and variance of each prompt's success rate, by the belief

_GROUP_SIZE = 8  # where the host brings no prompts that the budget could be divided by
_KEPT = ("step", "clock", "next_rollout")
COUNTERS = ("left", "retries_left", "rounds", "asked", "tokens_received")
FLAGS = ("exhausted", "was_cut", "awaiting_round")
_OPEN = ("policy_version", "first_error", *COUNTERS, *FLAGS)
_SAVED_AS = {"tokens_received": "tokens_told"}  # states of 0.1.0 keep their names


@final
class StepState:
    """The groups of a step, its budget, and the accounts that outlive it.

    A slot of a group is planned, out, valid or missing. Planning a slot spends the budget; handing it out does not, so
    whatever is planned can always be handed out. Arguments are those of `neyman.Controller`; the strategy comes with a
    belief of its own.
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
        self.passes = 0.0  # over the pool, by the rollouts requested before this step
        self.next_rollout = 0
        self.carried: list[Group] = []
        self.right_answers = RightAnswers()
        self.observed = Yield()
        self.dead = DeadGroups()
        self._reset([], 0)

    def _reset(self, candidates: list[PromptId], policy_version: int) -> None:
        self.candidates, self.policy_version = candidates, policy_version
        self.groups: list[Group] = []
        self.unopened = dict.fromkeys(candidates)
        self.taken = set(candidates)  # brought or opened: the pool must not offer them
        self.where: dict[int, Place] = {}
        self.live: dict[int, None] = {}
        self.queue = Queue()
        self.lost: list[tuple[int, Slot]] = []  # out when the state was saved
        self.forsaken: list[Slot] = []  # likewise, of groups that had ended: nobody requests them again
        self._cancels: list[Cancel] = []
        self.left = self.budget.planned_rollouts
        self.retries_left = self.allowance
        self.exhausted = False  # the selection rule has no further prompt
        self.was_cut = False  # by the token budget
        self.rounds = 0
        self.awaiting_round = False
        self.asked = 0
        self.out = 0
        self.tokens_received = 0
        self.first_error: str | None = None
        self.drained: set[int] = set()
        self.reports: list[GroupReport] = []

    @property
    def allowance(self) -> int:
        """Re-draws of failed rollouts that a step may make."""
        # 0.1 * 30 is 2.999... in floats; the share of a whole number of rollouts is meant.
        return math.floor(self.retry_share * self.budget.planned_rollouts + 1e-9)

    @property
    def awaited(self) -> int:
        """Rollouts that are out and may still arrive; those that only the saving process knew of may not."""
        return self.out - sum(slot.state is OUT for slot in self.forsaken)

    @property
    def average(self) -> int:
        """Rollouts per host-brought prompt that the step's target allows."""
        if not self.candidates:
            return _GROUP_SIZE
        target = self.train_rows if self.strategy.close == "fixed_train" and self.train_rows else None
        return max(1, (target or self.budget.planned_rollouts) // len(self.candidates))

    def begin(self, candidates: list[PromptId], step: int, policy_version: int) -> None:
        """Start a step without groups, and let the belief's time pass."""
        self._reset(candidates, policy_version)
        self.step = step
        self.right_answers.forget(step, self.strategy.replay_age)
        if step > self.clock:
            self.strategy.belief.advance(step - self.clock)
            self.clock = step

    def abandon_begin(self, before: int) -> None:
        """Undo a step that could not be planned, so that it may begin again after step ``before``."""
        for index in range(len(self.groups)):
            self._release(index)
        self.carried += [group for group in self.groups if group.carried]
        self._reset([], self.policy_version)
        self.step = before

    def take_carried(self) -> list[Group]:
        """Return the groups carried over from earlier steps; they are the caller's to add or to expire."""
        carried, self.carried = self.carried, []
        return carried

    def cut(self, *, is_done: bool) -> None:
        """Give up the budget that the token bound cannot pay any more."""
        self.was_cut = self.was_cut or not is_done
        self.left = 0

    def end_group(self, report: GroupReport, carried: Group | None = None) -> None:
        """Report the end of a group of this step; one that is carried over waits for the next."""
        self.reports.append(report)
        if carried is not None:
            self.carried.append(carried)

    def drain(self, indices: list[int]) -> None:
        """Mark groups as handed out: their account is settled."""
        self.drained.update(indices)

    def count_passes(self) -> None:
        """Count the passes over the pool that the step's rollouts make."""
        if self.pool is not None:
            self.passes += self.asked / (self.average * len(self.pool))

    def open(
        self,
        ids: list[PromptId],
        moments: Moments,
        *,
        sizes: list[int],
        lengths: list[int],
        reason: Reason,
        looks: tuple[int, ...] = (),
    ) -> None:
        """Open groups of ``sizes`` slots and plan the first ``lengths`` of them as far as the budget goes.

        Without ``looks``, the prefix lengths at which a verdict is taken, groups are committed at once.
        """
        mean, variance = moments
        a, b = beliefs.match_beta(mean, variance)
        opened = []
        for place, prompt_id in enumerate(ids):
            if not self.left or not lengths[place]:
                continue
            group = Group(prompt_id=prompt_id, size=sizes[place], reason=reason, looks=looks)
            group.predicted, group.uncertainty = float(mean[place]), math.sqrt(variance[place])
            group.prior = (float(a[place]), float(b[place]))
            group.phase = Phase.OPEN if looks else Phase.COMMITTED
            self.plan(self.add(group), lengths[place])
            opened.append(prompt_id)
        if self.pool is not None:
            self.pool.open(opened, self.passes)
        self.ledger.visit(opened)

    def mark_exhausted(self, is_exhausted: bool) -> None:
        """Record whether the selection rule returned fewer prompts than were wanted."""
        self.exhausted = is_exhausted

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
            self._enqueue(index)
        return paid

    def replay(self, index: int) -> bool:
        """Put an earlier right answer into a group whose results are all wrong; return whether one is known."""
        group = self.groups[index]
        answer = self.right_answers.splice(group) if self.strategy.replay_age else None
        if answer is None or answer.rollout_id is None:
            return False
        self.where[answer.rollout_id] = (index, group, answer)
        return True

    def shorten(self, index: int) -> None:
        """Complete a group with the slots that were handed out; the planned ones go back to the budget."""
        self._release(index)
        group = self.groups[index]
        group.size = len(group.slots)

    def retire(self, index: int) -> bool:
        """Take a group out of play, giving back its planned slots; return whether it was in play."""
        if index not in self.live:
            return False
        group = self.groups[index]
        del self.live[index]
        self._release(index)
        if not group.is_live and (out := group.out()):
            cancel = Cancel(prompt_id=group.prompt_id, rollout_ids=tuple(out), reason=group.reason)
            self._cancels.append(cancel)
        return True

    def _release(self, index: int) -> None:
        self.queue.discard(index)
        for slot in self.groups[index].release():
            # A slot that was tried before was planned again from the allowance, not from the budget.
            self.left += slot.tries == 0
            self.retries_left += slot.tries > 0

    def _enqueue(self, index: int) -> None:
        self.queue.push(index, priority(self.groups[index].reason))

    def requeue(self, index: int) -> None:
        """Give a group that waits its rank anew, after its reason has changed."""
        if index in self.queue:
            self._enqueue(index)

    def hand_out(self, index: int, room: int | None) -> list[Slot]:
        """Give up to ``room`` planned slots of a group their ids and draws; they are out from now on."""
        group = self.groups[index]
        planned = [slot for slot in group.slots if slot.state is PLANNED]
        taken = planned[:room]
        if len(taken) == len(planned):
            self.queue.discard(index)
        step, where, retried = self.step, self.where, 0
        for rollout_id, slot in enumerate(taken, start=self.next_rollout):
            slot.state, slot.step, slot.delivered = OUT, step, False
            slot.draw, slot.rollout_id = group.draws, rollout_id
            slot.tries += 1
            retried += slot.tries > 1
            group.draws += 1
            where[rollout_id] = (index, group, slot)
        self.next_rollout += len(taken)
        self.ledger.request(len(taken) - retried)
        self.ledger.request(retried, retry=True)
        self.out += len(taken)
        self.asked += len(taken)
        return taken

    def hand_out_lost(self, capacity: int | None) -> list[tuple[int, Slot]]:
        """Return slots that were out when the state was saved, with their groups; they are paid for already."""
        wanted = [(index, slot) for index, slot in self.lost if slot.state is OUT and index in self.live]
        now, self.lost = wanted[:capacity], wanted[len(wanted[:capacity]) :]
        return now

    def count_round(self) -> None:
        """Count a round of generation: requests without a result in between are one."""
        if not self.awaiting_round:
            self.rounds += 1
            self.awaiting_round = True

    def receive(self, result: Result) -> None:
        """Put a result into its slot, or plan the slot again where it is missing and a try is left."""
        self.awaiting_round = False  # the next request opens another round
        self.out -= 1
        self.tokens_received += result.n_tokens
        if result.is_missing:
            self._miss(result)
            return
        slot, version = result.slot, result.policy_version
        slot.state, slot.reward, slot.success = VALID, result.reward, result.success
        slot.n_tokens, slot.trajectory_id, slot.delivered = result.n_tokens, result.trajectory_id, True
        slot.protected = result.protected
        slot.policy_version = self.policy_version if version is None else version

    def receive_fragment(self, result: Result) -> None:
        """Add the tokens of a later piece of a trajectory whose result is known."""
        self.tokens_received += result.n_tokens
        result.slot.n_tokens += result.n_tokens
        if result.group_index in self.drained:  # its account is settled: the tokens follow
            mixed = self.groups[result.group_index].is_mixed
            self.ledger.settle(Fate.TRAINED if mixed else Fate.UNIFORM, result.n_tokens, 0)

    def _miss(self, result: Result) -> None:
        group, slot = self.groups[result.group_index], result.slot
        fate = {Status.TIMEOUT: Fate.TIMEOUT, Status.ABORTED: Fate.ABORTED}.get(result.status, Fate.FAILED)
        self.ledger.settle(fate, result.n_tokens)
        self.first_error = self.first_error or result.error
        slot.delivered = result.delivered
        # The slot is planned again in its own place, so that prefixes stay unbiased.
        if group.is_live and slot.tries < self.strategy.max_tries and self.retries_left > 0:
            self.retries_left -= 1
            slot.state, group.reason = PLANNED, Reason.RETRY
            self._enqueue(result.group_index)
        else:
            slot.state = MISSING

    def cancellations(self) -> list[Cancel]:
        """Return the cancellations since the last call."""
        cancels, self._cancels = self._cancels, []
        return cancels

    def state_dict(self) -> dict[str, Any]:
        """Return whatever outlives a step beside the belief, JSON-safe."""
        return {
            **{name: getattr(self, name) for name in _KEPT},
            "passes": self.passes,
            "ledger": self.ledger.state_dict(),
            "carried": [group.state_dict() for group in self.carried],
            "memory": self.right_answers.state_dict(),
            "yield": self.observed.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore whatever outlives a step beside the belief."""
        for name in _KEPT:
            setattr(self, name, int(state[name]))
        self.passes = float(state["passes"])
        self.ledger.load_state_dict(state["ledger"])
        self.carried = [Group.from_state(raw) for raw in state["carried"]]
        self.right_answers.load_state_dict(state["memory"])
        self.observed.load_state_dict(state["yield"])

    def open_state(self) -> dict[str, Any]:
        """Return the open step, JSON-safe, without its planner's part."""
        return {
            "candidates": list(self.candidates),
            "groups": [group.state_dict() for group in self.groups],
            "live": list(self.live),
            "drained": sorted(self.drained),
            "reports": [asdict(report) for report in self.reports],
            **{_SAVED_AS.get(name, name): getattr(self, name) for name in _OPEN},
        }

    def load_open(self, state: Mapping[str, Any]) -> None:
        """Restore an open step; rollouts that were out are handed out again under their own ids."""
        names = {name: _SAVED_AS.get(name, name) for name in _OPEN}
        if set(state) != {"candidates", "groups", "live", "drained", "reports", *names.values()}:
            raise StateError(f"the open step of the state has other fields than expected: {sorted(state)}")
        self._reset(list(state["candidates"]), state["policy_version"])
        for raw in state["groups"]:
            self.add(Group.from_state(raw))
        self.live, self.drained = dict.fromkeys(state["live"]), set(state["drained"])
        self.reports = [GroupReport(**raw) for raw in state["reports"]]
        for name, saved in names.items():
            setattr(self, name, state[saved])
        for index, group in enumerate(self.groups):
            out = [slot for slot in group.slots if slot.state is OUT]
            self.out += len(out)
            if index not in self.live:
                self.forsaken += out
                continue
            self.lost += [(index, slot) for slot in out]
            if any(slot.state is PLANNED for slot in group.slots):
                self._enqueue(index)
