"""What a run records of itself while TRL trains: a line for each step, and one for each measurement."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any, final

from transformers import TrainerCallback

from neyman.train._folder import Progress, RunFolder

PREFIX = "neyman/"


@final
class Recorder(TrainerCallback):
    """Writes the metrics of a run, measures accuracy, and stops the run on its budget.

    Lines are written in the trainer's ``on_log``, which comes before a step's checkpoint is saved: a checkpoint
    never knows of a step that the metrics do not.

    Args:
        folder: the run's directory.
        trainer: the adapted trainer.
        evaluate: ``(model, step) -> {"accuracy", "problems", "exact"}``.
        eval_every: steps between measurements.
        steps: the run's steps.
        rollouts: the run's budget of rollouts; re-draws of failed ones come beside it.
        progress: where the run goes on.
    """

    def __init__(
        self,
        folder: RunFolder,
        trainer: Any,
        evaluate: Callable[[Any, int], dict[str, Any]],
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

    @property
    def seconds(self) -> float:
        """What the run has taken, earlier parts included."""
        return self._before + time.monotonic() - self._started

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Start the clock, and measure the starting policy of a fresh run."""
        del args, control
        self._started = time.monotonic()
        if state.global_step == 0:
            self._measure(kwargs["model"], 0)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """End the run when its rollouts are spent."""
        del args, state, kwargs
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
                "groups": [asdict(group) for group in controller.group_reports],
                "trainer": {n: v for n, v in numbers.items() if not n.startswith(PREFIX)},
            }
        )
        if last or step % self.eval_every == 0:
            self._measure(kwargs["model"], step, durable=bool(control.should_save))

    def _measure(self, model: Any, step: int, *, durable: bool = False) -> None:
        measured = self.evaluate(model, step)
        self.folder.append({"event": "eval", "step": step, **self._spent(), **measured}, durable=durable)

    def _spent(self) -> dict[str, int]:
        ledger = self.trainer.controller.ledger
        return {"rollouts": int(ledger.requested), "tokens": int(ledger.tokens())}
