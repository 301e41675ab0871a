"""The user's own prompts and answers: JSONL, CSV, TSV, parquet, or a folder saved by ``datasets``.

Every refusal names the file, the line (or row) and the field. Lines are read with a cap, so a damaged file
cannot fill the memory.
"""

from __future__ import annotations

import csv
import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from neyman import _checks
from neyman._files.json import RepeatedFieldError, loads
from neyman._files.records import RecordBound
from neyman.errors import ArgumentError, missing_extra
from neyman.tasks._task import Duplicates, Problem, Prompt, Task, problem, resolve_duplicates

MAX_LINE_BYTES = 1 << 20
_LONGEST = 2**31 - 1  # the csv module takes no larger limit everywhere
_SUFFIXES = ".jsonl, .ndjson, .json (one object a line), .csv, .tsv, .parquet"


def _lines(path: Path, limit: int) -> Iterator[tuple[int, str]]:
    """Yield (line number from 1, text); no line longer than ``limit`` bytes is ever held."""
    with path.open("rb") as stream:
        number = 0
        while line := stream.readline(limit + 1):
            number += 1
            if len(line) > limit:
                raise ArgumentError(
                    f"{path}:{number}: the line is longer than {limit} bytes; is this file one object a line? "
                    "If so, raise max_line_bytes"
                )
            try:
                yield number, line.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                raise ArgumentError(f"{path}:{number}: not UTF-8 text ({error}); convert the file") from error


def _jsonl(path: Path, limit: int) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for number, line in _lines(path, limit):
        if not line.strip():
            continue
        try:
            row = loads(line)
        except RepeatedFieldError as error:
            raise ArgumentError(f"{path}:{number}: {error}") from error
        except ValueError as error:
            raise ArgumentError(f"{path}:{number}: not a JSON object: {error}") from error
        if not isinstance(row, dict):
            raise ArgumentError(
                f"{path}:{number}: each line must be a JSON object with a prompt and an answer, "
                f"got {type(row).__name__}"
            )
        yield f"{path}:{number}", row


def _next(reader: Iterator[list[str]], limit: int) -> list[str] | None:
    """Return the next record, of which a field may be as long as a line; the csv module's own limit is global."""
    before = csv.field_size_limit(limit)
    try:
        return next(reader, None)
    finally:
        csv.field_size_limit(before)


def _csv(path: Path, limit: int) -> Iterator[tuple[str, Mapping[str, Any]]]:
    bound = RecordBound(
        limit,
        lambda number: ArgumentError(
            f"{path}:{number}: a record is longer than {limit} bytes; is a quote left open? Else raise max_line_bytes"
        ),
    )
    reader = csv.reader(
        bound.lines(_lines(path, limit)),
        delimiter="\t" if path.suffix.lower() == ".tsv" else ",",
        strict=True,
    )
    try:
        header = _next(reader, limit)
        if header is None:
            raise ArgumentError(f"{path}: the file is empty; its first line must name the columns")
        if len(set(header)) != len(header):
            raise ArgumentError(f"{path}:1: column names repeat: {header}; rename one")
        bound.close()
        while (values := _next(reader, limit)) is not None:
            bound.close()
            if not values:
                continue
            where = f"{path}:{reader.line_num}"
            if len(values) != len(header):
                raise ArgumentError(
                    f"{where}: {len(values)} values for the {len(header)} columns {header}; "
                    "quote values that hold the delimiter"
                )
            yield where, dict(zip(header, values, strict=True))
    except csv.Error as error:
        raise ArgumentError(f"{path}:{reader.line_num}: not valid CSV: {error}") from error


