"""What a person must hear of a step while the run goes on: nothing was scored, or most rows only fill the batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from neyman.errors import RunFailedError
from neyman.step.batch import Batch
from neyman.step.messages import StopReason
from neyman.trl._fit import warn

if TYPE_CHECKING:
    from neyman.trl._session import Session

_HOPELESS = 10  # steps in a row without any valid result


@final
class Alarms:
    """Warns after a step, seldom enough to be read, and stops a run in which nothing is scored any more.

    Args:
        session: the trainer's session.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._failed = 0
        self._in_a_row = 0
        self._has_warned_of_filler = False

    def hear(self, batch: Batch) -> None:
        """Look at a step's batch and warn where it teaches little or nothing.

        Raises:
            RunFailedError: the tenth step in a row without any valid result.
        """
        self._in_a_row = self._in_a_row + 1 if batch.stop_reason is StopReason.FAILED else 0
        if self._in_a_row == _HOPELESS:
            raise RunFailedError(
                f"{_HOPELESS} steps in a row, to step {self._session.controller.step}, had no rollout with a valid "
                f"reward (the first of the last step: {self._cause()}); mend what scores completions and resume from "
                "the last checkpoint"
            )
        if batch.stop_reason is StopReason.FAILED:
            self._failed += 1
            if self._failed & (self._failed - 1) == 0:  # at 1, 2, 4, 8, ... such steps
                self._warn_of_failure(batch)
        elif 2 * int((batch.groups < 0).sum()) > len(batch) and not self._has_warned_of_filler:
            self._has_warned_of_filler = True
            self._warn_of_filler(batch)

    def _warn_of_failure(self, batch: Batch) -> None:
        controller = self._session.controller
        warn(
            self._session.trainer,
            "step %d: no rollout has a valid reward, of %d drawn (the first: %s); the batch trains nothing. Steps "
            "like this so far: %d. A reward function returns None only for a completion that it cannot judge",
            controller.step,
            int(batch.report["rollouts"]),
            self._cause(),
            self._failed,
        )

    def _cause(self) -> str:
        return self._session.controller.first_error or "reward functions returned None"

    def _warn_of_filler(self, batch: Batch) -> None:
        session, filled = self._session, int((batch.groups < 0).sum())
        causes = {
            StopReason.BUDGET: f"max_rollouts={session.budget} were spent: raise max_rollouts",
            StopReason.POOL: "no further prompt was left to draw: bring more prompts",
        }
        warn(
            session.trainer,
            "step %d: %d of %d rows are copies of weight zero that only fill the batch, as %d groups had both outcomes "
            "and %s; or raise num_generations=%d, so that more groups have both, or lower the batch size. "
            "neyman/rows_filled shows it for every step",
            session.controller.step,
            filled,
            len(batch),
            len(set(batch.groups.tolist()) - {-1}),
            causes.get(batch.stop_reason, batch.stop_reason.value),
            int(session.trainer.num_generations),
        )
