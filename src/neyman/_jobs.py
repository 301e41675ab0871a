"""Jobs side by side in processes: a few at once, each named where it fails, none left running."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import subprocess
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar, final

from neyman.errors import NeymanError, RunFailedError

_TICK_SECONDS = 0.1
_END_SECONDS = 5.0


Job = TypeVar("Job")
Process = TypeVar("Process", "Command", "Call")


def cores() -> int:
    """Return the processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def side_by_side(
    jobs: Sequence[Job], start: Callable[[Job], Process], *, at_once: int
) -> Iterator[tuple[list[tuple[Job, Process]], list[tuple[Job, Process]]]]:
    """Run jobs in their order, a limited number at once.

    Args:
        jobs: the jobs.
        start: starts one and returns at once.
        at_once: the most that run at the same time, at least 1.

    Yields:
        Ten times a second, the jobs that are running and those that ended since, each with its process.
    """
    waiting, running = deque(jobs), list[tuple[Job, Process]]()
    while waiting or running:
        while waiting and len(running) < at_once:
            job = waiting.popleft()
            running.append((job, start(job)))
        time.sleep(_TICK_SECONDS)
        ended = [pair for pair in running if pair[1].is_over]
        running = [pair for pair in running if not any(pair is one for one in ended)]
        yield running, ended


@final
class Processes:
    """The processes of one command; leaving the block ends those that still run, gently first.

    Args:
        threads: of each process, unless the user's environment sets a number.
        shared: the first arguments of everything that `call` calls, sent to each process once.

    Guarantee: no process outlives the block, nor this process, however it ends.
    """

    def __init__(self, *, threads: int = 1, shared: tuple[Any, ...] = ()) -> None:
        self._shared = shared
        self._started: list[Command | SpawnProcess] = []
        self._workers: list[_Worker] = []
        # Commands hold one end as their standard input: the end of this process closes the other.
        self._pipe = os.pipe()
        self._environment = {
            # Two threads are slower than one on small matrices, most of all where processes share cores.
            **dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), str(threads)),
            "TOKENIZERS_PARALLELISM": "false",
            "PYTHONHASHSEED": "0",  # some generators of tasks depend on the order of sets
            "PYTHONUNBUFFERED": "1",  # a killed process leaves its log complete
        }

    def __enter__(self) -> Processes:
        return self

    def command(self, words: Sequence[str], log: Path) -> Command:
        """Start a command that calls `end_with_parent`; its output is appended to the log."""
        with _added_to_environment(self._environment):
            self._started.append(command := Command(words, log, self._pipe[0]))
        return command

    def call(self, function: Callable[..., Any], job: Any) -> Call:
        """Start ``function(*shared, job, progress)`` in a process that is free, else in a new one.

        Args:
            function: at the top level of a module; ``progress`` takes the share that is done, in [0, 1].
            job: its argument, which must be picklable.
        """
        worker = next((one for one in self._workers if one.is_free), None) or self._new_worker()
        return Call(worker, function, job)

    def _new_worker(self) -> _Worker:
        # Spawned, as a fork would copy the locks of this process's threads.
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=_serve, args=(theirs, self._shared), daemon=True)
        with _added_to_environment(self._environment):
            process.start()
        theirs.close()  # so that the end of the process is the end of the connection
        self._started.append(process)
        self._workers.append(_Worker(process, ours))
        return self._workers[-1]

    def __exit__(self, *_: object) -> None:
        for process in self._started:
            process.terminate()
        deadline = time.monotonic() + _END_SECONDS
        for process in self._started:
            process.join(max(0.0, deadline - time.monotonic()))
            if process.exitcode is None:
                process.kill()
                process.join()
        for worker in self._workers:
            worker.connection.close()
        for end in self._pipe:
            os.close(end)


