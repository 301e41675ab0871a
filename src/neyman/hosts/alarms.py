"""Warnings after a step that taught little, and the end of a run in which nothing is scored any more."""

from __future__ import annotations

from collections.abc import Callable
from typing import final

from neyman.controller import Batch, Controller, StopReason
from neyman.errors import RunFailedError
from neyman.hosts.terms import Terms

_HOPELESS = 10  # steps in a row: fewer may be a verifier that restarts


@final
class Alarms:
    """Warns seldom enough to be read, and stops a run that cannot go on.

    Args:
        controller: of the run.
        budget: rollouts per step.
        terms: the trainer's step.
        warn: takes a warning.
    """

    def __init__(
        self, controller: Controller, budget: int, terms: Terms, warn: Callable[[str], None]
    ) -> None:
        self._controller, self._budget, self._terms, self._warn = controller, budget, terms, warn
        self._barren = self._in_a_row = 0
        self._has_warned_of_filler = False

    def check(self, batch: Batch) -> None:
        """Warn where a step trains nothing, or mostly filler.

        Args:
            batch: from the step's ``finish``.

        Raises:
            RunFailedError: the tenth step in a row with nothing to train on.
        """
        # A batch that copies fill has rows, none of which trains; one that nothing fills has none.
        if batch.stop_reason is not StopReason.FAILED and len(batch):
            self._in_a_row = 0
            self._check_filler(batch)
            return
        self._in_a_row += 1
        self._barren += 1
        problem, way_out = self._problem(batch)
        if self._in_a_row == _HOPELESS:
            raise RunFailedError(
                f"{_HOPELESS} steps in a row, to step {self._controller.step}, had nothing to train on. In the last "
                f"{problem}. {way_out}, and resume from the last checkpoint"
            )
        if self._barren & (self._barren - 1) == 0:  # at 1, 2, 4, 8, ... such steps
            self._warn(
                f"step {self._controller.step}: {problem}; the batch trains nothing. Steps like this so far: "
                f"{self._barren}. {way_out}"
            )

    def _problem(self, batch: Batch) -> tuple[str, str]:
        """Return why a step has nothing to train on, and the way out."""
        drawn = f"of {batch.report['rollouts']:.0f} drawn"
        if batch.stop_reason is StopReason.FAILED:
            cause = self._controller.first_error or "no cause was reported"
            return (
                f"no rollout has a valid reward, {drawn} (the first: {cause})",
                "Mend the reward function: it returns None only for a completion that it cannot judge",
            )
        terms = self._terms
        return (
            f"no group has both outcomes, {drawn}",
            f"Raise {terms.max_rollouts} or {terms.group_setting}, take prompts that are neither always nor never "
            "solved, or a strategy that trains all that it draws, such as vip",
        )

    def _check_filler(self, batch: Batch) -> None:
        terms = self._terms
        # Strategies with fixed train leave a few rows open in most steps, which is no fault of the settings.
        filled = terms.rows - int((batch.groups >= 0).sum())
        if 2 * filled <= terms.rows or self._has_warned_of_filler:
            return
        self._has_warned_of_filler = True
        causes = {
            StopReason.BUDGET: f"{terms.max_rollouts}={self._budget} were spent: raise {terms.max_rollouts}",
            StopReason.POOL: "no further prompt was left to draw: bring more prompts",
        }
        self._warn(
            f"step {self._controller.step}: {filled} of {terms.rows} rows are {terms.filler} that only fill the batch, "
            f"as {len(set(batch.groups.tolist()) - {-1})} groups had both outcomes and "
            f"{causes.get(batch.stop_reason, batch.stop_reason.value)}; or raise "
            f"{terms.group_setting}={terms.group_size}, so that more groups have both, or lower the batch size. "
            "neyman/rows and neyman/rows_filled show it for every step"
        )
