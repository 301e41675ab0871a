"""Consoles, one bar over all runs, and checks of flags, for all commands."""

from __future__ import annotations

from pathlib import Path
from typing import Any, final

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from neyman.errors import ArgumentError

_WIDTH = 160  # characters of a table in a file or pipe


def new_console() -> Console:
    """Return a console for text as it stands."""
    return Console(highlight=False, soft_wrap=True)


def table_console(console: Console) -> Console:
    """Return a console whose tables are whole where the output is not a terminal."""
    return console if console.is_terminal else Console(highlight=False, soft_wrap=True, width=_WIDTH)


def split_names(text: str) -> list[str]:
    """Return the words between commas.

    >>> split_names("vip, sara,")
    ['vip', 'sara']
    """
    return [word.strip() for word in text.split(",") if word.strip()]


def picked(command: object, *names: str) -> dict[str, Any]:
    """Return some flags of a command by name."""
    return {name: getattr(command, name) for name in names}


def check_jobs(jobs: int | None) -> None:
    """Refuse a number of processes below 1."""
    if jobs is not None and jobs < 1:
        raise ArgumentError(f"--jobs must be >= 1, got {jobs}")


def check_out(out: Path) -> None:
    """Refuse a file where a directory is written."""
    if out.exists() and not out.is_dir():
        raise ArgumentError(f"--out must be a directory, but {out} is a file")


@final
class Bar:
    """One bar over all runs of a command, on a terminal.

    Args:
        console: where to show it.
        lines: write a line for every twentieth of the runs where the console is no terminal.
    """

    def __init__(self, console: Console, *, lines: bool = False) -> None:
        self._console, self._has_lines, self._last = console, lines and not console.is_terminal, -1
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f} %"),
            TimeRemainingColumn(),
            console=console,
            disable=not console.is_terminal,
            transient=True,
        )
        self._task = self._bar.add_task("", total=1.0)

    def __enter__(self) -> Bar:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def update(self, done: int, total: int, doing: str, *, share: float | None = None) -> None:
        """Show how many runs are done; ``share`` counts parts of others too."""
        text = f"{done} of {total} runs {doing}"
        self._bar.update(self._task, completed=done / total if share is None else share, description=text)
        twentieth = done * 20 // total
        if self._has_lines and (done == total or twentieth != self._last):
            self._last = twentieth
            self._console.print(text, markup=False)
