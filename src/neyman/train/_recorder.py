"""The metrics of a run under TRL: a line for each step, and one for each measurement."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any, final

from transformers import TrainerCallback

from neyman.step.messages import GroupReport
from neyman.train._folder import Progress, RunFolder

PREFIX = "neyman/"


@final
class Recorder(TrainerCallback):
    """Writes the metrics of a run, measures accuracy, and stops the run on its budget.

    Lines are written in the trainer's ``on_log``, which comes before a step's checkpoint is saved: a checkpoint
    never knows of a step that the metrics do not. A line has the groups of every generation that came since the
    line before: none where a step trains on an earlier generation, several where it draws more than once.

    Args:
        folder: the run's directory.
        trainer: the adapted one.
        evaluate: ``(model, step) -> {"accuracy", "problems", "exact"}``, or None where there is no accuracy.
        eval_every: steps between measurements.
        steps: the run's steps.
        rollouts: the run's budget of rollouts; re-draws of failed ones come beside it.
        progress: of the checkpoint that the run resumes from.
    """

    def __init__(
        self,
        folder: RunFolder,
        trainer: Any,
        evaluate: Callable[[Any, int], dict[str, Any] | None],
        *,
        eval_every: int,
        steps: int,
        rollouts: int,
        progress: Progress,
    ) -> None:
        self.folder, self.trainer, self.evaluate = folder, trainer, evaluate
        self.eval_every, self.steps, self.rollouts = eval_every, steps, rollouts
        self._before = progress.seconds
        self._reported = progress.step
        self._started = time.monotonic()
        self._groups: list[GroupReport] = []
        self._generation = -1  # the last one whose groups are taken

    @property
    def seconds(self) -> float:
        """The time that the run took, earlier parts included."""
        return self._before + time.monotonic() - self._started

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Start the clock, and measure the starting policy of a fresh run."""
        del args, control
        self._started = time.monotonic()
        self._generation = self.trainer.controller.step  # restored by now: an earlier line has its groups
        if state.global_step == 0:
            self._measure(kwargs["model"], 0)

    def on_substep_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Take the groups of a generation that more may follow within the step."""
        del args, state, control, kwargs
        self._take_groups()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Take the step's groups, and end the run when its rollouts are spent."""
        del args, state, kwargs
        self._take_groups()
        ledger = self.trainer.controller.ledger
        if ledger.requested - ledger.retries >= self.rollouts:
            control.should_training_stop = control.should_save = True

    def on_log(
        self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **kwargs: Any
    ) -> None:
        """Write the step, and the measurement where one is due."""
        del args
        step = int(state.global_step)
        if not logs or "loss" not in logs or step <= self._reported:
            return
        self._reported = step
        last = bool(control.should_training_stop) or step >= self.steps
        numbers = {name: float(value) for name, value in logs.items() if isinstance(value, int | float)}
        controller = self.trainer.controller
        self.folder.append(
            {
                "event": "step",
                "step": step,
                **self._spent(),
                "seconds": round(self.seconds, 3),
                "last": last,
                "report": {n.removeprefix(PREFIX): v for n, v in numbers.items() if n.startswith(PREFIX)},
                "account": controller.ledger.account(),
                "groups": [asdict(group) for group in self._groups],
                "trainer": {n: v for n, v in numbers.items() if not n.startswith(PREFIX)},
            },
            durable=bool(
                control.should_save
            ),  # the disk must not hold a checkpoint without the step before it
        )
        self._groups = []
        if last or step % self.eval_every == 0:
            self._measure(kwargs["model"], step, durable=bool(control.should_save))

    def _measure(self, model: Any, step: int, *, durable: bool = False) -> None:
        measured = self.evaluate(model, step)
        if measured is None:
            return
        self.folder.append({"event": "eval", "step": step, **self._spent(), **measured}, durable=durable)

    def _take_groups(self) -> None:
        controller = self.trainer.controller
        if controller.step != self._generation:
            self._generation = controller.step
            self._groups += controller.group_reports

    def _spent(self) -> dict[str, int]:
        ledger = self.trainer.controller.ledger
        return {"rollouts": int(ledger.requested), "tokens": int(ledger.tokens())}
