"""Rows of a log, a chunk at a time: parquet, JSON lines and CSV, none of them ever loaded whole."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from neyman._files.json import RepeatedFieldError, loads
from neyman._files.records import RecordBound
from neyman.errors import ArgumentError, missing_extra

LONGEST_LINE = 16 * 2**20  # bytes; longer lines are refused before they are read
_CHUNK = 2048  # rows, and no more when
_CHUNK_BYTES = 16 * 2**20  # of the file are in them
_PEEK = 64  # JSON lines whose fields are taken together
_SUFFIXES = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".csv": "csv",
    ".tsv": "csv",
}


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some rows of a file.

    Args:
        path: the file.
        unit: "line" or "row", what ``numbers`` count.
        numbers: each row's number, from 1.
        columns: name -> values, one per row; None where a row lacks the field.
    """

    path: Path
    unit: str
    numbers: Sequence[int]
    columns: dict[str, list[Any]]

    def where(self, row: int, field: str | None = None) -> str:
        """Name the place of a value, for errors."""
        place = f"{self.path}, {self.unit} {self.numbers[row]}"
        return place if field is None else f"{place}, field {field!r}"


class Table(Protocol):
    """A file of rows."""

    path: Path
    columns: tuple[str, ...]
    numeric: frozenset[str] | None  # columns known to hold numbers; None where the file does not say

    def chunks(self, names: Sequence[str]) -> Iterator[Chunk]:
        """Yield all rows with these columns, a chunk at a time."""
        ...


def expand(paths: Sequence[str | Path]) -> list[Path]:
    """Return the files meant: a folder stands for its logs, in the order of the numbers in their names.

    Raises:
        ArgumentError: a path that is not there, or a folder without logs.
    """
    files: list[Path] = []
    for given in paths:
        path = Path(given)
        if path.is_dir():
            inside = sorted((p for p in path.iterdir() if p.suffix.lower() in _SUFFIXES), key=_natural)
            if not inside:
                raise ArgumentError(
                    f"{path} holds no log: no file named {', '.join('*' + s for s in _SUFFIXES)}"
                )
            files += inside
        elif path.is_file():
            files.append(path)
        else:
            raise ArgumentError(f"{path} is not there: give files of logs, or a folder of them")
    if not files:
        raise ArgumentError("no file was given: name the logs of a run, or a folder of them")
    return files


def _natural(path: Path) -> list[tuple[int, int | str]]:
    return [(0, int(part)) if part.isdigit() else (1, part) for part in re.split(r"(\d+)", path.name) if part]


def open_table(path: Path) -> Table:
    """Open a file of rows by its name, else by its first bytes.

    Raises:
        ArgumentError: a file that is none of parquet, JSON lines and CSV, or is damaged.
        MissingExtraError: a parquet file without pyarrow.
    """
    kind = _SUFFIXES.get(path.suffix.lower()) or _sniff(path)
    try:
        if kind == "parquet":
            return ParquetTable(path)
        return JsonLines(path) if kind == "jsonl" else CsvTable(path)
    except OSError as error:
        raise ArgumentError(f"{path} cannot be read: {error}") from error


def _sniff(path: Path) -> str:
    with path.open("rb") as file:
        head = file.read(64)
    if head.startswith(b"PAR1"):
        return "parquet"
    if head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{"):
        return "jsonl"
    raise ArgumentError(
        f"{path} is none of parquet, JSON lines and CSV by its name or its first bytes ({head[:16]!r}); convert it, "
        f"or name it with one of {', '.join(_SUFFIXES)}"
    )


class ParquetTable:
    """A parquet file, read in batches of the columns that are wanted."""

    def __init__(self, path: Path) -> None:
        try:
            import pyarrow as pa  # noqa: PLC0415 - an extra
            import pyarrow.parquet as pq  # noqa: PLC0415
        except ImportError as error:
            raise missing_extra("pyarrow", "cli", "reading parquet") from error
        self._error = pa.ArrowException
        self.path = path
        try:
            with pq.ParquetFile(path) as file:
                schema = file.schema_arrow
                self.columns = tuple(schema.names)
        except (self._error, UnicodeError) as error:
            raise ArgumentError(f"{path} is no parquet file, or is cut short: {error}") from error
        _once(self.columns, f"{path}")
        kinds = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_decimal)
        self.numeric: frozenset[str] | None = frozenset(
            field.name for field in schema if any(kind(field.type) for kind in kinds)
        )

    def chunks(self, names: Sequence[str]) -> Iterator[Chunk]:
        """Yield all rows with these columns, a chunk at a time."""
        import pyarrow.parquet as pq  # noqa: PLC0415

        first = 1
        try:
            with pq.ParquetFile(self.path) as file:
                size = _rows_at_once(file.metadata, names)
                for batch in file.iter_batches(batch_size=size, columns=list(names)):
                    columns = {name: batch.column(name).to_pylist() for name in names}
                    yield Chunk(self.path, "row", range(first, first + batch.num_rows), columns)
                    first += batch.num_rows
        except (self._error, OSError, ValueError, OverflowError) as error:
            # ValueError: text that is no UTF-8, or a date that Python does not have.
            raise ArgumentError(f"{self.path} is damaged after row {first - 1}: {error}") from error


