"""Event loops that go on after a task has raised an error that ends a loop, such as ``exit()``'s SystemExit."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import Any, final

from neyman.trl._host import EVENT_LOOPS


@final
class Loop:
    """An event loop in a thread of its own."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        _run(self.loop)
        # Calls that are pending now were given up, and need no complaint.
        self.loop.set_exception_handler(lambda *_: None)
        self.loop.close()

    def end(self) -> None:
        """End the thread, as soon as no call blocks it; calls that still wait go no further."""
        with contextlib.suppress(RuntimeError):  # it has ended
            self.loop.call_soon_threadsafe(self.loop.stop)


def outlive_exits(trainer: Any) -> None:
    """Run the event loop of a trainer's async functions in a thread that no task in it can end.

    The loop is the same, so that clients bound to it stay so; only its thread is another one, from before the first
    call on. The trainer stops it as it would its own. A trainer without such a loop is left alone.
    """
    for name in EVENT_LOOPS:
        loop, before = getattr(trainer, name, None), getattr(trainer, f"{name}_thread", None)
        if loop is not None and before is not None:
            thread = threading.Thread(target=_run, args=(loop, before), name=before.name, daemon=True)
            setattr(trainer, f"{name}_thread", thread)
            loop.call_soon_threadsafe(loop.stop)
            thread.start()


def _run(loop: asyncio.AbstractEventLoop, before: threading.Thread | None = None) -> None:
    """Run a loop until it is stopped, from when another thread has left it."""
    if before is not None:
        before.join()
    asyncio.set_event_loop(loop)
    while True:
        try:
            loop.run_forever()
        except (
            BaseException
        ):  # of a task that a function started; it is raised where the task is awaited, too
            if loop.is_closed() or loop.is_running():  # somebody else has it
                raise
            continue
        return
