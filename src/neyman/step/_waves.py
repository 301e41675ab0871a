"""Waves of fresh prompts under early verdicts: open, judge, complete, abandon, and open again."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, cast, final

import numpy as np

from neyman import formulas
from neyman.errors import ArgumentError, StateError
from neyman.randomness import PromptId
from neyman.rules import Verdict
from neyman.rules.audit import Audit, audit
from neyman.step._group import VALID, Group, Phase
from neyman.step._view import step_view
from neyman.step._yield import Yield
from neyman.step.ledger import Fate
from neyman.step.messages import Reason

if TYPE_CHECKING:
    from neyman.step._engine import Engine


@final
class Waves:
    """The moves of a strategy with a verdict.

    A wave opens enough prompts for the groups still missing, wider by the over-provision; verdicts free the
    budget of abandoned groups, which goes to the next wave. There is no barrier: whenever fewer prompts are
    undecided than a wave needs, it is topped up.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.observed = Yield()
        self.size = 0
        self.price: float | None = None  # of a rollout elsewhere, when the step began
        self.verdict: Verdict | None = None  # at that price
        self.looks: tuple[int, ...] = ()
        self._first = 0  # rollouts that a fresh prompt gets at once
        self.target: int | None = None
        self._undecided: dict[int, None] = {}
        self._committed = 0

    def prepare(self) -> None:
        """Set the size of a group and how many of them train, from the candidates of the step.

        Raises:
            ArgumentError: groups of that size can never carry signal, or never fill the rows to train on.
        """
        engine = self._engine
        self.size = engine.strategy.allocate.group_size(engine.average)
        if self.size < 2:
            raise ArgumentError(
                f"the group size must be >= 2, got {self.size} for {len(engine.candidates)} candidates: a single "
                "rollout can never be mixed; raise the budget (or train_rows), bring fewer prompts, or set group_size"
            )
        keep = engine.strategy.keep
        rows = self.size if keep is None else min(self.size, keep.rows(engine.average))
        if rows < 2:
            raise ArgumentError(f"keep must train at least 2 rows of a group, got {rows}: set its size")
        is_filling = engine.strategy.close == "fixed_train" and engine.train_rows is not None
        self.target = _groups_to_train(engine.train_rows, rows) if is_filling else None
        self._undecided, self._committed = {}, 0

    def _current_price(self) -> float | None:
        """Return what the verdict asks for a rollout in a step that begins now; None where it has no price."""
        engine = self._engine
        price = getattr(engine.strategy.verdict, "price", None)
        if price is None:
            return None
        needed = self.target or max(1, engine.budget.planned_rollouts // self.size)
        return cast("float | None", price(step_view(engine), needed))

    def _set_verdict(self, price: float | None) -> None:
        """Set the step's verdict and its looks."""
        verdict: Any = self._engine.strategy.verdict
        if hasattr(verdict, "priced"):
            verdict = verdict.priced(price)
        elif price is not None:
            raise StateError(f"the strategy's verdict has no price, but the step has {price!r}")
        self.price = price
        self.verdict = verdict
        self.looks = verdict.looks(self.size)
        self._first = self.size if getattr(verdict, "speculate", False) else self.looks[0]

    def begin(self) -> None:
        """Take over what earlier steps carried, and open the first wave."""
        self.prepare()
        self._set_verdict(self._current_price())
        self.observed.advance()
        self._take_carried()
        self.advance()

    def restore(self, price: float | None) -> None:
        """Take up a restored step, at the price that it began with: what it has learnt since may move it.

        Raises:
            NeymanError: the price is none that this verdict can have.
        """
        self.prepare()
        self._set_verdict(price)
        engine = self._engine
        self._undecided = {i: None for i in engine.live if engine.groups[i].phase is Phase.OPEN}
        for index, group in enumerate(engine.groups):
            if group.phase is Phase.COMMITTED:
                self._committed += 1
                if index not in engine.live:
                    self.retired(index)

    def _take_carried(self) -> None:
        engine = self._engine
        carried, engine.carried = engine.carried, []
        for group in carried:
            group.carry()
            age = engine.step - min(slot.step for slot in group.slots)
            if age > engine.strategy.max_age:
                for slot in group.slots:
                    engine.ledger.settle(Fate.EXPIRED, slot.n_tokens)
                continue
            index = engine.add(group)
            if self._is_beyond_need:  # it waits on, as it is
                group.phase, group.reason = Phase.SURPLUS, Reason.SURPLUS
                engine.retire(index)
                continue
            group.phase, group.reason = Phase.COMMITTED, Reason.CARRIED
            self._committed += 1
            engine.plan(index, group.size)
            if group.is_resolved:
                engine.retire(index)

    @property
    def _at_looks(self) -> bool:
        return bool(getattr(self.verdict, "at_looks", False))

    @property
    def _is_beyond_need(self) -> bool:
        """Whether a further group would be more than the step trains, and is not to be completed for later."""
        holds = bool(getattr(self.verdict, "holds_surplus", False))
        return holds and self.target is not None and self._committed >= self.target

    def is_wanted(self, group: Group) -> bool:
        """Whether a group that this step did not need may train in a later one."""
        if any(slot.replayed for slot in group.slots):  # its answer would be older still
            return False
        if group.phase is Phase.COMMITTED or not self._at_looks:
            return group.is_trainable
        assert self.verdict is not None
        verdict = self.verdict.decide(*group.outcomes(), group.size, group.prior)
        return verdict == "commit" or group.is_protected()

    @property
    def over_provision(self) -> float:
        """How much wider than needed a wave is opened; where only the budget limits it, just wide enough."""
        setting = self._engine.strategy.over_provision
        if not isinstance(setting, str):
            return float(setting)
        return 1.0 if self.target is None else min(4.0, max(1.0, 1.0 / self.observed.rate))

    def _in_sight(self) -> float:
        """Return how many of the undecided groups will be mixed, as the belief and their outcomes have it."""
        groups = [self._engine.groups[index] for index in self._undecided]
        if not groups:
            return 0.0
        told = np.array([group.outcomes() for group in groups], dtype=np.int64)
        a, b = np.array([group.prior for group in groups]).T
        return float(formulas.effective_probability(told[:, 0], told[:, 1], self.size, (a, b)).sum())

    def _enough(self, ids: list[PromptId], missing: int) -> list[PromptId]:
        """Return as many of the prompts as will, by the belief, give the mixed groups that are not in sight yet."""
        chance = self._engine.strategy.belief.mixed_probability(ids, self.size)
        reached = np.cumsum(chance) + self._in_sight()
        return ids[: int(np.searchsorted(reached, missing)) + 1] if len(ids) else ids

    def judge(self, index: int) -> None:
        """Take the verdicts that a group's complete prefix allows, the same whatever came in beyond it."""
        engine, group = self._engine, self._engine.groups[index]
        arrival = engine.strategy.verdict_on == "arrival"
        reached = group.resolved() if arrival else group.prefix
        while group.phase is Phase.OPEN:
            look = min(group.looks[group.looked], len(group.slots))
            seen = None if arrival else min(reached, look)
            successes, trials = group.outcomes(seen)
            if (0 < successes < trials and not self._at_looks) or group.is_protected(
                seen
            ):  # and will be at the look
                self._commit(index)
            elif reached < look:
                return
            else:
                self._decide(index, successes, trials, look)

    def _decide(self, index: int, successes: int, trials: int, look: int) -> None:
        group, decision = self._engine.groups[index], "abandon"
        if look < group.size:
            assert self.verdict is not None
            decision = self.verdict.decide(successes, trials, group.size, group.prior)
        elif 0 < successes < trials:  # complete
            decision = "commit"
        if look >= group.size and trials > 1 and not successes and self._replay(index):
            self._commit(index)
        elif look >= group.size and trials < 2:  # complete, but its results are missing
            self.observed.decide(committed=False)
            group.phase, group.reason = Phase.UNFINISHED, Reason.UNDECIDED
        elif decision == "abandon":
            self.observed.decide(committed=False)
            group.committed, group.stopped_at = False, look
            group.phase = Phase.ABANDONED
            group.reason = Reason.UNIFORM if look >= group.size else Reason.ABANDON
        elif decision == "commit":
            self._commit(index)
        else:
            self._continue(index)

    def _replay(self, index: int) -> bool:
        """Put an earlier right answer into a complete group without one; return whether there was one."""
        engine, group = self._engine, self._engine.groups[index]
        answer = engine.memory.splice(group) if engine.strategy.replay_age else None
        if answer is None or answer.rollout_id is None:
            return False
        engine.where[answer.rollout_id] = (index, group, answer)
        return True

    def _commit(self, index: int) -> None:
        engine, group = self._engine, self._engine.groups[index]
        self.observed.decide(committed=True)
        self._undecided.pop(index, None)
        if self._is_beyond_need:
            group.phase, group.reason = Phase.SURPLUS, Reason.SURPLUS
            return
        self._committed += 1
        group.committed = True
        group.phase, group.reason = Phase.COMMITTED, Reason.COMMIT
        if getattr(engine.strategy.verdict, "after_commit", "complete") == "stop":
            engine.release(index)
            group.size = len(group.slots)
            return
        beyond = engine.strategy.complete_from_allowance and engine.strategy.close == "fixed_train"
        engine.plan(index, group.size, from_allowance=beyond)

    def _continue(self, index: int) -> None:
        engine, group = self._engine, self._engine.groups[index]
        group.reason = Reason.CONTINUE
        group.looked = min(group.looked + 1, len(group.looks) - 1)
        look = group.looks[group.looked]
        if len(group.slots) < look and not engine.plan(index, look):
            if group.is_mixed:  # what was waited for cannot be paid: it trains as it is
                self._commit(index)
                return
            group.phase, group.reason = Phase.UNFINISHED, Reason.UNFINISHED

    def retired(self, index: int) -> None:
        """Count a group that went out of play; a committed one that lacks results may have to be replaced."""
        group = self._engine.groups[index]
        self._undecided.pop(index, None)
        if group.phase is Phase.COMMITTED and self._engine.strategy.incomplete == "drop" and group.is_short:
            self._committed -= 1

    def advance(self) -> None:
        """Open what the step still needs, or close it when it needs nothing more."""
        engine = self._engine
        missing = None if self.target is None else max(0, self.target - self._committed)
        if missing == 0:
            for index in list(self._undecided):
                engine.groups[index].phase, engine.groups[index].reason = Phase.SURPLUS, Reason.SURPLUS
                engine.retire(index)
            return
        wanted = 0 if engine.exhausted else self._wanted(missing)
        if wanted > 0:
            ids = engine.strategy.select.pick(step_view(engine), wanted)
            engine.exhausted = len(ids) < wanted
            if missing is not None and engine.strategy.over_provision == "belief":
                ids = self._enough(ids, missing)
            self._open(ids)
        if engine.strategy.close != "fixed_train" and not engine.live and engine.left > 0:
            self._spend_rest()

    def _wanted(self, missing: int | None) -> int:
        """Return how many prompts to open now."""
        engine, wide, first = self._engine, self.over_provision, self._first
        free = engine.left - len(self._undecided) * (self.size - first) / wide
        affordable = min(math.ceil(wide * free / self.size) if free > 0 else 0, engine.left // first)
        if missing is None:
            return affordable
        if engine.strategy.over_provision == "belief":
            lacking = missing - self._in_sight()
            return max(0, min(math.ceil(4.0 * lacking), affordable)) if lacking > 0.5 else 0
        return max(0, min(math.ceil(wide * missing) - len(self._undecided), affordable))

    def _open(self, ids: list[PromptId]) -> None:
        engine, count = self._engine, len(self._engine.groups)
        moments = engine.strategy.belief.predict(ids)
        sizes, lengths = [self.size] * len(ids), [self._first] * len(ids)
        engine.open(ids, moments, sizes=sizes, lengths=lengths, reason=Reason.PROBE)
        self._undecided.update(dict.fromkeys(range(count, len(engine.groups))))

    def _spend_rest(self) -> None:
        """Fixed spend: what opens no further group goes to groups with signal, else to any, evenly."""
        engine = self._engine
        at_hand = [i for i in range(len(engine.groups)) if i not in engine.drained]
        chosen = [i for i in at_hand if engine.groups[i].is_mixed] or at_hand
        if not chosen:
            return
        share, extra = divmod(engine.left, len(chosen))
        for position, index in enumerate(chosen[: None if share else extra]):
            group = engine.groups[index]
            group.phase, group.reason = Phase.COMMITTED, Reason.EXTEND
            group.size = len(group.slots) + share + (position < extra)
            engine.plan(index, group.size)

    def audit(self) -> Audit:
        """Estimate what this step's verdicts missed."""
        assert self.verdict is not None
        judged = [group for group in self._engine.groups if group.committed is not None]
        full = [
            group
            for group in judged
            if group.committed and sum(s.state is VALID for s in group.slots[: self.size]) == self.size
        ]
        return audit(
            self.verdict,
            [(group.outcomes(self.size)[0], self.size, group.prior) for group in full],
            [(group.stopped_at, self.size) for group in judged if not group.committed],
        )


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
