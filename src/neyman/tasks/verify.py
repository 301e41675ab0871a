"""Verifiers: exact match in this process, and any other judge in worker processes that can be killed.

Symbolic checkers hang on some model outputs. Alarms do not help (they work in the main thread only, and not inside C
code), and a thread cannot be ended. So such a judge runs in a process of its own: when it exceeds its time or memory,
or dies, its process is replaced, the verdict is None, and the case is counted.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import IO, Any, TypeAlias, final

from neyman import _checks
from neyman.errors import ArgumentError, RunFailedError, missing_extra
from neyman.step.messages import Status
from neyman.step.missing import MissingReward
from neyman.tasks import _judge
from neyman.tasks._task import Problem

Judge: TypeAlias = Callable[[str, str, dict[str, Any]], bool | None]

# Importing a symbolic checker takes a second, on a loaded machine many.
_START_SECONDS = 120.0
_GIBIBYTE = 1 << 30
# Not by -m: the package has imported the module before, which Python warns of, and warnings may be errors.
_START = f"from {_judge.__name__} import main; main()"


@final
class ExactMatch:
    r"""Exact match of texts, up to white space at the ends and its kind and amount inside.

    >>> ExactMatch().verify([" 4  2\n", "42"], ["4 2", "4 2"], [])
    [True, False]
    """

    def verify(
        self, completions: Sequence[str], answers: Sequence[str], problems: Sequence[Problem]
    ) -> list[bool | None]:
        """Compare each completion with its answer."""
        del problems
        return [given.split() == right.split() for given, right in zip(completions, answers, strict=True)]


# Not by `neyman._jobs`: a judge's process is killed by the clock, alone and with all that the judge started, while
# others judge; and a judge may return anything, so its reply is JSON and never a pickle.
class _Worker:
    """One judge process; at most one request is out at a time."""

    def __init__(self, command: list[str], environment: dict[str, str]) -> None:
        # Its output before it is ready explains a failed start; the judge's own output is discarded.
        self.noise = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as the worker
        # A session of its own: Ctrl-C in the terminal must reach the trainer, not tear verdicts down.
        self.process = subprocess.Popen(  # noqa: S603 - our own module under this interpreter, no shell
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.noise,
            env=environment,
            start_new_session=True,
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.stdin, self.output = self.process.stdin, self.process.stdout.fileno()
        self.buffer = b""
        self._end = weakref.finalize(self, _end, self.process, self.noise)

    def send(self, body: bytes) -> bool:
        """Send one request; False when the process is gone."""
        try:
            self.stdin.write(_judge.HEADER.pack(len(body)) + body)
            self.stdin.flush()
        except OSError:
            return False
        return True

    def receive(self) -> dict[str, Any] | None:
        """Read the reply that is waiting; None when the process is gone."""
        while b"\n" not in self.buffer:
            part = os.read(self.output, 4096)
            if not part:
                return None
            self.buffer += part
        line, _, self.buffer = self.buffer.partition(b"\n")
        reply: dict[str, Any] = json.loads(line)
        return reply

    def complaint(self) -> str:
        """Return the end of the standard error of a process that started."""
        self.noise.seek(0)
        return (
            self.noise.read().decode(errors="replace").strip()[-800:] or "it ended, or did not reply in time"
        )

    def kill(self) -> None:
        """End the process and its children now, and collect it."""
        self._end()


def _end(process: subprocess.Popen[bytes], noise: IO[bytes]) -> None:
    # It leads a session, so its group holds the judge's own children; its number is its own until it is collected.
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout, noise):
        # Bytes still buffered for a process that is gone cannot be written any more.
        with contextlib.suppress(OSError):
            if pipe is not None:
                pipe.close()


def _readable(workers: Iterable[_Worker], seconds: float) -> set[_Worker]:
    """Wait for the first reply, and return the workers that have one."""
    # Not select.select: a trainer with many files open has descriptors above 1,023, its limit.
    with selectors.DefaultSelector() as selector:
        for worker in workers:
            selector.register(worker.output, selectors.EVENT_READ, worker)
        return {key.data for key, _ in selector.select(seconds)}


def _judge_path(judge: Judge | str) -> str:
    """Return the ``module:name`` under which a worker process can import the judge."""
    if isinstance(judge, str):
        if judge.count(":") != 1 or not all(judge.split(":")):
            raise ArgumentError(f'judge must look like "package.module:function", got {judge!r}')
        return judge
    path = f"{getattr(judge, '__module__', None)}:{getattr(judge, '__qualname__', '')}"
    if path.startswith(("__main__:", "None:")) or "<" in path:
        raise ArgumentError(
            f"judge must be a function that another process can import, got {judge!r}; "
            'move it to the top level of a module, or pass "package.module:function"'
        )
    return path


class KillableVerifier:
    """Runs a judge in worker processes that are killed when they exceed their time.

    Args:
        judge: ``(completion, answer, metadata) -> bool | None``, importable from another process: a function
            at the top level of a module, or its path "package.module:function".
        timeout_seconds: wall-clock time for one verdict.
        memory_bytes: address space of one worker; a judge that needs more gets MemoryError (POSIX).
        workers: processes; each takes one completion at a time.
        preload: modules that a worker imports before its time counts.

    Attributes:
        counts: how many completions were "judged", and how many have no verdict because of "timeouts",
            "memory" (the judge met ``memory_bytes``), "deaths" (the worker ended by itself) and "errors" (the
            judge raised anything else, or returned neither True (1) nor False (0)).
        last_error: text of the latest error, None while there was none.

    Guarantee: `verify` takes at most about ``timeout_seconds * ceil(completions / workers)`` plus process
    starts, whatever the judge does. Workers end with the verifier, and with this process. Processes that a judge
    starts end with its worker, except where they open a session of their own, or this process is itself killed.
    """

    def __init__(
        self,
        judge: Judge | str,
        *,
        timeout_seconds: float = 5.0,
        memory_bytes: int = 2 * _GIBIBYTE,
        workers: int = 1,
        preload: Sequence[str] = (),
    ) -> None:
        self.timeout_seconds = _checks.real("timeout_seconds", timeout_seconds, low=0.0, open_low=True)
        limit = _checks.integer("memory_bytes", memory_bytes, low=_GIBIBYTE // 4)
        limits = (str(self.timeout_seconds), str(limit))
        self._command = [sys.executable, "-c", _START, _judge_path(judge), *limits, *preload]
        self._size = _checks.integer("workers", workers, low=1)
        self._workers: list[_Worker] = []
        self._lock = threading.Lock()
        self.counts = {"judged": 0, "timeouts": 0, "memory": 0, "deaths": 0, "errors": 0}
        self.last_error: str | None = None

    def verify(
        self, completions: Sequence[str], answers: Sequence[str], problems: Sequence[Problem]
    ) -> list[bool | None]:
        """Judge each completion; None where there is no verdict. Equal requests are judged once.

        Raises:
            RunFailedError: a worker cannot start, e.g. because the judge cannot be imported.
        """
        verdicts = self.explained(completions, answers, problems)
        return [None if isinstance(verdict, MissingReward) else verdict for verdict in verdicts]

    def explained(
        self, completions: Sequence[str], answers: Sequence[str], problems: Sequence[Problem]
    ) -> list[bool | MissingReward]:
        """Judge as `verify` does, with the reason where there is no verdict."""
        rows: dict[bytes, list[int]] = {}
        metadata = [item.metadata for item in problems] if problems else [{}] * len(completions)
        for index, request in enumerate(zip(completions, answers, metadata, strict=True)):
            rows.setdefault(json.dumps(request).encode(), []).append(index)
        verdicts: dict[int, bool | MissingReward] = {}
        with self._lock:
            for body, (verdict, kind) in self._judge_all(list(rows)).items():
                self.counts[kind] += len(rows[body])
                verdicts |= dict.fromkeys(rows[body], self._missing(kind) if verdict is None else verdict)
        return [verdicts[index] for index in range(len(completions))]

    def _missing(self, kind: str) -> MissingReward:
        if kind == "timeouts":
            return MissingReward(
                f"the verifier gave no verdict within {self.timeout_seconds:g} s", Status.TIMEOUT
            )
        return MissingReward(
            "a verifier process died" if kind == "deaths" else f"the verifier failed: {self.last_error}"
        )

    def _judge_all(self, bodies: Sequence[bytes]) -> dict[bytes, tuple[bool | None, str]]:
        """Keep every worker busy until each request has a verdict or a reason for having none."""
        waiting, done = deque(bodies), dict[bytes, tuple[bool | None, str]]()
        out: dict[_Worker, tuple[bytes, float]] = {}
        try:
            self._start(min(self._size, len(bodies)))
            while waiting or out:
                for worker in self._workers:
                    if waiting and worker not in out:
                        body = waiting.popleft()
                        # A failed send shows as end of file on the next read.
                        worker.send(body)
                        out[worker] = (body, time.monotonic() + self.timeout_seconds)
                self._collect(out, done)
                self._start(min(self._size, len(waiting) + len(out)))
        finally:
            # After an interrupt, a late reply must not be taken for the next request's.
            for worker in out:
                self._drop(worker)
        return done

    def _collect(
        self, out: dict[_Worker, tuple[bytes, float]], done: dict[bytes, tuple[bool | None, str]]
    ) -> None:
        """Wait for the next reply or deadline, and move the decided requests from ``out`` to ``done``."""
        wait = min(deadline for _, deadline in out.values()) - time.monotonic()
        readable = _readable(out, max(0.0, wait))
        for worker, (body, deadline) in list(out.items()):
            if worker in readable:
                done[body] = self._outcome(worker)
            elif time.monotonic() >= deadline:
                done[body] = (None, "timeouts")
            else:
                continue
            del out[worker]
            if done[body][1] in {"timeouts", "memory", "deaths"}:
                self._drop(worker)

    def _drop(self, worker: _Worker) -> None:
        self._workers.remove(worker)
        worker.kill()

    def _outcome(self, worker: _Worker) -> tuple[bool | None, str]:
        reply = worker.receive()
        if reply is None:
            return None, "deaths"
        if "error" in reply or reply["verdict"] is None:
            self.last_error = reply.get("error", "the judge returned None")
            return None, "memory" if reply.get("memory") else "errors"
        return reply["verdict"], "judged"

    def _start(self, size: int) -> None:
        """Bring the number of workers up to ``size``; all start at the same time."""
        paths = os.pathsep.join(path or os.curdir for path in sys.path)
        environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
        fresh = [_Worker(self._command, environment) for _ in range(size - len(self._workers))]
        for worker in fresh:
            reply = worker.receive() if _readable([worker], _START_SECONDS) else None
            if reply is None or "fatal" in reply:
                why = (reply or {}).get("fatal") or worker.complaint()
                for one in fresh:
                    one.kill()
                    if one in self._workers:
                        self._workers.remove(one)
                raise RunFailedError(
                    f"a verifier process for {self._command[3]} did not start: {why}; "
                    "check that the judge can be imported by a fresh interpreter and that memory_bytes suffices"
                )
            self._workers.append(worker)

    def close(self) -> None:
        """End the worker processes; they start again when needed."""
        with self._lock:
            while self._workers:
                self._workers.pop().kill()

    def __enter__(self) -> KillableVerifier:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@functools.lru_cache(maxsize=4096)
def _parse_answer(answer: str) -> Any:
    """Parse a reference answer as mathematics, also where it comes without dollar signs."""
    from math_verify import parse  # noqa: PLC0415 - an extra; runs in the worker only

    bare = "$" not in answer and "\\boxed" not in answer
    parsed = parse(f"${answer}$" if bare else answer, parsing_timeout=None)
    if not parsed:
        raise ValueError(f"the reference answer {answer!r:.100} is not mathematics")
    return parsed


def judge_math(completion: str, answer: str, metadata: dict[str, Any]) -> bool:
    r"""Decide with math-verify whether a completion's final answer equals the reference.

    The last boxed or LaTeX expression or number of the completion counts; the answer may come without dollar signs.
    Its own timeouts are off (they use alarms): call it through `MathVerify`, which bounds it from outside.

    Raises:
        ValueError: the reference cannot be parsed; no completion could be right.

    >>> judge_math(r"So it is $\frac{2}{4}$.", "0.5", {})
    True
    """
    del metadata
    from math_verify import parse, verify  # noqa: PLC0415 - an extra; runs in the worker only

    gold = _parse_answer(answer)
    try:
        given = parse(completion, parsing_timeout=None, raise_on_error=True)
        return bool(verify(gold, given, timeout_seconds=None, raise_on_error=True))
    except (MemoryError, RecursionError):
        # Not a wrong answer but one that could not be checked within the limits.
        raise
    except Exception:  # noqa: BLE001 - an answer that cannot be read as mathematics is wrong
        return False


class MathVerify(KillableVerifier):
    """math-verify in workers of `KillableVerifier`: equality of the final answer as mathematics.

    Raises:
        MissingExtraError: math-verify is not installed.

    Guarantee: a completion that hangs the checker is never scored 0. A MemoryError which math-verify itself
    swallows is scored as wrong; only those that reach us are reported as "memory".
    """

    def __init__(
        self, *, timeout_seconds: float = 5.0, memory_bytes: int = 2 * _GIBIBYTE, workers: int = 1
    ) -> None:
        if importlib.util.find_spec("math_verify") is None:
            raise missing_extra("math-verify", "train", "MathVerify")
        super().__init__(
            judge_math,
            timeout_seconds=timeout_seconds,
            memory_bytes=memory_bytes,
            workers=workers,
            preload=["math_verify"],
        )
