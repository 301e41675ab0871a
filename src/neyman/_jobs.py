"""Signals that end a command in order, with what it started and what it has to say."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


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
