"""One start of the training process: to its end, or to the moment at which it is killed."""

from __future__ import annotations

import contextlib
import math
import os
import select
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from neyman._files.checkpoints import STATE_FILE, UNFINISHED

TRAINEE = Path(__file__).with_name("trainee.py")


@dataclass(frozen=True)
class Moment:
    """When to kill: so many messages of a phase are let pass, then so many seconds; 0 is at the message itself."""

    phase: str
    passed: int
    seconds: float


@dataclass
class Attempt:
    """How one start ended.

    Args:
        started_from: the checkpoint that it went on from.
        killed_in: the phase of the kill; None where the process came to its end.
        detail: what it had said last.
        left_unfinished: whether the kill left a checkpoint unfinished.
        lasted: the phases' messages with the seconds until the next.
        wrong: what should not have been.
    """

    started_from: str = "nothing"
    killed_in: str | None = None
    detail: str = ""
    left_unfinished: bool = False
    lasted: list[tuple[str, float]] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)


def attempt(strategy: str, out: Path, policies: Path, moment: Moment | None, *, warm: bool) -> Attempt:
    """Start the training and follow it to its end or kill it at a moment."""
    out.mkdir(parents=True, exist_ok=True)
    expected = newest_whole(out)
    with Process(strategy, out, policies, warm=warm) as process:
        ended = _follow(process, moment)
        status = process.end()
    if ended.killed_in is not None and status != -signal.SIGKILL:  # it was faster than the signal
        ended.killed_in = None
    if ended.killed_in is None and status:
        log = (out / "log.txt").read_text(errors="replace").splitlines()
        ended.wrong.append(f"the process ended with status {status}: {' | '.join(log[-3:])}")
    if ended.started_from != expected and ended.killed_in != "start":
        ended.wrong.append(f"it went on from {ended.started_from}, but {expected} was whole")
    folders = list(out.glob("checkpoint-*"))
    ended.left_unfinished = any((path / UNFINISHED).exists() or not any(path.iterdir()) for path in folders)
    return ended


def newest_whole(out: Path) -> str:
    """Return the checkpoint that a resume must take, by the file that is written last."""
    found = [path.parent.name for path in out.glob(f"checkpoint-*/{STATE_FILE}")]
    return max(found, key=lambda name: int(name.removeprefix("checkpoint-")), default="nothing")


def _follow(process: Process, moment: Moment | None) -> Attempt:
    ended, passed = Attempt(), 0
    last, since = "start", time.monotonic()
    for message in process.messages():
        now = time.monotonic()
        if message is None:  # the time has come
            break
        ended.lasted.append((last, now - since))
        (last, ended.detail), since = message, now
        if last == "start":
            ended.started_from = ended.detail
        if moment is not None and last == moment.phase:
            if passed == moment.passed and not moment.seconds:
                break
            if passed == moment.passed:
                process.deadline = now + moment.seconds
            passed += 1
        process.answer()
    else:
        return ended
    process.kill()
    ended.killed_in = last
    return ended


class Process:
    """A training process and the two pipes to it.

    Attributes:
        deadline: the time at which `messages` stops waiting.
    """

    def __init__(self, strategy: str, out: Path, policies: Path, *, warm: bool) -> None:
        self._hear, speak = os.pipe()
        hear, self._speak = os.pipe()
        self._log = (out / "log.txt").open("ab")
        start = _fork if warm else _spawn
        self.pid = start(strategy, out, policies, speak, hear, self._log.fileno(), (self._hear, self._speak))
        os.close(speak)
        os.close(hear)
        self._status: int | None = None
        self.deadline = math.inf

    def __enter__(self) -> Process:
        return self

    def messages(self) -> Iterator[tuple[str, str] | None]:
        """Yield (phase, detail) until the process ends; None once the deadline has passed."""
        rest = b""
        while True:
            left = max(0.0, self.deadline - time.monotonic())
            ready, _, _ = select.select([self._hear], [], [], None if math.isinf(left) else left)
            if not ready:
                yield None
                return
            content = os.read(self._hear, 65536)
            if not content:
                return
            *lines, rest = (rest + content).split(b"\n")
            for line in lines:
                phase, _, detail = line.decode(errors="replace").partition("\t")
                yield phase, detail

    def answer(self) -> None:
        """Let the process go on."""
        with contextlib.suppress(BrokenPipeError):  # it has just ended
            os.write(self._speak, b".")

    def kill(self) -> None:
        """Kill -9."""
        os.kill(self.pid, signal.SIGKILL)

    def end(self) -> int:
        """Wait until the process is gone, and return its status; below 0 the signal that killed it."""
        if self._status is None:
            self._status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self._status

    def __exit__(self, *_: object) -> None:
        if self._status is None:
            self.kill()
            self.end()
        for descriptor in (self._hear, self._speak):
            os.close(descriptor)
        self._log.close()


def _spawn(strategy, out, policies, speak, hear, log, ours) -> int:
    """Start a fresh interpreter, as a restart after a crash does."""
    words = [sys.executable, str(TRAINEE), strategy, str(out), str(policies), str(speak), str(hear)]
    process = subprocess.Popen(words, pass_fds=(speak, hear), stdout=log, stderr=log, start_new_session=True)
    process.returncode = 0  # it is waited for by its id
    return process.pid


def _fork(strategy, out, policies, speak, hear, log, ours) -> int:
    """Fork from this process, which saves the imports; nothing has been computed in it."""
    import trainee

    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        for descriptor in ours:
            os.close(descriptor)
        os.dup2(log, 1)
        os.dup2(log, 2)
        trainee.train(strategy, out, policies, speak, hear)
        status = 0
    except BaseException:  # noqa: BLE001 - whatever it is, the forked process must not return
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
