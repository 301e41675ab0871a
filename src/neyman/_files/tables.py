"""Rows of tables, one after another: JSON lines, CSV, TSV, parquet, and folders that ``datasets`` saved.

No table is loaded whole, and no line or record is held that is longer than a limit, so that a damaged file cannot fill
the memory. Every refusal names the file and the line (or row).
"""

from __future__ import annotations

import csv
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, final

from neyman._files.json import RepeatedFieldError, loads
from neyman._files.limits import numbered_lines, shown_size
from neyman.errors import ArgumentError, missing_extra

LONGEST_LINE = 16 * 2**20  # bytes of a line, a CSV record, or a batch of parquet rows
_BATCH = 2048  # rows of parquet that are read together, fewer where they are long
_PEEK = 64  # JSON lines whose fields are taken for the columns
_KINDS = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".csv": "csv",
    ".tsv": "csv",
}
_ONE_OBJECT = "every line must be one object (an array is split by: jq -c '.[]')"


class Row(NamedTuple):
    """The values of a row by field, with its place: line or row ``number``, from 1; the last line of a CSV record."""

    path: Path
    unit: str
    number: int
    values: dict[str, Any]

    def where(self, field: str | None = None) -> str:
        """Return the place of the row, or of a field's value, for errors."""
        place = f"{self.path}, {self.unit} {self.number}"
        return place if field is None else f"{place}, field {field!r}"


class Table(ABC):
    """A file of rows.

    Attributes:
        path: the file.
        numeric: the columns that hold numbers; None where the file does not declare types.
    """

    numeric: frozenset[str] | None = None

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    @abstractmethod
    def columns(self) -> tuple[str, ...]:
        """The names of the columns; of JSON lines, the fields of the first records."""

    @abstractmethod
    def rows(self, names: Sequence[str]) -> Iterator[Row]:
        """Yield the rows, with at least the named columns that the table has.

        Raises:
            ArgumentError: the file is damaged; the message names the place.
        """


def files_of(paths: Sequence[str | Path]) -> list[Path]:
    """Return the files of tables: a folder stands for those in it, in the order of the numbers in their names.

    Raises:
        ArgumentError: a path does not exist, or a folder has no tables.
    """
    files: list[Path] = []
    for given in paths:
        path = Path(given)
        if path.is_dir():
            inside = sorted((p for p in path.iterdir() if p.suffix.lower() in _KINDS), key=_by_numbers)
            if not inside:
                raise ArgumentError(
                    f"{path} holds no log: no file named {', '.join('*' + s for s in _KINDS)}"
                )
            files += inside
        elif path.is_file():
            files.append(path)
        else:
            raise ArgumentError(f"{path} is not there: give files of logs, or a folder of them")
    if not files:
        raise ArgumentError("no file was given: name the logs of a run, or a folder of them")
    return files


def _by_numbers(path: Path) -> list[tuple[int, int | str]]:
    return [(0, int(part)) if part.isdigit() else (1, part) for part in re.split(r"(\d+)", path.name) if part]


