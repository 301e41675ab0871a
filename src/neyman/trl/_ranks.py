"""Processes that fail together: all get the result of each, or all stop with one message."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar, final

import torch.distributed as dist
from accelerate.utils import gather_object

from neyman.errors import NeymanError, RunFailedError

Part = TypeVar("Part")
_Failure = tuple[type[NeymanError], str, str]  # the class to raise, the work, the message


@final
class Ranks:
    """The processes of one training.

    Errors that one process meets alone are of two kinds. Where the adapter knows of them before the next collective
    (reading prompts, generating, reward functions, ``success``, checkpoint files), they travel with a collective that
    is made anyway. Everywhere else the process leaves its cause in the process group's store and ends; the others
    lose it, look there, and raise the same.

    Guarantee: the first kind is raised by all processes in the same step, whatever the backend, and leaves their
    collectives in line. The second kind is noticed at once by gloo when the process ends, else after the process
    group's timeout (30 minutes; ``ddp_timeout`` changes it, on CPUs ``init_process_group``). Its text survives where
    the store does: torchrun's agent holds it, otherwise process 0.
    """

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer
        self._trainings = 0

    @property
    def world(self) -> int:
        """Number of processes."""
        return int(self._trainer.accelerator.num_processes)

    @property
    def index(self) -> int:
        """Which of them this is."""
        return int(self._trainer.accelerator.process_index)

    def share(self, rows: Any) -> Any:
        """Return this process's part of all processes' rows, which divide evenly."""
        size = len(rows) // self.world
        return rows[self.index * size : (self.index + 1) * size]

    def exchange(self, doing: str, make: Callable[[], Sequence[Part] | None]) -> list[Part]:
        """Return the parts that all processes make, in their order, by one collective that shares failures too.

        Args:
            doing: the work, for the message: "reading prompts".
            make: makes this process's part, without any collective; None where only failures are shared.

        Raises:
            NeymanError: a process could not make its part: the same class and message on all. It is the error's own
                class where that is one of ours, else `RunFailedError`. With one process its own error is raised.
        """
        if self.world == 1:
            return list(make() or ())
        mine: list[Part] = []
        cause: Exception | None = None
        failure: _Failure | None = None
        try:
            mine = list(make() or ())
        except Exception as error:  # noqa: BLE001 - whatever it is, the other processes need it
            cause = error
            failure = (_kind(error), getattr(error, "neyman_doing", doing), _words(error))
        everyone: list[tuple[list[Part], _Failure | None]] = gather_object([(mine, failure)])
        failures = {place: failed for place, (_, failed) in enumerate(everyone) if failed is not None}
        if failures:
            kind, text = self._common(failures)
            raise kind(text) from cause
        return [one for parts, _ in everyone for one in parts]

    def _common(self, failures: dict[int, _Failure]) -> tuple[type[NeymanError], str]:
        """Return the error that all processes raise: the first's, or the common one."""
        first, (kind, doing, words) = next(iter(failures.items()))
        if len(failures) == self.world and len(set(failures.values())) == 1 and kind is not RunFailedError:
            return kind, words
        others = len(failures) - 1
        also = f" (and {others} more)" if others else ""
        return kind, (
            f"process {first}{also} of {self.world} failed in step {self._step}, {doing}: {words}; all processes stop"
        )

    @property
    def _step(self) -> int:
        return int(self._trainer.state.global_step)

    @contextmanager
    def failing_together(self) -> Iterator[None]:
        """Leave an error that ends this process for the others, and raise the one that they left.

        Raises:
            RunFailedError: another process is gone or too slow; with its cause where it left one.
        """
        if self.world == 1:
            yield
            return
        self._trainings += 1  # the same on every process, which so share a key
        key = f"neyman/failure/{self._trainings}"
        try:
            yield
        except NeymanError as error:
            _leave(key, str(error))
            raise
        except Exception as error:
            if _is_lost_peer(error):
                raise RunFailedError(_left(key) or self._silence()) from error
            place = f"process {self.index} of {self.world} failed in step {self._step}"
            text = f"{place}: {_words(error)}; all processes stop"
            error.add_note(_leave(key, text))
            raise

    def _silence(self) -> str:
        return (
            f"the {self.world} processes no longer answer each other in step {self._step}: one has ended, or took "
            "longer than the process group's timeout (30 minutes, unless ddp_timeout or the group sets another); "
            "its last output has the cause"
        )


def _kind(error: Exception) -> type[NeymanError]:
    return type(error) if isinstance(error, NeymanError) else RunFailedError


def _words(error: Exception) -> str:
    """Return an error's message and notes, after its class where that is not one of ours."""
    name = "" if isinstance(error, NeymanError) else f"{type(error).__name__}: "
    return "\n".join([f"{name}{error}", *getattr(error, "__notes__", ())])


def _is_lost_peer(error: Exception) -> bool:
    """Whether a collective failed because another process is gone or silent; gloo has no class for that."""
    return isinstance(error, dist.DistError) or (isinstance(error, RuntimeError) and "gloo" in str(error))


def _leave(key: str, text: str) -> str:
    """Leave a text for the other processes unless one has left its own; return the one that counts."""
    with contextlib.suppress(RuntimeError):  # the store has gone with the process that held it
        store: Any = dist.distributed_c10d._get_default_store()  # noqa: SLF001 - torch has no other way to it
        return str(store.compare_set(key, "", text).decode())
    return text


def _left(key: str) -> str | None:
    """Return the text that a process has left, if any."""
    with contextlib.suppress(RuntimeError):
        store: Any = dist.distributed_c10d._get_default_store()  # noqa: SLF001 - torch has no other way to it
        return str(store.get(key).decode()) if store.check([key]) else None
    return None
