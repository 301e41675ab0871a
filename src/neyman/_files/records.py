"""Records of a CSV file that span lines, bounded as lines are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import final


@final
class RecordBound:
    """Hands lines to a CSV reader and stops where one record takes in too much.

    Quoted fields may hold line ends, so that an open quote, or quotes without end, would gather lines for ever.

    Args:
        limit: bytes or characters of one record, as lines are counted.
        error: makes the error from the number of the line that was too much.
    """

    def __init__(self, limit: int, error: Callable[[int], Exception]) -> None:
        self._limit, self._error = limit, error
        self._held = 0

    def lines(self, numbered: Iterable[tuple[int, str]]) -> Iterator[str]:
        """Yield the lines.

        Raises:
            Exception: the error, where the record goes beyond its limit.
        """
        for number, line in numbered:
            self._held += len(line)
            if self._held > self._limit:
                raise self._error(number)
            yield line

    def close(self) -> None:
        """Say that a record has ended."""
        self._held = 0
