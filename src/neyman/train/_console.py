"""The view of a training: a live table on a terminal, plain lines elsewhere, and the verdict."""

from __future__ import annotations

import shlex
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, final

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from neyman.config import Config
from neyman.train._all import Outcome, train_all
from neyman.train._folder import RunFolder
from neyman.train._tail import Tail


def train_here(config: Config, out: Path, *, jobs: int | None, console: Console) -> int:
    """Train all runs that are not complete, show their progress, and write the report.

    Args:
        config: the settings, which ``out`` holds too.
        out: the training's directory.
        jobs: processes at once.
        console: where to show it.

    Returns:
        0, or 1 when a run failed.

    Raises:
        KeyboardInterrupt: after the processes are ended and the command that resumes is shown.
        RunFailedError: the preparation failed.
    """
    display = Display(config, out, console)
    try:
        with display:
            outcomes = train_all(config, out, jobs=jobs, watch=display)
    except KeyboardInterrupt:
        console.print(
            f"\nInterrupted; finished runs are kept. Go on with:\n  {resume_command(out)}", markup=False
        )
        raise
    failed = [outcome for outcome in outcomes if outcome.error is not None]
    if len(failed) < len(outcomes):
        finish(out, console)
    for outcome in failed:
        console.print(f"{outcome.name} failed: {outcome.error}\n  log: {outcome.log}", markup=False)
    if failed:
        console.print(f"Once that is mended:\n  {resume_command(out)}", markup=False)
    return 1 if failed else 0


def resume_command(out: Path) -> str:
    """Return the command that resumes a training.

    >>> resume_command(Path("my runs"))
    "neyman train --out 'my runs' --resume"
    """
    return f"neyman train --out {shlex.quote(str(out))} --resume"


def finish(out: Path, console: Console) -> None:
    """Write the report of a directory of runs, and print the verdict and the path."""
    from neyman.report import load_runs, summary, write_report  # noqa: PLC0415 - loads SciPy's statistics

    path = write_report(out)
    verdict = summary(load_runs(out))
    console.print(f"\n{verdict['verdict']}\n\nreport: {path.absolute()}", markup=False)


@final
class Display:
    """The live view of all runs, from the runs' own files.

    Args:
        config: the settings.
        out: the training's directory.
        console: a terminal gets a table that is redrawn, anything else a line per measurement.
    """

    def __init__(self, config: Config, out: Path, console: Console) -> None:
        self._console, self._steps, self._out = console, config.trainer.steps, out
        self._rollouts = config.trainer.steps * config.trainer.budget
        names = [RunFolder.name(arm, seed) for seed in config.seeds for arm in config.arms]
        self._tails = {name: Tail(RunFolder(out / name)) for name in names}
        self._state = {
            name: "done" if tail.folder.is_done else "waiting" for name, tail in self._tails.items()
        }
        self._note = ""
        self._printed: dict[str, int] = {}  # the last step of each run, or quarter of the preparation
        self._live = Live(console=console, auto_refresh=False) if console.is_terminal else None

    def __enter__(self) -> Display:
        for tail in self._tails.values():
            tail.read()
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def preparing(self, done: int, steps: int) -> None:
        """Show the progress of the starting policy."""
        self._note = "" if done >= steps else f"warm-starting the tiny policy: {done} of {steps} steps"
        if self._live is not None:
            self._draw()
        elif done == steps or done * 4 // steps != self._printed.get("policy"):
            self._printed["policy"] = done * 4 // steps
            self._print(f"warm-starting the tiny policy: {done} of {steps} steps")

    def update(self, running: Sequence[RunFolder]) -> None:
        """Show the progress of the runs."""
        self._note = ""
        for folder in running:
            tail = self._tails[folder.path.name]
            tail.read()
            self._state[folder.path.name] = "training" if tail.is_moving else "starting"
            if self._live is None:
                self._print_measurement(folder.path.name, tail)
        if self._live is not None:
            self._draw()

    def ended(self, outcome: Outcome) -> None:
        """Show that a run ended."""
        tail = self._tails[outcome.name]
        tail.read()
        self._state[outcome.name] = "done" if outcome.error is None else "failed"
        if self._live is not None:
            self._draw()
        else:
            self._print_measurement(outcome.name, tail)
            self._print(f"{outcome.name}: {outcome.error or 'done'}")

    def _print_measurement(self, name: str, tail: Tail) -> None:
        """Print the last measurement, once, with the step that it was taken at."""
        if tail.evaluated == self._printed.get(name, -1):
            return
        self._printed[name] = tail.evaluated
        left = tail.eta(self._rollouts)
        self._print(
            f"{name}: step {tail.evaluated}/{self._steps}, {tail.evaluated_rollouts} rollouts, accuracy "
            f"{_share(tail.accuracy)}, effective groups {_share(tail.effective)}"
            + (f", {_clock(left)} left" if left else "")
        )

    def _print(self, text: str) -> None:
        self._console.print(text, markup=False)

    def _draw(self) -> None:
        table = Table(box=None, pad_edge=False, header_style="bold")
        table.add_column("run")
        table.add_column("state")
        for heading in ("step", "rollouts", "accuracy", "effective", "left"):
            table.add_column(heading, justify="right")
        for name, tail in self._tails.items():
            state = self._state[name]
            style = {"failed": "red", "done": "green", "waiting": "dim"}.get(state, "")
            eta = tail.eta(self._rollouts) if state == "training" else None
            table.add_row(
                Text(name),
                Text(state, style=style),
                f"{tail.step}/{self._steps}",
                f"{tail.rollouts:,}",
                _share(tail.accuracy),
                _share(tail.effective),
                _clock(eta),
            )
        assert self._live is not None
        parts: list[Any] = [table]
        if self._note:
            parts.append(Text(self._note, style="dim"))
        self._live.update(Group(*parts), refresh=True)


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _clock(seconds: float | None) -> str:
    return "-" if seconds is None else time.strftime("%H:%M:%S", time.gmtime(seconds)).removeprefix("00:")
