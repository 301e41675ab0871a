"""Files of a run read within limits: what is larger than any run writes is refused before it is held."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from neyman.errors import StateError

LONGEST_LINE = 64 * 2**20  # bytes; a step's line holds all its groups
LARGEST_FILE = 64 * 2**20  # bytes; settings, a run's head, or the results of one run that are read at once


class TooLargeError(ValueError):
    """A file has more bytes than are read at once.

    Args:
        size: its bytes.
        limit: those that are read.
    """

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(f"it has {size:,} bytes, more than the limit of {limit // 2**20} MiB")


def read_bytes(path: Path, limit: int = LARGEST_FILE) -> bytes:
    """Return a file's content.

    Args:
        path: the file.
        limit: the most bytes that are held.

    Raises:
        OSError: it cannot be read.
        TooLargeError: it is larger; a ValueError.
    """
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        data = file.read(limit + 1) if size <= limit else b""
    if max(size, len(data)) > limit:  # what grows while it is read, and what has no size, counts as well
        raise TooLargeError(max(size, len(data)), limit)
    return data


def numbered_lines(
    file: BinaryIO, path: Path, *, first: int = 1, way_out: str = "mend or delete the line"
) -> Iterator[tuple[int, bytes]]:
    """Yield (number, line with its end) from where a file stands; no line that is too long is held.

    Args:
        file: open for reading.
        path: its name in errors.
        first: the number of the first line.
        way_out: what the error advises.

    Raises:
        StateError: a line is longer than `LONGEST_LINE`; the message names the file, the line and the limit.
    """
    number = first
    while line := file.readline(LONGEST_LINE + 1):
        if len(line) > LONGEST_LINE:
            raise StateError(
                f"{path}, line {number}: longer than {LONGEST_LINE // 2**20} MiB, which no step writes; {way_out}"
            )
        yield number, line
        number += 1