def _rows_at_once(metadata: Any, names: Sequence[str]) -> int:
    """Return how many rows of these columns a chunk may hold: fewer where rows are long, as the file says."""
    longest = 1.0
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        columns = [group.column(i) for i in range(group.num_columns)]
        size = sum(c.total_uncompressed_size for c in columns if c.path_in_schema.split(".")[0] in names)
        longest = max(longest, size / max(group.num_rows, 1))
    return max(1, min(_CHUNK, int(_CHUNK_BYTES / longest)))


class JsonLines:
    """One JSON object per line."""

    numeric: frozenset[str] | None = None

    def __init__(self, path: Path) -> None:
        self.path = path
        names: dict[str, None] = {}
        for count, (_, record, _) in enumerate(self._records()):
            names.update(dict.fromkeys(record))
            if count + 1 == _PEEK:
                break
        if not names:
            raise ArgumentError(f"{path} holds no record")
        self.columns = tuple(names)

    def _records(self) -> Iterator[tuple[int, dict[str, Any], int]]:
        for number, line in _lines(self.path):
            if not line.strip():
                continue
            try:
                record = loads(line)
            except RepeatedFieldError as error:
                raise ArgumentError(f"{self.path}, line {number}: {error}") from error
            except ValueError as error:
                raise ArgumentError(
                    f"{self.path}, line {number} is not a JSON object: {error}; every line must be one object (an "
                    "array is split by: jq -c '.[]')"
                ) from error
            if not isinstance(record, dict):
                raise ArgumentError(
                    f"{self.path}, line {number} must be a JSON object, got {str(record)[:60]!r}; every line must be "
                    "one object (an array is split by: jq -c '.[]')"
                )
            yield number, record, len(line)

    def chunks(self, names: Sequence[str]) -> Iterator[Chunk]:
        """Yield all rows with these columns, a chunk at a time."""
        return _gather(self.path, self._records(), names)


class CsvTable:
    """Comma- or tab-separated values under a header."""

    numeric: frozenset[str] | None = None

    def __init__(self, path: Path) -> None:
        self.path = path
        with _reading(path) as (reader, _):
            header = next(reader, None)
        if not header or not any(name.strip() for name in header):
            raise ArgumentError(f"{path} has no header: its first line must name the columns")
        self.columns = tuple(name.strip() for name in header)
        _once(self.columns, f"{path}, line 1")

    def _records(self) -> Iterator[tuple[int, dict[str, Any], int]]:
        with _reading(self.path) as (reader, bound):
            next(reader)
            bound.close()
            for values in reader:
                bound.close()
                if not values:
                    continue
                if len(values) != len(self.columns):
                    raise ArgumentError(
                        f"{self.path}, line {reader.line_num} has {len(values)} values for {len(self.columns)} "
                        "columns; quote values that hold the separator"
                    )
                yield reader.line_num, dict(zip(self.columns, values, strict=True)), sum(map(len, values))

    def chunks(self, names: Sequence[str]) -> Iterator[Chunk]:
        """Yield all rows with these columns, a chunk at a time."""
        return _gather(self.path, self._records(), names)


def _once(columns: Sequence[str], where: str) -> None:
    """Refuse columns of which two have one name: which of them is meant cannot be told."""
    if len(set(columns)) < len(columns):
        twice = next(name for name in columns if columns.count(name) > 1)
        raise ArgumentError(f"{where} names the column {twice!r} twice; rename one")


@contextmanager
def _reading(path: Path) -> Iterator[tuple[Any, RecordBound]]:
    """Read a CSV file; the longest record is as long as the longest line, while it is read."""
    before = csv.field_size_limit(LONGEST_LINE)
    bound = RecordBound(
        LONGEST_LINE,
        lambda number: ArgumentError(
            f"{path}, line {number}: a record is longer than {LONGEST_LINE // 2**20} MiB; is a quote left open?"
        ),
    )
    reader = csv.reader(bound.lines(_lines(path)), delimiter="\t" if path.suffix.lower() == ".tsv" else ",")
    try:
        yield reader, bound
    except csv.Error as error:
        raise ArgumentError(f"{path}, line {reader.line_num} is no CSV: {error}") from error
    finally:
        csv.field_size_limit(before)


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield numbered lines, and refuse one that is too long without reading it."""
    with path.open("rb") as file:
        number = 0
        while line := file.readline(LONGEST_LINE + 1):
            number += 1
            if len(line) > LONGEST_LINE:
                raise ArgumentError(
                    f"{path}, line {number} is longer than {LONGEST_LINE // 2**20} MiB; is it a log, one record a line?"
                )
            try:
                yield number, line.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                raise ArgumentError(f"{path}, line {number} is not UTF-8: {error}") from error


def _gather(
    path: Path, records: Iterator[tuple[int, dict[str, Any], int]], names: Sequence[str]
) -> Iterator[Chunk]:
    numbers: list[int] = []
    columns: dict[str, list[Any]] = {name: [] for name in names}
    held = 0
    for number, record, size in records:
        numbers.append(number)
        held += size
        for name, values in columns.items():
            values.append(record.get(name))
        if len(numbers) == _CHUNK or held >= _CHUNK_BYTES:
            yield Chunk(path, "line", numbers, columns)
            numbers, columns, held = [], {name: [] for name in names}, 0
    if numbers:
        yield Chunk(path, "line", numbers, columns)
