"""The user's own prompts and answers: JSONL, CSV, TSV, parquet, or a folder saved by ``datasets``.

Every refusal names the file, the line (or row) and the field.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from neyman import _checks
from neyman._files.tables import Row, Table, open_table
from neyman.errors import ArgumentError
from neyman.tasks._task import Duplicates, Problem, Prompt, Task, problem, resolve_duplicates

MAX_LINE_BYTES = 1 << 20
_LONGEST = 2**31 - 1  # the csv module takes no larger limit everywhere


def _field(table: Table, row: Row, name: str) -> Any:
    if name not in row.values:
        # Lines have fields of their own; of parquet only the wanted columns were read.
        names = row.values if row.unit == "line" else table.columns
        there = ", ".join(repr(key) for key in list(names)[:12])
        raise ArgumentError(f"{row.where()}: field {name!r} is missing; the fields there are {there}")
    value = row.values[name]
    if value is None or value == "":
        raise ArgumentError(f"{row.where()}: field {name!r} is empty; fill it in or remove the row")
    return value


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
    """Read prompts and answers, in file order, from a file or a ``datasets`` folder; ids are by content.

    Args:
        path: JSONL, CSV, TSV or parquet file, by suffix, or a folder written by ``save_to_disk``.
        prompt: name of the field with the prompt: text, or a list of chat messages.
        answer: name of the field with the answer: text, or a finite number.
        metadata: further fields to keep with each problem.
        split: of a folder that holds several.
        duplicates: the treatment of rows of equal prompt and answer: "refuse", "drop", "number".
        max_line_bytes: longest line, and longest CSV record, of a text file; below 2 GiB.

    Raises:
        ArgumentError: names the file, the line or row, and the field.
        MissingExtraError: parquet or a folder, and ``pyarrow`` or ``datasets`` is not installed.
    """
    limit = _checks.integer("max_line_bytes", max_line_bytes, low=1, high=_LONGEST)
    location = Path(path)
    if not location.exists():
        raise ArgumentError(f"path must be a file or a datasets folder, but {location} does not exist")
    table = open_table(location, limit=limit, option="max_line_bytes", split=split)
    problems: list[Problem] = []
    for row in table.rows((prompt, answer, *metadata)):
        where = row.where()
        item = problem(
            _prompt(where, prompt, _field(table, row, prompt)),
            _answer(where, answer, _field(table, row, answer)),
            {name: _field(table, row, name) for name in metadata},
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
    train: list[Problem] = []
    test: list[Problem] = []
    for item in problems:
        digest = hashlib.sha256(json.dumps([seed, item.prompt], sort_keys=True).encode()).digest()
        is_test = float(int.from_bytes(digest[:8], "big")) < share * 2.0**64
        (test if is_test else train).append(item)
    return train, test


def file_task(
    train: str | Path,
    test: str | Path | None = None,
    *,
    test_share: float = 0.1,
    seed: int = 0,
    **options: Any,
) -> Task:
    """Build a task, named after the training file, from the user's own files.

    Without a file ``test`` of held-out problems, a share of ``train`` is held out (`split_problems`). Other options and
    the errors are those of `load_problems`.
    """
    problems = load_problems(train, **options)
    if test is not None:
        return Task(name=Path(train).stem, train=problems, test=load_problems(test, **options))
    kept, held = split_problems(problems, test_share, seed)
    return Task(name=Path(train).stem, train=kept, test=held)