def _parquet(path: Path, columns: Sequence[str]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    try:
        import pyarrow as pa  # noqa: PLC0415 - an extra
        import pyarrow.parquet as pq  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise missing_extra("pyarrow", "train", "reading parquet") from error
    try:
        with pq.ParquetFile(path) as file:
            names = file.schema_arrow.names
        there = set(names)
        if len(there) != len(names):
            raise ArgumentError(f"{path}: column names repeat: {names}; rename one")
        file = pq.ParquetFile(path)
    except (pa.ArrowException, OSError, UnicodeError) as error:
        raise ArgumentError(f"{path}: not a parquet file, or cut short: {error}") from error
    with file:
        number = 0
        try:
            for batch in file.iter_batches(batch_size=1024, columns=[n for n in columns if n in there]):
                rows = batch.to_pylist()
                for row in rows:
                    number += 1
                    # What was not read is named all the same, for the message about a missing field.
                    yield (
                        f"{path}: row {number}",
                        row if set(columns) <= there else dict.fromkeys(there) | row,
                    )
        except (pa.ArrowException, OSError, UnicodeError, OverflowError) as error:
            raise ArgumentError(f"{path}: damaged after row {number}: {error}") from error


def _saved(path: Path, split: str | None) -> Iterator[tuple[str, Mapping[str, Any]]]:
    try:
        from datasets import DatasetDict, load_from_disk  # noqa: PLC0415 - an extra, slow to import
    except ImportError as error:
        raise missing_extra("datasets", "train", "reading a datasets folder") from error
    try:
        data = load_from_disk(str(path))
    except FileNotFoundError as error:
        raise ArgumentError(
            f"{path}: a folder that datasets' save_to_disk did not write; give it, or a file: {_SUFFIXES}"
        ) from error
    if isinstance(data, DatasetDict):
        if split not in data:
            raise ArgumentError(f"{path}: split must be one of {', '.join(map(repr, data))}, got {split!r}")
        data = data[split]
    for number, row in enumerate(data, start=1):
        yield f"{path}: row {number}", row


def _rows(
    path: Path, columns: Sequence[str], split: str | None, limit: int
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    suffix = path.suffix.lower()
    if not path.exists():
        raise ArgumentError(f"path must be a file or a datasets folder, but {path} does not exist")
    if path.is_dir():
        return _saved(path, split)
    if suffix in {".jsonl", ".ndjson", ".json"}:
        return _jsonl(path, limit)
    if suffix in {".csv", ".tsv"}:
        return _csv(path, limit)
    if suffix == ".parquet":
        return _parquet(path, columns)
    raise ArgumentError(
        f"{path}: unknown kind of file {suffix!r}; expected {_SUFFIXES}, or a datasets folder"
    )


def _field(where: str, row: Mapping[str, Any], name: str) -> Any:
    if name not in row:
        there = ", ".join(repr(key) for key in list(row)[:12])
        raise ArgumentError(f"{where}: field {name!r} is missing; the fields there are {there}")
    if row[name] is None or row[name] == "":
        raise ArgumentError(f"{where}: field {name!r} is empty; fill it in or remove the row")
    return row[name]


def _prompt(where: str, name: str, value: Any) -> Prompt:
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(
        isinstance(message, dict) and isinstance(message.get("role"), str) and "content" in message
        for message in value
    ):
        # Arrow gives each message the keys of all, filled with None, which would change the content's hash.
        return [{key: item for key, item in message.items() if item is not None} for message in value]
    raise ArgumentError(
        f'{where}: field {name!r} must be text or a list of {{"role", "content"}} messages, got {value!r:.120}'
    )


def _answer(where: str, name: str, value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if isinstance(value, float) and math.isfinite(value):
        return str(value)
    raise ArgumentError(f"{where}: field {name!r} must be text or a finite number, got {value!r:.120}")


def load_problems(
    path: str | Path,
    *,
    prompt: str = "prompt",
    answer: str = "answer",
    metadata: Sequence[str] = (),
    split: str | None = "train",
    duplicates: Duplicates = "refuse",
    max_line_bytes: int = MAX_LINE_BYTES,
) -> list[Problem]:
    """Read prompts and answers from a file or a ``datasets`` folder.

    Args:
        path: JSONL, CSV, TSV or parquet file, by suffix, or a folder written by ``save_to_disk``.
        prompt: name of the field with the prompt: text, or a list of chat messages.
        answer: name of the field with the answer: text, or a finite number.
        metadata: further fields to keep with each problem.
        split: of a folder that holds several.
        duplicates: what to do with rows of equal prompt and answer: "refuse", "drop", "number".
        max_line_bytes: longest line, and longest CSV record, of a text file; below 2 GiB.

    Returns:
        The problems, in file order, ids by content.

    Raises:
        ArgumentError: names the file, the line or row, and the field.
        MissingExtraError: parquet or a folder, and ``pyarrow`` or ``datasets`` is not installed.
    """
    limit = _checks.integer("max_line_bytes", max_line_bytes, low=1, high=_LONGEST)
    location = Path(path)
    kept = tuple(metadata)
    problems: list[Problem] = []
    for where, row in _rows(location, (prompt, answer, *kept), split, limit):
        item = problem(
            _prompt(where, prompt, _field(where, row, prompt)),
            _answer(where, answer, _field(where, row, answer)),
            {name: _field(where, row, name) for name in kept},
        )
        problems.append(item)
    if not problems:
        raise ArgumentError(f"{location}: no rows; give at least one prompt with its answer")
    return resolve_duplicates(problems, duplicates)


def split_problems(
    problems: Sequence[Problem], test_share: float = 0.1, seed: int = 0
) -> tuple[list[Problem], list[Problem]]:
    """Split problems into (train, test) by a hash of (seed, prompt), so that the split survives new rows.

    A problem's side depends on nothing but its prompt and the seed: rows that share a prompt stay together,
    and adding or shuffling rows moves none across. The share is met on average, not exactly.

    >>> from neyman.tasks import problem
    >>> train, test = split_problems([problem(str(i), "x") for i in range(1000)], 0.2)
    >>> len(train) + len(test), 150 < len(test) < 250
    (1000, True)
    """
    share = _checks.real("test_share", test_share, low=0.0, high=1.0)
    draws = np.array(
        [
            int.from_bytes(
                hashlib.sha256(json.dumps([seed, item.prompt], sort_keys=True).encode()).digest()[:8], "big"
            )
            for item in problems
        ],
        dtype=np.float64,
    )
    is_test = draws < share * 2.0**64
    train = [item for item, held in zip(problems, is_test, strict=True) if not held]
    return train, [item for item, held in zip(problems, is_test, strict=True) if held]


def file_task(
    train: str | Path,
    test: str | Path | None = None,
    *,
    test_share: float = 0.1,
    seed: int = 0,
    **options: Any,
) -> Task:
    """Build a task from the user's own files.

    Args:
        train: see `load_problems`.
        test: a file of held-out problems; by default a share of ``train`` is held out.
        test_share: see `split_problems`; read only without ``test``.
        seed: see `split_problems`.
        **options: further arguments of `load_problems`.

    Returns:
        The task, named after the training file.
    """
    problems = load_problems(train, **options)
    if test is not None:
        return Task(name=Path(train).stem, train=problems, test=load_problems(test, **options))
    kept, held = split_problems(problems, test_share, seed)
    return Task(name=Path(train).stem, train=kept, test=held)
