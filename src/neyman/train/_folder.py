"""A run's directory: its files, and its return to the last complete checkpoint."""

from __future__ import annotations

import json
import logging
import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, final

from neyman._files import checkpoints
from neyman._files.atomic import atomic, write_atomic
from neyman._files.json import loads, plain
from neyman._files.limits import numbered_lines
from neyman.errors import StateError

VERSION = 1
_PART = 2**20  # bytes that are copied at a time
_log = logging.getLogger("neyman.train")


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The progress of a run.

    Attributes:
        checkpoint: the checkpoint to resume from; None to begin.
        step: its step; 0 without one.
        seconds: the time that the run took up to there.
        is_last: whether no step is left to train.
    """

    checkpoint: Path | None = None
    step: int = 0
    seconds: float = 0.0
    is_last: bool = False


def whole_lines(file: BinaryIO, path: Path, *, first: int = 1) -> Iterator[tuple[int, int, dict[str, Any]]]:
    """Yield (number, bytes, event) of the lines of a run's metrics, up to one that is not written to its end.

    Args:
        file: the metrics, from where it stands.
        path: their name in errors.
        first: the number of the first line.

    Raises:
        StateError: a line is damaged; the message names the file, the line and the remedy.
    """
    for number, line in numbered_lines(file, path, first=first, advice=_remedy(path)):
        if not line.endswith(b"\n"):
            return
        try:
            event = loads(line)
            known = event["event"] in {"step", "eval"} and _is_known(event)
        except (ValueError, TypeError, KeyError) as error:
            raise damaged_line(path, number, f"{type(error).__name__}: {error}") from error
        if not known:
            raise damaged_line(path, number, f"{line!r:.80}")
        yield number, len(line), event


def _is_known(event: dict[str, Any]) -> bool:
    """Whether the fields that a run resumes from have the types that they were written with."""
    seconds = event.get("seconds", 0.0)
    return (
        type(event["step"]) is int  # True is no number of steps
        and event["step"] >= 0
        and type(seconds) in {int, float}
        and 0 <= seconds <= sys.float_info.max  # nor is it NaN
    )


def damaged_line(path: Path, number: int, why: str) -> StateError:
    """Return the error for a line of a run's metrics, with the remedy."""
    return StateError(f"{path}, line {number} is damaged ({why}): {_remedy(path)}")


def _remedy(path: Path) -> str:
    return f"put back a copy of the file, or remove {path.parent} to train this run anew"


@final
class RunFolder:
    """The directory of one strategy and seed.

    Args:
        path: the directory; it is made with the first file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.metrics = path / "metrics.jsonl"
        self.log = path / "log.txt"

    @staticmethod
    def name(strategy: str, seed: int) -> str:
        """Return the directory's name.

        >>> RunFolder.name("my.package:make", 3)
        'my.package-make-seed3'
        """
        return f"{re.sub(r'[^A-Za-z0-9._+]+', '-', strategy)}-seed{seed}"

    @property
    def is_done(self) -> bool:
        """Whether the run is complete."""
        return (self.path / "done.json").exists()

    def begin(self, head: dict[str, Any]) -> None:
        """Write ``run.json``."""
        self.path.mkdir(parents=True, exist_ok=True)
        text = json.dumps(plain({"version": VERSION, **head}), indent=1)
        write_atomic(self.path / "run.json", text.encode())

    def finish(self, seconds: float) -> None:
        """Write ``done.json``."""
        write_atomic(self.path / "done.json", json.dumps({"finished": True, "seconds": seconds}).encode())

    def append(self, event: dict[str, Any], *, durable: bool = False) -> None:
        """Append one line to the metrics."""
        line = json.dumps(plain(event), separators=(",", ":"), allow_nan=False).encode() + b"\n"
        with self.metrics.open("ab") as file:
            file.write(line)
            file.flush()
            if durable:
                os.fsync(file.fileno())

    def rewind(self, *, save_every: int | None = None) -> Progress:
        """Bring the directory back to its last complete checkpoint, so that nothing is counted twice.

        Checkpoints that a kill left unfinished are removed, and so are the lines of steps that will be taken again. A
        run that was killed before its first checkpoint was complete begins anew, and logs that. All else stays: a
        checkpoint that lost its state, and folders and files of other names.

        Args:
            save_every: steps between checkpoints; None where that is not known.

        Returns:
            The checkpoint to resume from.

        Raises:
            StateError: the last checkpoint or the metrics are damaged, or its state is missing though no kill left it
                so; the metrics stop before the checkpoint, so that the rollouts spent are not known; or all
                checkpoints are gone.
        """
        complete = checkpoints.last_whole(self.path)
        step = 0 if complete is None else checkpoints.step_of(complete)
        if complete is None:
            self._begin_anew(save_every)
        for folder in checkpoints.numbered(self.path):
            if checkpoints.is_unfinished(folder):
                checkpoints.remove(folder)
        kept, last = (0, {}) if complete is None else self._lines_until(step)
        if complete is not None and last.get("step") != step:
            raise StateError(
                f"{self.metrics} ends at step {last.get('step', 0)}, but the checkpoint is of step {step}: the count "
                f"of rollouts spent in between is lost; remove {self.path} to train this run anew"
            )
        self._keep(kept)
        return Progress(
            checkpoint=complete,
            step=step,
            seconds=float(last.get("seconds", 0.0)),
            is_last=bool(last.get("last")),
        )

    def _begin_anew(self, save_every: int | None) -> None:
        """Log that steps are taken again; an error where checkpoints were written and are gone."""
        _, last = self._lines_until(sys.maxsize)
        taken = int(last.get("step", 0))
        if save_every is not None and taken > save_every:
            raise StateError(
                f"{self.metrics} reaches step {taken}, but {self.path} holds no finished checkpoint, of which one was "
                f"due every {save_every} steps: put them back, or remove {self.path} to train this run anew"
            )
        if taken:
            _log.warning(
                "%s: killed before its first checkpoint was complete; begins anew at step 0, not at %d",
                self.path,
                taken,
            )

    def _lines_until(self, step: int) -> tuple[int, dict[str, Any]]:
        """Return the bytes of the whole lines up to a step, and the last step's event."""
        kept = 0
        last: dict[str, Any] = {}
        if not self.metrics.exists():
            return kept, last
        with self.metrics.open("rb") as file:
            for _, size, event in whole_lines(file, self.metrics):
                if event["step"] > step:
                    break
                kept += size
                if event["event"] == "step":
                    last = event
        return kept, last

    def _keep(self, size: int) -> None:
        """Replace the metrics by their first bytes: a new file, which makes readers start again."""
        if not self.metrics.exists():
            return
        with self.metrics.open("rb") as old, atomic(self.metrics) as new:
            while size and (part := old.read(min(size, _PART))):
                new.write(part)
                size -= len(part)
