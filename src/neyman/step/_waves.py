"""Waves of fresh prompts under verdicts: the planner that opens, judges, completes, abandons, and opens again."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, final

import numpy as np

from neyman import formulas
from neyman.errors import ArgumentError, StateError
from neyman.randomness import PromptId
from neyman.rules import Verdict
from neyman.rules.audit import audit
from neyman.step._group import Group, Phase
from neyman.step._state import StepState
from neyman.step._view import step_view
from neyman.step.ledger import Fate
from neyman.step.messages import Reason


@final
class Waves:
    """Open the prompts that the step still needs, judge them, and give the budget of abandoned ones to fresh prompts.

    A wave is wider than needed by the over-provision. There is no barrier: whenever fewer prompts are undecided than a
    wave needs, it is topped up.
    """

    def __init__(self, state: StepState) -> None:
        self._state = state
        self.size = 0
        self.price: float | None = None  # of a rollout elsewhere, when the step began
        assert state.strategy.verdict is not None
        self._unpriced: Verdict = state.strategy.verdict
        self.verdict = self._unpriced  # from `begin` on, at that price
        self.looks: tuple[int, ...] = ()
        self._first = 0  # rollouts that a fresh prompt gets at once
        self.target: int | None = None
        self._undecided: dict[int, None] = {}
        self._committed = 0

    @property
    def is_pending(self) -> bool:
        """Whether a part of the budget waits for results before it is planned: never, verdicts free it at once."""
        return False

    @property
    def sees_whole_groups(self) -> bool:
        """Whether the only look is at the complete group."""
        return len(self.looks) == 1

    def _prepare(self) -> None:
        """Set the size of a group and how many of them train; raise where none can carry signal or fill the rows."""
        state = self._state
        self.size = state.strategy.allocate.group_size(state.average)
        if self.size < 2:
            raise ArgumentError(
                f"the group size must be >= 2, got {self.size} for {len(state.candidates)} candidates: a single "
                "rollout can never be mixed; raise the budget (or train_rows), bring fewer prompts, or set group_size"
            )
        keep = state.strategy.keep
        rows = self.size if keep is None else min(self.size, keep.rows(state.average))
        if rows < 2:
            raise ArgumentError(f"keep must train at least 2 rows of a group, got {rows}: set its size")
        is_filling = state.strategy.close == "fixed_train" and state.train_rows is not None
        self.target = _groups_to_train(state.train_rows, rows) if is_filling else None
        self._undecided, self._committed = {}, 0

    def _current_price(self) -> float | None:
        """Return the verdict's price of a rollout in a step that begins now; None where it has no price."""
        needed = self.target or max(1, self._state.budget.planned_rollouts // self.size)
        return self._unpriced.price(step_view(self._state), needed)

    def _set_verdict(self, price: float | None) -> None:
        """Set the step's verdict and its looks."""
        self.price, self.verdict = price, self._unpriced.priced(price)
        self.looks = self.verdict.looks(self.size)
        self._first = self.size if self.verdict.speculate else self.looks[0]

    def begin(self) -> None:
        """Take over the groups carried from earlier steps, and open the first wave."""
        self._prepare()
        self._set_verdict(self._current_price())
        self._state.observed.advance()
        self._take_carried()
        self.advance()

    def state_dict(self) -> dict[str, Any]:
        """Return the step's price, JSON-safe."""
        return {"price": self.price, "recounts_left": 0}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take up an open step at the price that it began with: results since then may move it."""
        if state["recounts_left"] != 0 or type(state["recounts_left"]) is not int:
            raise StateError(f"a step with a verdict has no recounts, got {state['recounts_left']!r:.80}")
        self._prepare()
        self._set_verdict(state["price"])
        step = self._state
        self._undecided = {i: None for i in step.live if step.groups[i].phase is Phase.OPEN}
        for index, group in enumerate(step.groups):
            if group.phase is Phase.COMMITTED:
                self._committed += 1
                if index not in step.live:
                    self._replace_if_short(index)

    def _take_carried(self) -> None:
        state = self._state
        for group in state.take_carried():
            group.carry()
            # A group trains whole or not at all, so its oldest rollout decides.
            age = state.step - min(slot.step for slot in group.slots)
            if age > state.strategy.max_age:
                for slot in group.slots:
                    state.ledger.settle(Fate.EXPIRED, slot.n_tokens)
                continue
            index = state.add(group)
            if self._is_beyond_need:  # it waits on, as it is
                group.move(Phase.SURPLUS, Reason.SURPLUS)
                self.retire(index)
                continue
            group.move(Phase.COMMITTED, Reason.CARRIED)
            self._committed += 1
            state.plan(index, group.size)
            if group.is_resolved:
                self.retire(index)

    @property
    def _is_beyond_need(self) -> bool:
        """Whether a further group would be more than the step trains, and is not to be completed for later."""
        holds = self.verdict.holds_surplus
        return holds and self.target is not None and self._committed >= self.target

    def is_wanted(self, group: Group) -> bool:
        """Whether a group that this step did not need may train in a later one."""
        if any(slot.replayed for slot in group.slots):  # its answer would be older still
            return False
        if group.phase is Phase.COMMITTED or not self.verdict.at_looks:
            return group.is_trainable
        verdict = self.verdict.decide(*group.outcomes(), group.size, group.prior)
        return verdict == "commit" or group.is_protected()

    @property
    def over_provision(self) -> float:
        """How much wider than needed a wave is opened; where only the budget limits it, just wide enough."""
        setting = self._state.strategy.over_provision
        if not isinstance(setting, str):
            return float(setting)
        # Capped: the rate of the first steps rests on few verdicts.
        return 1.0 if self.target is None else min(4.0, max(1.0, 1.0 / self._state.observed.rate))

    def _in_sight(self) -> float:
        """Return the expected number of undecided groups that will be mixed, by the belief and their outcomes."""
        groups = [self._state.groups[index] for index in self._undecided]
        if not groups:
            return 0.0
        seen = np.array([group.outcomes() for group in groups], dtype=np.int64)
        a, b = np.array([group.prior for group in groups]).T
        return float(formulas.effective_probability(seen[:, 0], seen[:, 1], self.size, (a, b)).sum())

    def _enough(self, ids: list[PromptId], missing: int) -> list[PromptId]:
        """Return the fewest of the prompts that, by the belief, give the mixed groups that are not in sight yet."""
        chance = self._state.strategy.belief.mixed_probability(ids, self.size)
        reached = np.cumsum(chance) + self._in_sight()
        return ids[: int(np.searchsorted(reached, missing)) + 1] if len(ids) else ids

    def judge(self, index: int) -> None:
        """Take the verdicts that a group's complete prefix allows, the same whatever came in beyond it."""
        state, group = self._state, self._state.groups[index]
        # Answers that arrive early are short, so verdicts on them are biased: a prefix of indices is not.
        arrival = state.strategy.verdict_on == "arrival"
        reached = group.resolved() if arrival else group.prefix
        while group.phase is Phase.OPEN:
            look = min(group.looks[group.looked], len(group.slots))
            seen = None if arrival else min(reached, look)
            successes, trials = group.outcomes(seen)
            is_mixed = 0 < successes < trials  # and stays so until the look
            if (is_mixed and not self.verdict.at_looks) or group.is_protected(seen):
                self._commit(index)
            elif reached < look:
                return
            else:
                self._decide(index, successes, trials, look)

    def _decide(self, index: int, successes: int, trials: int, look: int) -> None:
        """Follow the verdict on the first ``look`` slots; a complete group commits where it is mixed."""
        group, decision = self._state.groups[index], "abandon"
        if look < group.size:
            decision = self.verdict.decide(successes, trials, group.size, group.prior)
        elif 0 < successes < trials:
            decision = "commit"
        if look >= group.size and trials > 1 and not successes and self._state.replay(index):
            self._commit(index)
        elif look >= group.size and trials < 2:  # complete, but its results are missing
            self._state.observed.decide(committed=False)
            group.move(Phase.UNFINISHED, Reason.UNDECIDED)
        elif decision == "abandon":
            self._state.observed.decide(committed=False)
            group.give_up(look, Reason.UNIFORM if look >= group.size else Reason.ABANDON)
        elif decision == "commit":
            self._commit(index)
        else:
            self._continue(index)

    def _commit(self, index: int) -> None:
        state, group = self._state, self._state.groups[index]
        state.observed.decide(committed=True)
        self._undecided.pop(index, None)
        if self._is_beyond_need:
            group.move(Phase.SURPLUS, Reason.SURPLUS)
            return
        self._committed += 1
        group.commit()
        if self.verdict.after_commit == "stop":
            state.shorten(index)
            return
        beyond = state.strategy.complete_from_allowance and state.strategy.close == "fixed_train"
        state.plan(index, group.size, from_allowance=beyond)

    def _continue(self, index: int) -> None:
        group = self._state.groups[index]
        look = group.look_further()
        if len(group.slots) < look and not self._state.plan(index, look):
            if group.is_mixed:  # the rollouts up to its look cannot be paid: it trains as it is
                self._commit(index)
                return
            group.move(Phase.UNFINISHED, Reason.UNFINISHED)

    def retire(self, index: int) -> None:
        """Take a group out of play."""
        if self._state.retire(index):
            self._undecided.pop(index, None)
            self._replace_if_short(index)

    def _replace_if_short(self, index: int) -> None:
        """Count a committed group that lacks results as missing again, where the strategy drops such groups."""
        group = self._state.groups[index]
        if group.phase is Phase.COMMITTED and self._state.strategy.incomplete == "drop" and group.is_short:
            self._committed -= 1

    def stop(self) -> None:
        """Open nothing more: the step ends."""

    def advance(self) -> None:
        """Open the prompts that the step still needs, or end its open groups when it needs none."""
        state = self._state
        missing = None if self.target is None else max(0, self.target - self._committed)
        if missing == 0:
            for index in list(self._undecided):
                state.groups[index].move(Phase.SURPLUS, Reason.SURPLUS)
                self.retire(index)
            return
        wanted = 0 if state.exhausted else self._wanted(missing)
        if wanted > 0:
            ids = state.strategy.select.pick(step_view(state), wanted)
            state.mark_exhausted(len(ids) < wanted)
            if missing is not None and state.strategy.over_provision == "belief":
                ids = self._enough(ids, missing)
            self._open(ids)
        if state.strategy.close != "fixed_train" and not state.live and state.left > 0:
            self._spend_rest()

    def _wanted(self, missing: int | None) -> int:
        """Return how many prompts to open now."""
        state, wide, first = self._state, self.over_provision, self._first
        # Undecided groups hold their first rollouts; a share of them will commit and need the others as well.
        free = state.left - len(self._undecided) * (self.size - first) / wide
        affordable = min(math.ceil(wide * free / self.size) if free > 0 else 0, state.left // first)
        if missing is None:
            return affordable
        if state.strategy.over_provision == "belief":
            lacking = missing - self._in_sight()
            return max(0, min(math.ceil(4.0 * lacking), affordable)) if lacking > 0.5 else 0
        return max(0, min(math.ceil(wide * missing) - len(self._undecided), affordable))

    def _open(self, ids: list[PromptId]) -> None:
        state, count = self._state, len(self._state.groups)
        moments = state.strategy.belief.predict(ids)
        sizes, lengths = [self.size] * len(ids), [self._first] * len(ids)
        state.open(ids, moments, sizes=sizes, lengths=lengths, reason=Reason.PROBE, looks=self.looks)
        self._undecided.update(dict.fromkeys(range(count, len(state.groups))))

    def _spend_rest(self) -> None:
        """Give a rest that opens no further group to groups with signal, else to any, evenly."""
        state = self._state
        at_hand = [i for i in range(len(state.groups)) if i not in state.drained]
        chosen = [i for i in at_hand if state.groups[i].is_mixed] or at_hand
        if not chosen:
            return
        share, extra = divmod(state.left, len(chosen))
        for position, index in enumerate(chosen[: None if share else extra]):
            group = state.groups[index]
            group.move(Phase.COMMITTED, Reason.EXTEND)
            group.resize(len(group.slots) + share + (position < extra), Reason.EXTEND)
            state.plan(index, group.size)

    def audit(self, *, is_final: bool) -> dict[str, float]:
        """Return metrics of the cost and the savings of the step's verdicts; at its end, also learn from them.

        ``miss_rate`` is the estimated share of abandoned groups that would have become mixed, ``signal_kept`` that of
        sum s(k-s) which early verdicts left.
        """
        judged = [group for group in self._state.groups if group.committed is not None]
        full = [group for group in judged if group.committed and group.outcomes(self.size)[1] == self.size]
        finding = audit(
            self.verdict,
            [(group.outcomes(self.size)[0], self.size, group.prior) for group in full],
            [(group.stopped_at, self.size) for group in judged if not group.committed],
        )
        observed = self._state.observed
        if is_final:
            observed.add(finding)
            observed.warn(self.size)
        metrics = {
            "verdicts": float(len(judged)),
            "abandoned_groups": float(finding.abandoned),
            "over_provision": self.over_provision,
        }
        if self.verdict.after_commit != "stop":  # else no group is seen whole
            metrics |= {
                "miss_rate": finding.miss_rate,
                "signal_kept": finding.signal_kept,
                "yield_margin": observed.margin(self.size),
            }
        return metrics


def _groups_to_train(train_rows: int | None, size: int) -> int:
    """Return how many groups of ``size`` fill the rows to train on, or raise when they never can."""
    assert train_rows is not None
    if train_rows % size:
        nearest = f"{max(size, train_rows // size * size)} and {(train_rows // size + 1) * size}"
        raise ArgumentError(
            f"train_rows must be a multiple of the group size {size}, got {train_rows}: complete groups of that size "
            f"can never fill them; the nearest are {nearest}"
        )
    return train_rows // size