@final
class Command:
    """A command in a process of its own, with the methods of ``multiprocessing.Process``."""

    def __init__(self, words: Sequence[str], log: Path, stdin: int) -> None:
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as file:
            # A session of its own: Ctrl-C in the terminal reaches the parent alone, which ends the others in order.
            self._process = subprocess.Popen(  # noqa: S603 - our own module under this interpreter, no shell
                words, stdin=stdin, stdout=file, stderr=file, start_new_session=True
            )
        self.terminate, self.kill = self._process.terminate, self._process.kill

    @property
    def exitcode(self) -> int | None:
        """The status it ended with, minus the signal's number where one killed it; None while it runs."""
        return self._process.poll()

    @property
    def is_over(self) -> bool:
        """Whether it has ended."""
        return self.exitcode is not None

    def join(self, seconds: float | None = None) -> None:
        """Wait for its end."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)


@final
class _Worker:
    """A process that does calls, one after another."""

    def __init__(self, process: SpawnProcess, connection: Connection) -> None:
        self.process, self.connection, self.is_free = process, connection, True


@final
class Call:
    """A function's call in another process.

    Attributes:
        share: the share that is done, as last reported.
        value: of the function, once the call is over.
        error: raised by the function, or None; errors of other kinds than neyman's, and the end of the
            process, become a `RunFailedError`.
    """

    def __init__(self, worker: _Worker, function: Callable[..., Any], job: Any) -> None:
        self.share = 0.0
        self.value: Any = None
        self.error: NeymanError | None = None
        worker.is_free = False
        self._worker: _Worker | None = worker
        with suppress(OSError):  # the process has ended, which `is_over` finds
            worker.connection.send((function, job))

    @property
    def is_over(self) -> bool:
        """Whether the function has returned or failed."""
        while (worker := self._worker) is not None:
            try:
                if not worker.connection.poll():
                    return False
                message = worker.connection.recv()
            except (EOFError, OSError):
                worker.process.join()
                self.error, self._worker = RunFailedError(how_it_ended(worker.process.exitcode)), None
            else:
                if isinstance(message, float):
                    self.share = message
                else:
                    self.value, self.error = message
                    worker.is_free, self._worker = True, None
        return True


def _serve(connection: Connection, shared: tuple[Any, ...]) -> None:
    """Do the calls that come through the connection, until the parent ends this process."""
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # Ctrl-C reaches the parent, which ends this process in order
    end_with_parent()
    with quiet(), suppress(EOFError, OSError):  # the parent is gone, and this process about to end with it
        while True:
            function, job = connection.recv()
            value, error = None, None
            try:
                value = function(*shared, job, throttled(connection.send))
            except NeymanError as cause:
                error = cause
            except Exception as cause:  # noqa: BLE001 - the boundary to the parent, which reports it
                error = RunFailedError(f"{type(cause).__name__}: {cause}")
                error.add_note(traceback.format_exc())
            connection.send((value, error))


def throttled(report: Callable[[float], None]) -> Callable[[float], None]:
    """Return a function that passes a share on ten times a second at the most."""
    due = 0.0

    def progress(share: float) -> None:
        nonlocal due
        if time.monotonic() >= due:
            due = time.monotonic() + _TICK_SECONDS
            report(float(share))

    return progress


@contextmanager
def quiet() -> Iterator[None]:
    """Keep warnings that advise the user of one run off the log, where dozens of runs would repeat them."""
    logger = logging.getLogger("neyman")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)


def end_with_parent() -> None:
    """End this process at once when the one that started it ends, whatever both are doing."""
    parent = multiprocessing.parent_process()

    def follow() -> None:
        if parent is not None:
            parent.join()
        else:  # a `Command`, whose standard input the parent holds
            while os.read(0, 1):
                pass
        os._exit(1)

    threading.Thread(target=follow, daemon=True, name="neyman-parent").start()


def how_it_ended(code: int | None) -> str:
    """Describe the end of a process from its exit code.

    >>> how_it_ended(3), how_it_ended(-9)
    ('its process ended with status 3', 'killed by signal 9 (Killed), not by an error of its own')
    """
    if code is not None and code < 0:
        return f"killed by signal {-code} ({signal.strsignal(-code)}), not by an error of its own"
    return f"its process ended with status {code}"


@contextmanager
def interruptible() -> Iterator[None]:
    """Turn SIGINT and SIGTERM into KeyboardInterrupt within the block, and put their handlers back.

    SIGINT too: a shell that starts a command in the background makes it ignore Ctrl-C's signal.
    """
    before = {number: signal.signal(number, _interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _interrupt(number: int, frame: FrameType | None) -> None:
    del number, frame
    raise KeyboardInterrupt


@contextmanager
def _added_to_environment(values: dict[str, str]) -> Iterator[None]:
    """Set variables for the processes started inside, where the user has not set them."""
    added = [name for name in values if name not in os.environ]
    os.environ.update({name: values[name] for name in added})
    try:
        yield
    finally:
        for name in added:
            del os.environ[name]
