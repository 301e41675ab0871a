"""Training runs side by side, each in a process of its own, and how each ended."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from neyman._files.json import read_object
from neyman._jobs import Command, Processes, cores, how_it_ended, side_by_side
from neyman.config import Config
from neyman.errors import RunFailedError
from neyman.train._folder import RunFolder

# The command of every process, before its arguments.
WORKER = (sys.executable, "-m", "neyman.train")
_LARGEST_PROGRESS = 2**10  # bytes; it is two numbers
_LAST_BYTES = 2**16  # of a log, in which its last line is looked for


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The end of one run: its directory's name, the last line of its log where it failed, and the log."""

    name: str
    error: str | None
    log: Path


class Watch(Protocol):
    """An observer of the runs."""

    def preparing(self, done: int, steps: int) -> None:
        """Take in the progress of the starting policy."""
        ...

    def update(self, running: Sequence[RunFolder]) -> None:
        """Look at the files of the runs that are running; called several times a second."""
        ...

    def ended(self, outcome: Outcome) -> None:
        """Take in the end of a run, well or not."""
        ...


def train_all(config: Config, out: Path, *, jobs: int | None, watch: Watch) -> list[Outcome]:
    """Train every strategy with every seed that is not complete yet, in processes of their own.

    Args:
        config: the settings; ``out / "config.toml"`` holds the same.
        out: the training's directory.
        jobs: processes at once; None takes one per core for the tiny policy, else one.
        watch: is called on the way.

    Returns:
        How each run ended, in order.

    Raises:
        RunFailedError: the preparation that all runs share failed.

    Guarantee: when this returns or raises, no process that it started is left; should this process be killed,
    its children end by themselves.
    """
    runs = [(strategy, seed) for seed in config.seeds for strategy in config.arms]
    folders = [RunFolder(out / RunFolder.name(strategy, seed)) for strategy, seed in runs]
    waiting = [i for i, folder in enumerate(folders) if not folder.is_done]
    outcomes = {i: Outcome(name=f.path.name, error=None, log=f.log) for i, f in enumerate(folders)}
    # A tiny policy takes one core; a large one fills all of them, or a GPU.
    at_once = min(jobs or (cores() if config.model.is_tiny else 1), max(1, len(waiting)))
    threads = 1 if config.model.is_tiny else max(1, cores() // at_once)

    with Processes(threads=threads) as processes:

        def start(i: int) -> Command:
            strategy, seed = runs[i]
            return processes.command([*WORKER, "run", str(out), strategy, str(seed)], folders[i].log)

        if waiting and not (out / "policy").exists():
            _prepare(processes, out, watch)
        for running, ended in side_by_side(waiting, start, at_once=at_once):
            watch.update([folders[i] for i, _ in running])
            for i, process in ended:
                if process.exitcode or not folders[i].is_done:
                    outcomes[i] = replace(outcomes[i], error=_why(process.exitcode, folders[i].log))
                watch.ended(outcomes[i])
    return [outcomes[i] for i in range(len(runs))]


def _prepare(processes: Processes, out: Path, watch: Watch) -> None:
    log, state = out / "prepare.log", out / "prepare.json"
    words = [*WORKER, "prepare", str(out)]
    for _, ended in side_by_side([words], lambda words: processes.command(words, log), at_once=1):
        _report_preparation(state, watch)
        for _, process in ended:
            if process.exitcode:
                raise RunFailedError(f"{_why(process.exitcode, log)}\n(log: {log})")


def _report_preparation(state: Path, watch: Watch) -> None:
    try:
        progress = read_object(state, _LARGEST_PROGRESS)
    except (OSError, ValueError):  # not there yet, or damaged
        return
    if all(type(progress.get(name)) is int for name in ("done", "steps")):
        watch.preparing(progress["done"], progress["steps"])


def _why(code: int | None, log: Path) -> str:
    """Return why a process ended: the signal that killed it, else the last line of its log."""
    killed = code is not None and code < 0
    return how_it_ended(code) if killed else last_words(log) or how_it_ended(code)


def last_words(log: Path) -> str:
    """Return the last line of a log that is not blank."""
    if not log.exists():
        return ""
    with log.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - _LAST_BYTES))
        lines = file.read().decode("utf-8", errors="replace").splitlines()
    return next((line.strip() for line in reversed(lines) if line.strip()), "")
