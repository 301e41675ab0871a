"""Reading within limits: no more is held than any run writes, or than a caller allows."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from neyman.errors import NeymanError, StateError

LONGEST_LINE = 64 * 2**20  # bytes; a step's line holds all its groups
LARGEST_FILE = 64 * 2**20  # bytes; settings, a run's head, or the results of one run that are read at once


def shown_size(size: int) -> str:
    """Return a limit in words.

    >>> shown_size(2**20), shown_size(1000)
    ('1 MiB', '1,000 bytes')
    """
    return f"{size:,} bytes" if size % 2**20 else f"{size // 2**20} MiB"


def read_bytes(path: Path, limit: int = LARGEST_FILE) -> bytes:
    """Return the content of a file of at most ``limit`` bytes.

    Raises:
        OSError: it cannot be read.
        ValueError: it is larger.
    """
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        data = file.read(limit + 1) if size <= limit else b""
    size = max(size, len(data))  # it may grow while it is read, and a pipe has no size
    if size > limit:
        raise ValueError(f"it has {size:,} bytes, more than the limit of {shown_size(limit)}")
    return data


def numbered_lines(
    file: BinaryIO,
    path: Path,
    *,
    first: int = 1,
    limit: int | None = None,
    advice: str = "mend or delete the line",
    error: type[NeymanError] = StateError,
) -> Iterator[tuple[int, bytes]]:
    """Yield (number, line with its end) from where a file stands; no line that is too long is held.

    Args:
        file: open for reading.
        path: its name in errors.
        first: the number of the first line.
        limit: the most bytes of a line; None takes `LONGEST_LINE`.
        advice: the advice of the error.
        error: raised for a line that is longer.

    Raises:
        NeymanError: of the kind ``error``; the message names the file, the line and the limit.
    """
    most = LONGEST_LINE if limit is None else limit
    number = first
    while line := file.readline(most + 1):
        if len(line) > most:
            raise error(f"{path}, line {number}: longer than {shown_size(most)}; {advice}")
        yield number, line
        number += 1
