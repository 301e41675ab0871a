"""Says through a pipe what a training process is doing, and waits for a word before it goes on."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from typing import Any

# What a checkpoint does to its folder, as the interpreter tells of it: one message each.
_FILE_EVENTS = ("open", "os.rename", "os.remove", "os.rmdir", "os.mkdir")


class Phases:
    """The phase that the process is in: start, generation, between rounds, update, checkpoint, end.

    Args:
        speak: descriptor for messages, one line each: phase and detail.
        hear: descriptor from which one byte comes back for each.
    """

    def __init__(self, speak: int, hear: int) -> None:
        self.speak, self.hear = speak, hear
        self.phase = ""

    def enter(self, phase: str, detail: str = "") -> None:
        """Say where the process is, and wait."""
        self.phase = phase
        os.write(self.speak, f"{phase}\t{detail}\n".encode())
        if not os.read(self.hear, 1):
            os._exit(1)  # the parent is gone

    def follow(self, trainer: Any) -> None:
        """Tell of every generation, round, update and file of a checkpoint."""
        self._around(trainer, "base_generate", before="generation")
        self._around(trainer, "_generate_and_score_completions", after="update")
        self._around(trainer, "_save_checkpoint", before="checkpoint", after="update")
        for name in ("save_model", "_save_optimizer_and_scheduler", "_save_rng_state"):
            self._around(trainer, name, after="checkpoint", only_in="checkpoint")
        controller = trainer.controller
        told = controller.tell

        def tell(outcomes: Any) -> None:
            told(outcomes)
            if not controller.is_done:
                self.enter("between rounds")

        controller.tell = tell
        sys.addaudithook(self._hear_of_files)

    def _around(
        self, owner: Any, name: str, *, before: str = "", after: str = "", only_in: str | None = None
    ) -> None:
        original: Callable[..., Any] = getattr(owner, name)

        @functools.wraps(original)
        def called(*args: Any, **kwargs: Any) -> Any:
            heard = only_in in (None, self.phase)
            if before and heard:
                self.enter(before, name)
            result = original(*args, **kwargs)
            if after and heard:
                self.enter(after, f"{name} returned")
            return result

        setattr(owner, name, called)

    def _hear_of_files(self, event: str, args: tuple[Any, ...]) -> None:
        if self.phase != "checkpoint" or event not in _FILE_EVENTS:
            return
        if event == "open" and not (isinstance(args[2], int) and args[2] & (os.O_WRONLY | os.O_RDWR)):
            return
        self.enter("checkpoint", f"{event} {args[0]}".replace("\n", " "))
