"""Several training runs side by side, each in a process of its own, and what became of them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol, final

from neyman._files.json import loads
from neyman._files.limits import read_bytes
from neyman.config import Config
from neyman.errors import RunFailedError
from neyman.train._folder import RunFolder

# What is started for each piece of work, with its arguments behind.
WORKER = (sys.executable, "-m", "neyman.train")
_LARGEST_PROGRESS = 2**10  # bytes; it is two numbers
_LAST_BYTES = 2**16  # of a log, in which its last words are looked for
_POLL_SECONDS = 0.2
_END_SECONDS = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How one run ended.

    Attributes:
        name: the run's directory.
        error: the last line that it said, when it failed.
        log: everything that it said.
    """

    name: str
    error: str | None
    log: Path


class Watch(Protocol):
    """Is told how the runs go."""

    def preparing(self, done: int, steps: int) -> None:
        """The starting policy is being made."""
        ...

    def update(self, running: Sequence[RunFolder]) -> None:
        """Called several times a second; the runs' own files say where they stand."""
        ...

    def ended(self, outcome: Outcome) -> None:
        """A run ended, well or not."""
        ...


def train_all(config: Config, out: Path, *, jobs: int | None, watch: Watch) -> list[Outcome]:
    """Train every strategy with every seed that is not complete yet, in processes of their own.

    Args:
        config: the settings; ``out / "config.toml"`` holds the same.
        out: the training's directory.
        jobs: processes at once; None takes one per core for the tiny policy, else one.
        watch: is told how it goes.

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
    cores = _cores()
    at_once = min(jobs or (cores if config.model.is_tiny else 1), max(1, len(waiting)))
    threads = 1 if config.model.is_tiny else max(1, cores // at_once)
    with _Processes(threads) as processes:
        if waiting and not (out / "policy").exists():
            _prepare(processes, out, watch)
        running: dict[int, subprocess.Popen[bytes]] = {}
        while waiting or running:
            while waiting and len(running) < at_once:
                i = waiting.pop(0)
                strategy, seed = runs[i]
                running[i] = processes.start(["run", str(out), strategy, str(seed)], folders[i].log)
            time.sleep(_POLL_SECONDS)
            watch.update([folders[i] for i in running])
            for i in [i for i, process in running.items() if process.poll() is not None]:
                code = running.pop(i).returncode
                if code or not folders[i].is_done:
                    error = _why(code, folders[i].log)
                    outcomes[i] = Outcome(name=folders[i].path.name, error=error, log=folders[i].log)
                watch.ended(outcomes[i])
    return [outcomes[i] for i in range(len(runs))]


def _prepare(processes: _Processes, out: Path, watch: Watch) -> None:
    log, state = out / "prepare.log", out / "prepare.json"
    process = processes.start(["prepare", str(out)], log)
    while process.poll() is None:
        time.sleep(_POLL_SECONDS)
        try:
            told = loads(read_bytes(state, _LARGEST_PROGRESS))
        except (OSError, ValueError):
            continue
        if isinstance(told, dict) and all(type(told.get(name)) is int for name in ("done", "steps")):
            watch.preparing(told["done"], told["steps"])
    if process.returncode:
        raise RunFailedError(f"{last_words(log) or 'the preparation ended without a word'}\n(log: {log})")


def _why(code: int, log: Path) -> str:
    """Say why a process ended: the signal that killed it, else its last words."""
    if code < 0:
        return f"killed by signal {-code} ({signal.strsignal(-code)}), not by an error of its own"
    return last_words(log) or f"ended with status {code}"


def last_words(log: Path) -> str:
    """Return the last line of a log that says something."""
    if not log.exists():
        return ""
    with log.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - _LAST_BYTES))
        lines = file.read().decode("utf-8", errors="replace").splitlines()
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@final
class _Processes:
    """Processes that are ended, by their ids, when the block is left."""

    def __init__(self, threads: int) -> None:
        self._started: list[tuple[subprocess.Popen[bytes], IO[bytes]]] = []
        self._environment = {
            "OMP_NUM_THREADS": str(threads),
            "OPENBLAS_NUM_THREADS": str(threads),
            "TOKENIZERS_PARALLELISM": "false",
            # Some task generators depend on the order of sets.
            "PYTHONHASHSEED": "0",
            **os.environ,
            "PYTHONUNBUFFERED": "1",
        }

    def __enter__(self) -> _Processes:
        return self

    def start(self, arguments: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
        """Start one; it ends when its standard input does, so when this process dies."""
        log.parent.mkdir(parents=True, exist_ok=True)
        file = log.open("ab")
        process = subprocess.Popen(  # noqa: S603 - our own module under this interpreter, no shell
            [*WORKER, *arguments],
            stdin=subprocess.PIPE,
            stdout=file,
            stderr=file,
            env=self._environment,
            # Ctrl-C in the terminal reaches this process, which ends the others in order.
            start_new_session=True,
        )
        self._started.append((process, file))
        return process

    def __exit__(self, *_: object) -> None:
        alive = [process for process, _ in self._started if process.poll() is None]
        for process in alive:
            process.terminate()
        deadline = time.monotonic() + _END_SECONDS
        for process in alive:
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for process, file in self._started:
            if process.stdin is not None:
                process.stdin.close()
            file.close()
