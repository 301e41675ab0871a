"""A run's metrics read while it writes them: new lines only, and whole ones."""

from __future__ import annotations

import time
from typing import Any, BinaryIO, final

from neyman.train._folder import RunFolder, damaged_line, whole_lines


@final
class Tail:
    """The progress of a run, by its own metrics."""

    def __init__(self, folder: RunFolder) -> None:
        self.folder = folder
        self._clear()

    def _clear(self) -> None:
        self._inode, self._offset, self._lines = -1, 0, 0
        self.step = self.rollouts = 0
        self.evaluated = -1  # the step of the last measurement, and the rollouts by then
        self.evaluated_rollouts = 0
        self.accuracy: float | None = None
        self.effective: float | None = None
        self._first: tuple[float, int] | None = None

    @property
    def is_moving(self) -> bool:
        """Whether the run has written a line since this process began to read."""
        return self._first is not None

    def read(self) -> None:
        """Take in the new lines; a file that replaced another is read from its start."""
        try:
            file = self.folder.metrics.open("rb")
        except FileNotFoundError:
            return
        with file:
            status = self.folder.metrics.stat()
            if status.st_ino != self._inode:
                self._clear()
                self._inode = status.st_ino
            fresh = self._offset > 0
            came = self._read_whole(file)
        if came and (fresh or self._first is None):
            self._first = self._first or (time.monotonic(), self.rollouts)

    def _read_whole(self, file: BinaryIO) -> bool:
        """Take in the whole lines after the last reading; return whether there were any."""
        path, came = self.folder.metrics, False
        file.seek(self._offset)
        for number, size, event in whole_lines(file, path, first=self._lines + 1):
            self._offset, self._lines, came = self._offset + size, number, True
            try:
                self._take(event)
            except (KeyError, TypeError, AttributeError) as error:
                raise damaged_line(path, number, f"{type(error).__name__}: {error}") from error
        return came

    def _take(self, event: dict[str, Any]) -> None:
        self.step, self.rollouts = event["step"], event["rollouts"]
        if event["event"] == "eval":
            self.evaluated, self.evaluated_rollouts = event["step"], event["rollouts"]
            self.accuracy = event["accuracy"]
        else:
            self.effective = event["report"].get("effective_ratio", self.effective)

    def eta(self, rollouts: int) -> float | None:
        """Return the seconds left to a number of rollouts, at the pace so far; None before there is one."""
        if self._first is None or self.rollouts <= self._first[1]:
            return None
        pace = (time.monotonic() - self._first[0]) / (self.rollouts - self._first[1])
        return max(0.0, (rollouts - self.rollouts) * pace)