def open_table(
    path: Path, *, limit: int = LONGEST_LINE, option: str | None = None, split: str | None = None
) -> Table:
    """Open a file of rows by its name, else by its first bytes; a folder is read as ``datasets`` saved it.

    Args:
        path: the file or folder.
        limit: the most bytes of a line, or characters of a CSV record, below 2 GiB.
        option: the argument that raises the limit, for errors.
        split: of a folder that holds several.

    Raises:
        ArgumentError: it cannot be read, or is none of these formats; the message names it.
        MissingExtraError: parquet without pyarrow, or a folder without datasets.
    """
    if path.is_dir():
        return _SavedDataset(path, split)
    try:
        with path.open("rb") as file:
            head = file.read(64)
    except OSError as error:
        raise ArgumentError(f"{path} cannot be read: {error}") from error
    kind = _KINDS.get(path.suffix.lower())
    if kind == "parquet" or (kind is None and head.startswith(b"PAR1")):
        return _Parquet(path)
    if kind == "jsonl" or (kind is None and head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{")):
        return _JsonLines(path, limit, option)
    if kind == "csv":
        return _Csv(path, limit, option)
    raise ArgumentError(
        f"{path} is none of parquet, JSON lines and CSV by its name or its first bytes ({head[:16]!r}); convert it, "
        f"or name it with one of {', '.join(_KINDS)}"
    )


class _Text(Table):
    """A table of lines."""

    def __init__(self, path: Path, limit: int, option: str | None) -> None:
        super().__init__(path)
        self._limit = limit
        self._raise = f"; or raise {option}" if option else ""

    def _lines(self) -> Iterator[tuple[int, str]]:
        advice = f"is it one record a line?{self._raise}"
        with self.path.open("rb") as file:
            for number, line in numbered_lines(
                file, self.path, limit=self._limit, advice=advice, error=ArgumentError
            ):
                try:
                    text = line.decode("utf-8-sig" if number == 1 else "utf-8")
                except UnicodeDecodeError as error:
                    raise ArgumentError(
                        f"{self.path}, line {number} is not UTF-8: {error}; convert the file"
                    ) from error
                yield number, text


@final
class _JsonLines(_Text):
    """One JSON object a line."""

    @cached_property
    def columns(self) -> tuple[str, ...]:
        names: dict[str, None] = {}
        for count, row in enumerate(self.rows(()), start=1):
            names.update(dict.fromkeys(row.values))
            if count == _PEEK:
                break
        if not names:
            raise ArgumentError(f"{self.path} holds no record")
        return tuple(names)

    def rows(self, names: Sequence[str]) -> Iterator[Row]:
        del names  # a line is read whole
        for number, line in self._lines():
            if not line.strip():
                continue
            try:
                record = loads(line)
            except RepeatedFieldError as error:
                raise ArgumentError(f"{self.path}, line {number}: {error}") from error
            except ValueError as error:
                raise ArgumentError(
                    f"{self.path}, line {number} is not a JSON object: {error}; {_ONE_OBJECT}"
                ) from error
            if not isinstance(record, dict):
                raise ArgumentError(
                    f"{self.path}, line {number} must be a JSON object, got {str(record)[:60]!r}; {_ONE_OBJECT}"
                )
            yield Row(self.path, "line", number, record)


@final
class _Csv(_Text):
    """Comma- or tab-separated values under a header."""

    @cached_property
    def columns(self) -> tuple[str, ...]:
        _, header = next(self._records(), (0, []))
        columns = tuple(name.strip() for name in header)
        if not any(columns):
            raise ArgumentError(f"{self.path} has no header: its first line must name the columns")
        _refuse_repeated(columns, f"{self.path}, line 1")
        return columns

    def rows(self, names: Sequence[str]) -> Iterator[Row]:
        del names  # as above
        columns, records = self.columns, self._records()
        next(records)
        for number, values in records:
            if not values:
                continue
            if len(values) != len(columns):
                raise ArgumentError(
                    f"{self.path}, line {number} has {len(values)} values for {len(columns)} columns "
                    f"({', '.join(columns):.80}); quote values that hold the separator"
                )
            yield Row(self.path, "line", number, dict(zip(columns, values, strict=True)))

    def _records(self) -> Iterator[tuple[int, list[str]]]:
        """Yield (last line, values) of each record; an open quote gathers lines up to the limit of one."""
        held = 0

        def lines() -> Iterator[str]:
            nonlocal held
            for number, line in self._lines():
                held += len(line)
                if held > self._limit:
                    raise ArgumentError(
                        f"{self.path}, line {number}: a record is longer than {shown_size(self._limit)}; is a quote "
                        f"left open?{self._raise}"
                    )
                yield line

        delimiter = "\t" if self.path.suffix.lower() == ".tsv" else ","
        reader = csv.reader(lines(), delimiter=delimiter, strict=True)
        while True:
            before = csv.field_size_limit(self._limit)  # of the whole interpreter, so only for one record
            try:
                values = next(reader, None)
            except csv.Error as error:
                raise ArgumentError(f"{self.path}, line {reader.line_num} is no CSV: {error}") from error
            finally:
                csv.field_size_limit(before)
            held = 0
            if values is None:
                return
            yield reader.line_num, values


@final
class _Parquet(Table):
    """A parquet file, read in batches of the columns that are wanted."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        try:
            import pyarrow as pa  # noqa: PLC0415 - an extra
            import pyarrow.parquet as pq  # noqa: PLC0415 - an extra
        except ImportError as error:
            raise missing_extra("pyarrow", "cli", "reading parquet") from error
        self._open = pq.ParquetFile
        # ValueError: text that is not UTF-8, or a date that Python does not have.
        self._errors = (pa.ArrowException, OSError, ValueError, OverflowError)
        try:
            with self._open(path) as file:
                schema = file.schema_arrow
                self._columns = tuple(schema.names)
        except self._errors as error:
            raise ArgumentError(f"{path} is no parquet file, or is cut short: {error}") from error
        _refuse_repeated(self._columns, f"{path}")
        kinds = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_decimal)
        self.numeric = frozenset(field.name for field in schema if any(kind(field.type) for kind in kinds))

    @property
    def columns(self) -> tuple[str, ...]:
        return self._columns

    def rows(self, names: Sequence[str]) -> Iterator[Row]:
        wanted = [name for name in names if name in self._columns]
        number = 0
        try:
            with self._open(self.path) as file:
                size = _rows_at_once(file.metadata, wanted)
                for batch in file.iter_batches(batch_size=size, columns=wanted):
                    for values in batch.to_pylist():
                        number += 1
                        yield Row(self.path, "row", number, values)
        except self._errors as error:
            raise ArgumentError(f"{self.path} is damaged after row {number}: {error}") from error


def _rows_at_once(metadata: Any, names: Sequence[str]) -> int:
    """Return how many rows of these columns a batch may hold: fewer where the file declares long ones."""
    longest = 1.0
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        columns = [group.column(i) for i in range(group.num_columns)]
        size = sum(c.total_uncompressed_size for c in columns if c.path_in_schema.split(".")[0] in names)
        longest = max(longest, size / max(group.num_rows, 1))
    return max(1, min(_BATCH, int(LONGEST_LINE / longest)))


@final
class _SavedDataset(Table):
    """A folder written by ``save_to_disk`` of ``datasets``."""

    def __init__(self, path: Path, split: str | None) -> None:
        super().__init__(path)
        try:
            from datasets import DatasetDict, load_from_disk  # noqa: PLC0415 - an extra, slow to import
        except ImportError as error:
            raise missing_extra("datasets", "train", "reading a datasets folder") from error
        try:
            data = load_from_disk(str(path))
        except FileNotFoundError as error:
            raise ArgumentError(
                f"{path}: a folder that datasets' save_to_disk did not write; give one that it wrote, or a file: "
                f"{', '.join(_KINDS)}"
            ) from error
        if isinstance(data, DatasetDict):
            if split not in data:
                raise ArgumentError(
                    f"{path}: split must be one of {', '.join(map(repr, data))}, got {split!r}"
                )
            data = data[split]
        self._data = data

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(self._data.column_names)

    def rows(self, names: Sequence[str]) -> Iterator[Row]:
        del names  # rows are mapped into memory, not read
        for number, values in enumerate(self._data, start=1):
            yield Row(self.path, "row", number, values)


def _refuse_repeated(columns: Sequence[str], where: str) -> None:
    """Refuse two columns of one name, as either may be the one that is meant."""
    if len(set(columns)) < len(columns):
        twice = next(name for name in columns if columns.count(name) > 1)
        raise ArgumentError(f"{where} names the column {twice!r} twice; rename one")
