"""Reward functions that fail: their results are missing, with the cause; one that never scores stops the run."""

from __future__ import annotations

import functools
import inspect
import math
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, final

import numpy as np
import torch

from neyman._checks import real
from neyman.controller import MissingReward, Status
from neyman.errors import ContractError, RunFailedError
from neyman.trl._host import warner
from neyman.trl._kept import KeptErrors
from neyman.trl._limit import LOGS, Columns, EscapeError, Limit, StuckError, message, shown
from neyman.trl._loops import outlive_exits

_PATIENCE = 8  # time limits that scoring row by row may take
LARGEST = 1e15  # sums of larger rewards, and the squares in their deviation, leave float32

Call = Callable[[Columns], Awaitable[Any]]


@final
class Guard:
    """Stands around a trainer's reward functions, and around the callable that judges success.

    A function that raises (SystemExit too), takes too long, or returns another number of values than it got
    completions is asked again row by row; a row that fails then, or whose value is no real number of at most 1e15 in
    size (a verdict: neither true, 1, nor false, 0), is missing, for all functions together: a sum over those that
    answered would be another reward. Where a function that has never scored anything fails on every row, the mistake
    is in it: its own error stops the run, as in TRL itself.

    Args:
        trainer: the trainer; its ``reward_funcs`` are replaced by guarded ones.
        seconds: the most that one call may take; None sets no limit.
        kept: takes the errors of reward functions, for the other processes.

    Raises:
        ArgumentError: a limit that is not above 0.

    Guarantee: with a limit a call takes about ten times as long at most: the call itself, eight limits row by row, and
    the last row's. That holds for functions that sleep, block or will not be cancelled, async ones too, and while a
    generator is read. It does not hold inside C code that keeps the interpreter's lock (a huge power, a regular
    expression that backtracks): nothing in the process can bound that, only `neyman.tasks.KillableVerifier`. Plain
    functions then run in a thread, so that alarms inside them do not work, async ones in an event loop of the guard's
    own; one that overruns is left behind, as no thread can be ended, and 64 of them stop the run. Without a limit an
    async function runs in TRL's event loop, which goes on after a task in it that calls ``exit()``. Reward models are
    left alone.

    Cost: where nothing fails, a check of each value.
    """

    def __init__(self, trainer: Any, seconds: float | None, kept: KeptErrors) -> None:
        self._warn, self._kept = warner(trainer), kept
        self._limit = Limit(
            None if seconds is None else real("reward_timeout", seconds, low=0.0, open_low=True)
        )
        self._faults: dict[int, MissingReward] = {}
        outlive_exits(trainer)  # with a limit, too: TRL's async tools stay in its loop
        trainer.reward_funcs = [
            function
            if isinstance(function, torch.nn.Module)
            else self.around(function, f"reward function {name!r}", keeps_errors=True)
            for function, name in zip(trainer.reward_funcs, trainer.reward_func_names, strict=True)
        ]

    def clear(self) -> None:
        """Forget the faults of earlier calls."""
        self._faults.clear()

    @property
    def faults(self) -> dict[int, MissingReward]:
        """The fault of each row since `clear`, by row; the first fault of a row is kept."""
        return dict(self._faults)

    def around(
        self, function: Callable[..., Any], name: str, values: str = "rewards", *, keeps_errors: bool = False
    ) -> Callable[..., Any]:
        """Return a function that does the same, with results that are missing where it fails.

        Args:
            function: plain or async.
            name: of the function, for messages.
            values: the name of its values, for messages: "rewards" or "verdicts".
            keeps_errors: whether TRL calls it, where an error on one process must wait for the others.
        """
        watched, is_async = _Watched(self, name, values), _is_async(function)

        async def call(given: Columns) -> Any:
            return await self._limit.wait(function, given) if is_async else self._limit.call(function, given)

        async def score(**columns: Any) -> list[Any]:
            try:
                if not keeps_errors or self._kept.is_empty:
                    return await watched.score(call, columns)
            except Exception as error:
                if not keeps_errors:
                    raise
                self._kept.keep_of_reward(error, name)
            return [None] * len(columns["prompts"])

        def score_at_once(**columns: Any) -> list[Any]:
            return _at_once(score(**columns))

        return functools.update_wrapper(score if is_async else score_at_once, function)

    @property
    def patience(self) -> float:
        """Seconds that scoring row by row may take."""
        return math.inf if self._limit.seconds is None else _PATIENCE * self._limit.seconds

    def take(self, faults: dict[int, MissingReward], rows: int, name: str, *, is_first: bool) -> None:
        """Note the faults of a call, and warn of the first of each function."""
        for row, fault in faults.items():
            self._faults.setdefault(row, fault)
        if faults and is_first:
            self._warn(
                f"{name} failed on {len(faults)} of {rows} completions (the first: {next(iter(faults.values())).why}); "
                "they count as missing results and are drawn again within the allowance. neyman/rollouts/failed and "
                "neyman/rollouts/timeout show them for every step"
            )


