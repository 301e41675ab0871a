"""A strategy's run inside a trainer: the controller, and everything that an adapter does around it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, final

from neyman.controller import Batch, Budget, Controller, calibration
from neyman.errors import StateError
from neyman.hosts.alarms import Alarms
from neyman.hosts.budget import rollouts_per_step
from neyman.hosts.dry_run import check_step
from neyman.hosts.features import register_prompts
from neyman.hosts.identity import describe, differences
from neyman.hosts.terms import Terms, TrainingPrompts
from neyman.strategy import Strategy


@final
class HostRun:
    """Connects a strategy to a trainer, and refuses one that does not fit the trainer's step.

    Args:
        strategy: the strategy, with the estimator that the trainer's settings ask for.
        terms: the trainer's step.
        prompts: the training prompts.
        warn: takes a warning.
        max_rollouts: the user's bound on the rollouts of a step.
        features: see `neyman.hosts.features.register_prompts`.
        accepts_change: whether a checkpoint of another strategy may be resumed.
        controller: further arguments of `neyman.Controller`: retries, seed, divisor, fill.

    Raises:
        ArgumentError: settings that contradict each other or the trainer; the message has the way out.
    """

    def __init__(
        self,
        strategy: Strategy,
        terms: Terms,
        prompts: TrainingPrompts,
        warn: Callable[[str], None],
        *,
        max_rollouts: int | None,
        features: Any,
        accepts_change: bool,
        **controller: Any,
    ) -> None:
        self.terms, self.warn = terms, warn
        self._prompts, self._accepts_change = prompts, accepts_change
        budget = rollouts_per_step(strategy, max_rollouts, terms)
        # Before the controller, whose own errors are in the words of its arguments.
        check_step(strategy, budget, terms, pool=prompts.ids, warn=warn)
        self._identity = describe(strategy)
        self.controller = Controller(
            strategy,
            Budget(rollouts=budget),
            train_rows=terms.rows,
            pool=prompts.ids,
            aggregation=terms.aggregation,
            **controller,
        )
        register_prompts(self.strategy.belief, prompts, features, warn)
        self._alarms = Alarms(self.controller, budget, terms, warn)

    @property
    def strategy(self) -> Strategy:
        """The strategy, with the controller's own belief."""
        return self.controller.strategy

    def check(self, batch: Batch) -> None:
        """Warn where a step's batch teaches little.

        Raises:
            RunFailedError: the tenth step in a row with nothing to train on.
        """
        self._alarms.check(batch)

    def metrics(self, batch: Batch, generation_seconds: float) -> dict[str, float]:
        """Return the numbers of a closed step, named ``neyman/...``.

        Args:
            batch: the step's batch.
            generation_seconds: from the step's beginning to its last verdict. They are no part of the ledger, so that
                a resumed run has the state of one that never stopped.
        """
        numbers = {
            **batch.report,
            **calibration(self.controller.group_reports),
            "rollouts_total": self.controller.ledger.requested,
            "tokens_total": self.controller.ledger.tokens(),
            "generation_seconds": generation_seconds,
        }
        return {f"neyman/{name}": float(value) for name, value in numbers.items()}

    # Once, and not before a checkpoint needs it: all prompts are read for it.
    @cached_property
    def _digest(self) -> str:
        return self._prompts.digest()

    def state(self) -> dict[str, Any]:
        """Return the part of a checkpoint that is the same in every trainer, JSON-safe."""
        return {
            "prompts": self._digest,
            "strategy": self._identity,
            "controller": self.controller.state_dict(),
        }

    def restore(self, state: Mapping[str, Any], where: object) -> None:
        """Restore a saved `state`, when it is of this run's prompts and strategy.

        Args:
            state: the saved state.
            where: the file that it was read from, for messages.

        Raises:
            StateError: other prompts, another strategy, or a damaged state; the message has the way out.
        """
        if state.get("prompts") != self._digest:
            raise StateError(
                f"{where} has prompts {state.get('prompts')!r}, this run has {self._digest!r}: it is of another "
                f"dataset; resume with that of the run, or {self.terms.new_run}"
            )
        try:
            self.controller.load_state_dict(self._under_this_strategy(state, where))
        except StateError as error:
            raise StateError(f"{where}: {error}") from error

    def _under_this_strategy(self, state: Mapping[str, Any], where: object) -> Any:
        """Return the controller's state when it is of this run's strategy, or the change of strategy is accepted."""
        saved, inner = state.get("strategy"), state.get("controller")
        changed = differences(saved, self._identity)
        if not changed or not isinstance(inner, Mapping):
            return inner  # anything but a mapping is refused by the controller
        if not self._accepts_change:
            raise StateError(
                f"the run was trained under another strategy ({'; '.join(changed)}): resume with that one, or "
                f"{self.terms.accept_change} to go on under yours on purpose"
            )
        # They were counted as carried, so that dropping them would leave the ledger without their fate.
        if (carried := inner.get("carried")) and not self.strategy.max_age:
            zero, one = (self.terms.with_option("max_age", age) for age in (0, 1))
            raise StateError(
                f"the run carries {len(carried)} groups over to its next step, which {zero} leaves no place for: "
                f"resume under a strategy with {one}, or from another checkpoint"
            )
        # Another belief might take the state for its own and predict from numbers of another meaning.
        if not isinstance(saved, Mapping) or saved.get("belief") != self._identity["belief"]:
            self.warn(f"{where}: the strategy has another belief now, which starts anew")
            return {**inner, "belief": self.strategy.belief.state_dict()}
        return inner
