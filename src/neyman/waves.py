"""Waves of fresh prompts under early verdicts: open, judge, complete, abandon, and open again."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, final

from neyman import beliefs
from neyman.errors import ArgumentError
from neyman.groups import Group, Phase
from neyman.ledger import Fate
from neyman.rules.audit import Audit
from neyman.step import Reason

if TYPE_CHECKING:
    from neyman.engine import Engine

_logger = logging.getLogger("neyman")

_ENOUGH = 64.0  # audited groups before the yield condition is believed
_DECAY = 0.9  # of the observed share of effective groups, per step


@final
class Waves:
    """The moves of a strategy with a verdict.

    A wave opens enough prompts for the groups still missing, wider by the over-provision; verdicts free the
    budget of abandoned groups, which goes to the next wave. There is no barrier: whenever fewer prompts are
    undecided than a wave needs, it is topped up.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._decided = 0.0
        self._committed = 0.0
        self._audited = 0.0
        self._effective = 0.0
        self.priors: dict[int, tuple[float, float]] = {}

    def begin(self) -> None:
        """Take over what earlier steps carried, and open the first wave."""
        engine = self._engine
        self._decided *= _DECAY
        self._committed *= _DECAY
        self._audited *= _DECAY
        self._effective *= _DECAY
        self.priors = {}
        self.size = engine.strategy.allocate.group_size(engine.average)
        fixed_train = engine.strategy.close == "fixed_train"
        self.target = _groups_to_train(engine.train_rows, self.size) if fixed_train else None
        self._take_carried()
        self.advance()

    def _take_carried(self) -> None:
        engine = self._engine
        carried, engine.carried = engine.carried, []
        for group in carried:
            age = engine.step - min(slot.step for slot in group.slots)
            if age > engine.strategy.max_age:
                for slot in group.slots:
                    engine.ledger.settle(Fate.EXPIRED, slot.n_tokens)
                continue
            group.phase, group.reason, group.carried = Phase.COMMITTED, Reason.CARRIED, True
            engine.add(group)
            index = len(engine.groups) - 1
            for slot in group.slots:
                if slot.rollout_id is not None:
                    engine.where[slot.rollout_id] = (index, group, slot)
            engine.ledger.visit([group.prompt_id])
            engine.plan(index, group.size)
            if group.is_resolved:
                engine.retire(index)

    @property
    def yield_rate(self) -> float:
        """The observed share of opened groups that commit, shrunk towards 1/2."""
        return (self._committed + 1.0) / (self._decided + 2.0)

    @property
    def over_provision(self) -> float:
        """How much wider than needed a wave is opened; where only the budget limits it, just wide enough."""
        setting = self._engine.strategy.over_provision
        if setting != "auto":
            return float(setting)
        return 1.0 if self.target is None else min(4.0, max(1.0, 1.0 / self.yield_rate))

    def judge(self, index: int) -> None:
        """Take the verdicts that a group's complete prefix allows."""
        engine, group = self._engine, self._engine.groups[index]
        verdict = engine.strategy.verdict
        assert verdict is not None
        arrival = engine.strategy.verdict_on == "arrival"
        reached = group.resolved() if arrival else group.prefix
        successes, trials = group.outcomes(reached, arrival=arrival)
        if 0 < successes < trials:  # mixed now is mixed at the next look
            self._commit(index)
        while group.phase is Phase.OPEN:
            look = min(group.looks[group.looked], len(group.slots))
            if reached < look:
                return
            successes, trials = group.outcomes(look, arrival=arrival)
            decision = verdict.decide(successes, trials, group.size, self.prior(index))
            if look >= group.size:
                self._drop(index, Reason.UNIFORM)
            elif decision == "abandon":
                self._drop(index, Reason.ABANDON)
            else:
                self._continue(index)

    def prior(self, index: int) -> tuple[float, float]:
        """Return the Beta parameters under which a group of this step is judged."""
        if index not in self.priors:
            group = self._engine.groups[index]
            a, b = beliefs.beta_parameters(self._engine.strategy.belief, [group.prompt_id])
            self.priors[index] = (float(a[0]), float(b[0]))
        return self.priors[index]

    def _commit(self, index: int) -> None:
        engine, group = self._engine, self._engine.groups[index]
        self._count(committed=True)
        group.phase, group.reason = Phase.COMMITTED, Reason.COMMIT
        if getattr(engine.strategy.verdict, "after_commit", "complete") == "stop":
            group.size = len(group.slots)
            return
        beyond = engine.strategy.complete_from_allowance and engine.strategy.close == "fixed_train"
        engine.plan(index, group.size, from_allowance=beyond)

    def _continue(self, index: int) -> None:
        engine, group = self._engine, self._engine.groups[index]
        group.reason = Reason.CONTINUE
        group.looked += 1
        look = group.looks[group.looked]
        if len(group.slots) < look and not engine.plan(index, look):  # the budget ends here, undecided
            self._drop(index, Reason.SURPLUS)

    def _drop(self, index: int, reason: Reason) -> None:
        group = self._engine.groups[index]
        self._count(committed=False)
        group.phase = Phase.SURPLUS if reason is Reason.SURPLUS else Phase.ABANDONED
        group.reason = reason

    def _count(self, *, committed: bool) -> None:
        self._decided += 1.0
        self._committed += committed

    def _missing(self) -> int | None:
        """Return the groups still to be committed; None where only the budget limits them."""
        if self.target is None:
            return None
        incomplete_counts = self._engine.strategy.incomplete == "keep"
        have = sum(
            group.phase is Phase.COMMITTED
            and (incomplete_counts or not group.is_resolved or not is_short(group))
            for group in self._engine.groups
        )
        return max(0, self.target - have)

    def advance(self) -> None:
        """Open what the step still needs, or close it when it needs nothing more."""
        engine = self._engine
        missing = self._missing()
        if missing == 0:
            for index in [i for i in engine.live if engine.groups[i].phase is Phase.OPEN]:
                engine.groups[index].phase, engine.groups[index].reason = Phase.SURPLUS, Reason.SURPLUS
                engine.retire(index)
            return
        undecided = sum(engine.groups[i].phase is Phase.OPEN for i in engine.live)
        wanted = self._wanted(missing, undecided)
        if wanted > 0 and not engine.exhausted:
            ids = engine.strategy.select.pick(engine.view(), wanted)
            engine.exhausted = len(ids) < wanted
            self._open(ids)
        if engine.strategy.close != "fixed_train" and not engine.live and engine.left > 0:
            self._spend_rest()

    def _wanted(self, missing: int | None, undecided: int) -> int:
        """Return how many prompts to open now."""
        engine, wide = self._engine, self.over_provision
        probe = engine.strategy.verdict.looks(self.size)[0] if engine.strategy.verdict else self.size
        free = engine.left - undecided * (self.size - probe) / wide
        affordable = min(math.ceil(wide * free / self.size) if free > 0 else 0, engine.left // probe)
        if missing is None:
            return affordable
        return max(0, min(math.ceil(wide * missing) - undecided, affordable))

    def _open(self, ids: list[Any]) -> None:
        engine = self._engine
        assert engine.strategy.verdict is not None
        ahead = getattr(engine.strategy.verdict, "speculate", False)
        length = self.size if ahead else engine.strategy.verdict.looks(self.size)[0]
        engine.open(ids, size=self.size, length=length, reason=Reason.PROBE)

    def _spend_rest(self) -> None:
        """Fixed spend: what opens no further group goes to groups with signal, else to any, evenly."""
        engine = self._engine
        mixed = [i for i, group in enumerate(engine.groups) if group.is_mixed]
        chosen = mixed or list(range(len(engine.groups)))
        if not chosen:
            return
        share, extra = divmod(engine.left, len(chosen))
        for position, index in enumerate(chosen):
            group = engine.groups[index]
            group.phase, group.reason = Phase.COMMITTED, Reason.EXTEND
            group.size = len(group.slots) + share + (position < extra)
            engine.plan(index, group.size)

    def yield_margin(self, finding: Audit, probe: float) -> float:
        """Return by how much early verdicts beat full groups at equal budget; below 1 they lose.

        They win when odds(f')/odds(f) >= probe/size, f the share of groups mixed at full size and f' the share
        found mixed by the verdicts (METHODS 2.4). Both are averaged over past steps; a warning names the remedy.
        """
        self._audited += finding.judged
        self._effective += finding.effective
        found = min(max(self.yield_rate, 1e-6), 1.0 - 1e-6)
        full = min(max((self._effective + 1.0) / (self._audited + 2.0), 1e-6), 1.0 - 1e-6)
        margin = found / (1.0 - found) * (1.0 - full) / full * self.size / max(probe, 1.0)
        if self._audited >= _ENOUGH and margin < 1.0:
            _logger.warning(
                "early verdicts cost more than they save on these prompts: %.0f%% of the groups would be mixed at full "
                "size and %.0f%% were found by verdicts after about %.1f of %d rollouts (yield margin %.2f < 1); use a "
                "lower threshold, a longer probe, or preset('dynamic-sampling')",
                100 * full,
                100 * found,
                probe,
                self.size,
                margin,
            )
        return margin

    def state_dict(self) -> dict[str, float]:
        """Return the observed shares, JSON-safe."""
        return {
            "decided": self._decided,
            "committed": self._committed,
            "audited": self._audited,
            "effective": self._effective,
        }

    def load_state_dict(self, state: Mapping[str, float]) -> None:
        """Restore the observed shares."""
        self._decided, self._committed = state["decided"], state["committed"]
        self._audited, self._effective = state["audited"], state["effective"]


def is_short(group: Group) -> bool:
    """Whether a group has fewer valid results than its size."""
    return group.outcomes()[1] < group.size


def _groups_to_train(train_rows: int | None, size: int) -> int | None:
    """Return how many groups of ``size`` fill the rows to train on, or raise when they never can."""
    if train_rows is None:
        return None
    if train_rows % size:
        nearest = f"{max(size, train_rows // size * size)} and {(train_rows // size + 1) * size}"
        raise ArgumentError(
            f"train_rows must be a multiple of the group size {size}, got {train_rows}: complete groups of that size "
            f"can never fill them; the nearest are {nearest}"
        )
    return train_rows // size
