"""Calls of a user's functions, within a time limit, from which every error is an ordinary one."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
import weakref
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, final

import torch

from neyman.errors import RunFailedError
from neyman.trl._loops import Loop

LOGS = ("log_extra", "log_metric")
_MOST_STUCK = 64  # calls left behind that still run: threads cannot be ended
_GRACE = 0.1  # seconds that an async function may take to end once it is cancelled

Columns = Mapping[str, Any]
Function = Callable[..., Any]
Kept: TypeAlias = concurrent.futures.Future[tuple[Any, BaseException | None]]


class StuckError(RunFailedError):
    """Too many calls hang: the one fault that is no missing result."""


class EscapeError(RunFailedError):
    """A function raised an error that ends a program, a thread or an event loop, such as ``exit()``'s SystemExit."""


def shown(value: Any) -> str:
    """Return a value's repr, cut short; its type where it has none."""
    try:
        return f"{value!r:.80}"
    except Exception:  # noqa: BLE001 - a user's object may do anything
        return f"a {type(value).__name__} that cannot be shown"


def message(error: BaseException) -> str:
    """Return an error's message, which may be empty."""
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - as above
        return "its message cannot be shown"


@final
class Limit:
    """Calls functions, each for so long.

    Args:
        seconds: the most that one call may take; None sets no limit.

    Guarantee: every error that a function raises comes out as an `Exception`, but for the KeyboardInterrupt of plain
    functions, and the GeneratorExit of async ones. With a limit a call returns in time unless the function keeps the
    interpreter's lock (inside C code): other threads stand still then too.
    """

    def __init__(self, seconds: float | None) -> None:
        self.seconds = seconds
        self._stuck: list[threading.Thread] = []
        self._loop: Loop | None = None

    def call(self, function: Function, columns: Columns) -> Any:
        """Call a plain function: here, or in a thread where its time is limited.

        Raises:
            TimeoutError: no answer in time.
            StuckError: too many earlier calls still run.
        """
        if self.seconds is None:
            return _called(function, columns)
        self._check_stuck()
        done = Kept()
        given, wanted = _logging_while_wanted(columns)
        thread = threading.Thread(target=_keep, args=(done, function, given), daemon=True)
        thread.start()
        concurrent.futures.wait([done], self.seconds)
        if not done.done():
            wanted.clear()
            self._stuck.append(thread)
            raise self._late()
        return _result(done)

    async def wait(self, function: Function, columns: Columns) -> Any:
        """Call an async function: in the event loop that runs, or in one that can be left behind.

        That loop is the same from call to call, for the clients that a function keeps; only after a call that blocked
        it, or that would not be cancelled, is there a new one.

        Raises:
            TimeoutError: no answer in time.
            StuckError: too many earlier calls still run.
        """
        if self.seconds is None:
            return await _awaited(function, columns)
        self._check_stuck()
        if self._loop is None:
            self._loop = Loop()
            weakref.finalize(self, self._loop.end)
        home, done = self._loop, Kept()
        given, wanted = _logging_while_wanted(columns)
        running = asyncio.run_coroutine_threadsafe(_keep_awaited(done, function, given), home.loop)
        answer = asyncio.wrap_future(done)
        await asyncio.wait({answer}, timeout=self.seconds)
        if answer.done():
            return _result(done)
        wanted.clear()
        running.cancel()
        await asyncio.wait({answer}, timeout=_GRACE)
        if not answer.done() and self._loop is home:
            self._loop = None
            home.end()
            self._stuck.append(home.thread)
        raise self._late()

    def _late(self) -> TimeoutError:
        return TimeoutError(f"no answer within {self.seconds:g} s")

    def _check_stuck(self) -> None:
        self._stuck = [thread for thread in self._stuck if thread.is_alive()]
        if len(self._stuck) >= _MOST_STUCK:
            raise StuckError(
                f"{_MOST_STUCK} calls of reward functions hang and cannot be ended: verify in processes that can be "
                "killed (neyman.tasks.KillableVerifier with neyman.tasks.reward_function)"
            )


def _keep(done: Kept, function: Function, columns: Columns) -> None:
    """Keep the result of a function, or its error, for the thread that waits."""
    try:
        done.set_result((_called(function, columns), None))
    except BaseException as error:  # noqa: BLE001 - raised again by whoever waits
        done.set_result((None, error))


async def _keep_awaited(done: Kept, function: Function, columns: Columns) -> None:
    try:
        done.set_result((await _awaited(function, columns), None))
    except BaseException as error:  # noqa: BLE001 - as above
        done.set_result((None, error))


def _result(done: Kept) -> Any:
    value, error = done.result()
    if error is not None:
        raise error
    return value


def _called(function: Function, columns: Columns) -> Any:
    try:
        return _listed(function(**columns))
    except (Exception, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise _escaped(error) from error


async def _awaited(function: Function, columns: Columns) -> Any:
    try:
        return _listed(await function(**columns))
    except (Exception, GeneratorExit):  # the latter closes this coroutine
        raise
    except BaseException as error:
        task = asyncio.current_task()
        if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
            raise
        # Ctrl-C reaches the main thread only, so that a KeyboardInterrupt too is the function's own.
        raise _escaped(error) from error


def _escaped(error: BaseException) -> EscapeError:
    text = message(error)
    return EscapeError(f"{type(error).__name__}{text and ': '}{text}, which a reward function must not raise")


def _listed(returned: Any) -> Any:
    """Read an iterator within the time of the call: a generator does its work only then."""
    if isinstance(returned, torch.Tensor):
        return returned.tolist()
    try:
        rows = iter(returned)
    except TypeError:
        return returned
    return list(rows)


def _logging_while_wanted(columns: Columns) -> tuple[dict[str, Any], threading.Event]:
    """Return columns whose logs fall silent once the event beside them is cleared: a late call belongs to no table."""
    wanted = threading.Event()
    wanted.set()

    def guarded(log: Function) -> Function:
        return lambda *values, **named: log(*values, **named) if wanted.is_set() else None

    return {name: guarded(value) if name in LOGS else value for name, value in columns.items()}, wanted