class _Watched:
    """The record of one function: whether it has ever scored, and ever failed."""

    def __init__(self, guard: Guard, name: str, values: str) -> None:
        self._guard, self._name, self._values = guard, name, values
        self._has_scored = self._has_failed = False

    async def score(self, call: Call, columns: Columns) -> list[Any]:
        """Return the function's values for these rows, NaN where it failed."""
        rows = len(columns["prompts"])
        error: Exception | None = None
        try:
            found = self._whole(await call(columns), rows)
        except StuckError:
            raise
        except ContractError as wrong:
            if not self._has_scored:
                raise
            error = wrong
        except Exception as raised:  # noqa: BLE001 - whatever a user's function raises is a missing result
            error = raised
        if error is not None:
            found = [_fault(error)] if rows == 1 else await self._one_by_one(call, columns, rows)
        values = [self._checked(value) for value in found]
        faults = {row: value for row, value in enumerate(values) if isinstance(value, MissingReward)}
        is_explained = error is None and any(isinstance(value, MissingReward) for value in found)
        if len(faults) == rows and not self._has_scored and not is_explained:
            self._give_up(error, faults)
        self._has_scored = True
        self._guard.take(faults, rows, self._name, is_first=not self._has_failed)
        self._has_failed |= bool(faults)
        return values

    def _whole(self, returned: Any, rows: int) -> list[Any]:
        """Return the values when there is one for each row."""
        try:
            values = list(returned)
        except TypeError:
            raise ContractError(
                f"{self._name} returned {shown(returned)}, not a list of {self._values}, one for each of {rows} "
                "completions"
            ) from None
        if len(values) != rows:
            raise ContractError(
                f"{self._name} returned {len(values)} {self._values} for {rows} completions; it must return one for "
                "each, None where it cannot judge"
            )
        return values

    async def _one_by_one(self, call: Call, columns: Columns, rows: int) -> list[Any]:
        """Score each row by itself; rows that the time does not reach are timeouts."""
        deadline, found = time.monotonic() + self._guard.patience, list[Any]()
        for row in range(rows):
            if time.monotonic() > deadline:
                why = f"not scored: rows before it took {self._guard.patience:g} s"
                found.append(MissingReward(why, Status.TIMEOUT))
                continue
            try:
                found += self._whole(await call(_only(columns, row, rows)), 1)
            except StuckError:
                raise
            except Exception as error:  # noqa: BLE001 - as above
                found.append(_fault(error))
        return found

    def _checked(self, value: Any) -> Any:
        """Return a value as a number that TRL can take, and add up; a fault where it is none, nor None."""
        if value is None or isinstance(value, MissingReward):
            return value
        try:
            # NumPy drops imaginary parts with a warning only.
            number = None if np.iscomplexobj(value) else float(value)
        except Exception:  # noqa: BLE001 - a user's object may do anything
            number = None
        if isinstance(value, str | bytes | bytearray | memoryview):  # some of which float() would read
            problem = "which is text and no number"
        elif number is None:
            problem = "which is no number"
        elif self._values == "verdicts" and not math.isnan(number) and number not in {0.0, 1.0}:
            problem = "which is no verdict (True or 1, False or 0, None where it cannot judge)"
        elif math.isinf(number):
            problem = "which is not finite"
        elif abs(number) > LARGEST:
            problem = f"beyond {LARGEST:g}, of which float32 keeps no sums and deviations"
        else:
            return number
        return MissingReward(f"it returned {shown(value)}, {problem}")

    def _give_up(self, error: Exception | None, faults: Mapping[int, MissingReward]) -> None:
        """Stop the run: the function has never scored anything, and fails on every row."""
        if error is not None and not isinstance(error, TimeoutError):
            raise error
        first = next(iter(faults.values())).why
        raise RunFailedError(
            f"{self._name} failed on all {len(faults)} completions of its first call (the first: {first}); it must "
            "return a finite number for each, None where it cannot judge"
        ) from error


def _fault(error: Exception) -> MissingReward:
    text = message(error)
    if isinstance(error, TimeoutError):
        return MissingReward(text or "it timed out", Status.TIMEOUT)
    if isinstance(error, EscapeError):
        return MissingReward(text)
    return MissingReward(f"{type(error).__name__}: {text}" if text else type(error).__name__)


def _only(columns: Columns, row: int, rows: int) -> dict[str, Any]:
    """Return the arguments of a reward function for one row; its logs then belong to no table."""
    given = {}
    for name, value in columns.items():
        is_column = isinstance(value, list) and len(value) == rows
        given[name] = (lambda *_, **__: None) if name in LOGS else [value[row]] if is_column else value
    return given


def _is_async(function: Any) -> bool:
    """Whether calling gives a coroutine; partials and objects are seen through."""
    while isinstance(function, functools.partial):
        function = function.func
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 - the method itself is asked
    )


def _at_once(coroutine: Coroutine[Any, Any, list[Any]]) -> list[Any]:
    """Run a coroutine that never waits, so that plain and async functions share one path."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        values: list[Any] = done.value
        return values
    raise AssertionError("a plain reward function was awaited")
