"""Reading a metrics file that a run appends to, and that a killed run may have left half-written.

A run that is killed and resumed goes back to its last checkpoint and writes those steps again. So where the
step counter goes back, the lines of the abandoned future are dropped and the later line wins; a resumed run
that has not caught up yet thus never mixes two futures.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from neyman import _checks
from neyman._files.json import RepeatedFieldError, loads
from neyman._files.limits import numbered_lines, read_bytes
from neyman.errors import ArgumentError, StateError

_LARGEST = 2**53  # up to here sums of counts are exact as floats; no run comes near it


@dataclass(frozen=True)
class Record:
    """One JSON object and its place, which every error message names."""

    where: str
    data: dict[str, Any]

    def get(self, key: str) -> Any:
        """Return a required value."""
        if key not in self.data:
            raise StateError(
                f"{self.where}: {key!r} is missing, got the keys {sorted(map(str, self.data))}; "
                "the run was written by another version of neyman, or is damaged"
            )
        return self.data[key]

    def integer(self, key: str, default: int | None = None) -> int:
        """Return a whole number >= 0."""
        value = self.data.get(key, default) if default is not None else self.get(key)
        try:
            return _checks.integer(key, _checks.integer(key, value, low=0), high=_LARGEST)
        except ArgumentError as error:
            raise StateError(f"{self.where}: {error}") from error

    def number(self, key: str, low: float | None = None, high: float | None = None) -> float:
        """Return a finite number within [low, high]."""
        try:
            return _checks.real(key, self.get(key), low=low, high=high)
        except ArgumentError as error:
            raise StateError(f"{self.where}: {error}") from error

    def rate(self, key: str) -> float:
        """Return a number in [0, 1], NaN where it is absent or null."""
        value = self.data.get(key)
        if value is None or value != value:  # noqa: PLR0124  NaN is the one value unlike itself
            return float("nan")
        return self.number(key, low=0.0, high=1.0)

    def floats(self, key: str) -> dict[str, float]:
        """Return a flat mapping of numbers; null is NaN; an absent mapping is empty."""
        values = self.data.get(key)
        if values is None:
            return {}
        if not isinstance(values, dict):
            raise StateError(f"{self.where}: {key!r} must map names to numbers, got {values!r:.80}")
        for name, value in values.items():
            if value is not None and type(value) not in {int, float}:
                raise StateError(
                    f"{self.where}: {key!r} must map names to numbers, got {value!r:.80} for {name!r:.80}"
                )
        return {name: float("nan") if value is None else _float(value) for name, value in values.items()}

    def records(self, key: str) -> list[Record]:
        """Return a list of objects; an absent list is empty."""
        values = self.data.get(key) or []
        if not isinstance(values, list) or not all(isinstance(value, dict) for value in values):
            raise StateError(f"{self.where}: {key!r} must be a list of objects, got {values!r:.80}")
        return [Record(f"{self.where}, {key}[{i}]", value) for i, value in enumerate(values)]


def _float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:  # an integer beyond floats
        return math.inf if value > 0 else -math.inf


@dataclass
class Events:
    """Steps and evaluations of a metrics file, without those that a resume replaced."""

    steps: list[Record] = field(default_factory=list)
    evals: list[Record] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def read_object(path: Path) -> Record:
    """Return the one JSON object of a file.

    Raises:
        StateError: the file is not readable, larger than 64 MiB, or does not hold one object.
    """
    try:
        data = loads(read_bytes(path))
    except (OSError, ValueError) as error:
        raise StateError(
            f"{path}: cannot be read as JSON: {error}; put back a copy of the file, or remove {path.parent} to train "
            "this run anew"
        ) from error
    if not isinstance(data, dict):
        raise StateError(f"{path}: must hold one JSON object, got {data!r:.80}")
    return Record(str(path), data)


def read_events(path: Path) -> Events:
    """Return the step and eval lines of a metrics file in order, without those that a resume replaced.

    A line that a kill cut short (the last one, or one that opens an object and never closes it) is left out
    and named in ``notes``.

    Raises:
        StateError: any other line that is not an event, or one longer than 64 MiB; the message names file and line.

    Cost: O(lines), each superseded line once more.
    """
    events, replaced = Events(), 0
    for number, line, is_last in _numbered(path):
        text = line.strip()
        if not text:
            continue
        where = f"{path}, line {number}"
        try:
            data = loads(text)
        except RepeatedFieldError as error:
            raise StateError(f"{where}: {error}, or delete the line") from error
        except ValueError as error:
            cut_short = text.startswith(b"{") and not text.endswith(b"}")
            if not is_last and not cut_short:
                raise StateError(f"{where}: not a JSON object ({error}); mend or delete the line") from error
            events.notes.append(f"line {number} of {path.name} is half-written and was left out")
            continue
        if not isinstance(data, dict):
            raise StateError(f"{where}: must be a JSON object, got {data!r:.80}; delete the line")
        replaced += _append(events, Record(where, data))
    if replaced:
        events.notes.append(
            f"resumed: {replaced} earlier line(s) were written again, and the later ones count"
        )
    return events


def _numbered(path: Path) -> Iterator[tuple[int, bytes, bool]]:
    """Yield (line number from 1, line, whether it is the last)."""
    if not path.exists():
        return
    with path.open("rb") as file:
        lines = itertools.chain(numbered_lines(file, path), (None,))
        for line, following in itertools.pairwise(lines):
            if line is not None:
                yield *line, following is None


def _append(events: Events, record: Record) -> int:
    """Add a line, dropping those that it supersedes; return their number."""
    kind, step = record.get("event"), record.integer("step")
    if kind not in ("step", "eval"):
        return 0  # other events may be added to the format; they are no concern of the report
    same, other = (events.steps, events.evals) if kind == "step" else (events.evals, events.steps)
    before = len(same) + len(other)
    while same and same[-1].data["step"] >= step:
        same.pop()
    while other and other[-1].data["step"] > step:
        other.pop()
    dropped = before - len(same) - len(other)
    same.append(record)
    return dropped
