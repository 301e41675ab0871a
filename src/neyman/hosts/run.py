"""A strategy's run inside a trainer: the controller, and everything that an adapter does around it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, final

from neyman.controller import Batch, Budget, Controller
from neyman.hosts.alarms import Alarms
from neyman.hosts.budget import rollouts_per_step
from neyman.hosts.dry_run import check_step
from neyman.hosts.features import register_prompts
from neyman.hosts.identity import describe
from neyman.hosts.metrics import step_metrics
from neyman.hosts.refusals import check_prompt_weight
from neyman.hosts.resume import restore_run, run_state
from neyman.hosts.terms import Terms
from neyman.randomness import PromptId
from neyman.strategy import Strategy

Warn = Callable[[str], None]


@final
class HostRun:
    """Puts a strategy into a trainer whose settings it fits.

    Args:
        strategy: the strategy, with the estimator that the trainer's settings ask for.
        terms: the trainer's step.
        ids: all prompts; None for a stream.
        texts: returns the prompts' texts, in the order of ``ids``.
        digest: returns a hash of the training prompts.
        warn: takes a warning.
        max_rollouts: the user's bound on the rollouts of a step.
        retries: re-draws of failed rollouts, as a share of the budget in [0, 1].
        seed: of the strategy's own draws.
        features: see `neyman.hosts.features.register_prompts`.
        accepts_change: whether a checkpoint of another strategy may be resumed.
        divisor: ranks that share a batch.
        fill: as `neyman.Controller` has it.

    Raises:
        ArgumentError: settings that contradict each other or the trainer; the message has the way out.
    """

    def __init__(
        self,
        strategy: Strategy,
        terms: Terms,
        *,
        ids: Sequence[PromptId] | None,
        texts: Callable[[], list[str]],
        digest: Callable[[], str],
        warn: Warn,
        max_rollouts: int | None,
        retries: float,
        seed: int,
        features: Any,
        accepts_change: bool,
        divisor: int = 1,
        fill: str = "copies",
    ) -> None:
        self.terms, self.warn = terms, warn
        self._digest, self._accepts_change = digest, accepts_change
        self.budget = rollouts_per_step(strategy, max_rollouts, terms)
        check_prompt_weight(strategy, terms)
        check_step(strategy, self.budget, terms, pool=ids, warn=warn)
        self.identity = describe(strategy)
        self.controller = Controller(
            strategy,
            Budget(rollouts=self.budget),
            train_rows=terms.rows,
            divisor=divisor,
            pool=ids,
            retries=retries,
            seed=seed,
            fill=fill,
            aggregation=terms.aggregation,
        )
        register_prompts(self.controller.strategy.belief, ids, features, texts=texts, warn=warn)
        self._alarms = Alarms(self.controller, self.budget, terms, warn)

    @property
    def strategy(self) -> Strategy:
        """The strategy, with the controller's own belief."""
        return self.controller.strategy

    @cached_property
    def prompts(self) -> str:
        """A hash of the training prompts, to refuse a checkpoint of another dataset."""
        return self._digest()

    def check(self, batch: Batch) -> None:
        """Warn where a step's batch teaches little.

        Raises:
            RunFailedError: the tenth step in a row with nothing to train on.
        """
        self._alarms.check(batch)

    def metrics(self, batch: Batch, generation_seconds: float) -> dict[str, float]:
        """Return the numbers of the step, named ``neyman/...``."""
        return step_metrics(self.controller, batch, generation_seconds)

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint keeps, JSON-safe."""
        return run_state(self.controller, self.prompts, self.identity)

    def restore(self, state: Mapping[str, Any], where: object) -> None:
        """Restore what `state` returned.

        Args:
            state: what was saved.
            where: the file that it was read from, for messages.

        Raises:
            StateError: other prompts, another strategy, or a damaged state; the message has the way out.
        """
        restore_run(
            self.controller,
            state,
            where=where,
            prompts=self.prompts,
            strategy=self.identity,
            accepts_change=self._accepts_change,
            terms=self.terms,
            warn=self.warn,
        )
