"""Files of others, damaged in every way: a right reading, or an error of neyman's that names the file."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install 'neyman[cli]'")
import pyarrow.parquet as pq  # noqa: E402

from fuzz.mutations import changed, edited, scalars, values  # noqa: E402
from fuzz.tally import count  # noqa: E402
from neyman.errors import ArgumentError, NeymanError  # noqa: E402
from neyman.replay import Trace, read_logs  # noqa: E402
from neyman.tasks import load_problems  # noqa: E402

Rows = list[dict[str, Any]]


def _messages(text: str, role: str = "user") -> list[dict[str, str]]:
    return [{"role": role, "content": text}]


#: One valid log of each format that `neyman replay` knows.
LOGS: dict[str, Rows] = {
    "TRL": [
        {
            "step": 1 + i // 4,
            "prompt": _messages(f"prompt {i // 2}"),
            "completion": _messages(f"answer {i}", "assistant"),
            "exact_match": float(i % 3 == 0),
            "advantage": i / 7,
        }
        for i in range(8)
    ],
    "verl": [
        {
            "input": f"<|user|>{i // 2}",
            "output": "...",
            "gts": "7",
            "score": float(i % 2),
            "step": 1,
            "acc": i % 2 == 0,
        }
        for i in range(6)
    ],
    "rollouts": [
        {"prompt": f"q{i % 3}", "step": i // 3, "reward": float(i % 2), "n_tokens": 10 + i} for i in range(9)
    ],
    "counts": [
        {"prompt_id": i, "visit": v, "successes": (i + v) % 5, "trials": 4, "tokens": 9.5}
        for i in range(3)
        for v in range(2)
    ],
}
SUFFIXES = ("parquet", "jsonl", "csv", "tsv")
_named = st.sampled_from([str.lower, str.upper])  # a file's suffix means the same in either case


def encoded(rows: Rows, suffix: str) -> bytes:
    """Return rows as a file's bytes, JSON in the cells that cannot hold what they should."""
    if suffix == "parquet":
        try:
            return as_parquet(rows)
        except (pa.ArrowException, UnicodeError, OverflowError, ValueError, TypeError, AttributeError):
            return as_parquet([{k: as_cell(v) for k, v in row.items()} for row in rows])
    if suffix == "jsonl":
        return "".join(json.dumps(row) + "\n" for row in rows).encode()
    text = io.StringIO(newline="")
    names = list(dict.fromkeys(name for row in rows for name in row))
    writer = csv.DictWriter(text, names, delimiter="\t" if suffix == "tsv" else ",")
    writer.writeheader()
    for row in rows:
        writer.writerow({k: json.dumps(v) if isinstance(v, list | dict) else v for k, v in row.items()})
    return text.getvalue().encode("utf-8", "surrogatepass")


def as_parquet(rows: Rows, twice: int | None = None) -> bytes:
    """Return rows as parquet, with one of the columns there twice."""
    buffer, table = io.BytesIO(), pa.Table.from_pylist(rows)
    if twice is not None:
        at = twice % table.num_columns
        table = table.append_column(table.field(at), table.column(at))
    pq.write_table(table, buffer)
    return buffer.getvalue()


def as_cell(value: Any) -> str | None:
    """Return a value as text that every format can hold."""
    text = value if isinstance(value, str) else json.dumps(value)
    return None if value is None else text.encode("utf-8", "replace").decode()


VALID = {(name, suffix): encoded(rows, suffix) for name, rows in LOGS.items() for suffix in SUFFIXES}


def refusal(call: Callable[[], Any], path: Path, kind: type[NeymanError]) -> tuple[Any, str]:
    """Return what a call returned, and the error that it raised, which must name the file."""
    try:
        return call(), ""
    except kind as error:
        said = str(error)
    assert str(path) in said, f"the error does not name the file: {said}"
    return None, said


def read(path: Path, data: bytes, **options: Any) -> tuple[Trace, Any] | None:
    """Read a log; None where it is refused, which must name the file."""
    path.write_bytes(data)
    result, said = refusal(lambda: read_logs([path], keep_texts=True, **options), path, ArgumentError)
    if said:
        return None
    trace, found, _ = result
    assert (trace.trials >= 1).all()
    assert np.isfinite(trace.time).all()
    assert trace.tokens is None or np.isfinite(trace.tokens).all()
    assert np.isfinite(trace.passes)
    assert found.rollouts == trace.trials.sum()
    json.dumps(found.as_dict(), allow_nan=False)
    assert all(found.sentences())
    return trace, found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz")


@pytest.mark.parametrize(("name", "suffix"), VALID)
def test_logs_with_edited_bytes(folder: Path, name: str, suffix: str) -> None:
    @given(edited(VALID[name, suffix]), _named)
    def try_one(data: bytes, case: Callable[[str], str]) -> None:
        read_one = read(folder / f"{name}.{case(suffix)}", data)
        count(f"replay, {suffix}, bytes", "refused" if read_one is None else "read")

    try_one()


@st.composite
def changed_rows(draw: st.DrawFn, rows: Rows) -> Rows:
    """Draw rows of which some hold other values, lack a field, or have one more."""
    found = draw(changed(rows, most=3))
    assume(isinstance(found, list) and found and all(isinstance(row, dict) for row in found))
    return found


@pytest.mark.parametrize(("name", "suffix"), VALID)
def test_logs_with_other_values(folder: Path, name: str, suffix: str) -> None:
    @given(changed_rows(LOGS[name]), st.sampled_from([None, 0.5, -1.0]), _named)
    def try_one(rows: Rows, threshold: float | None, case: Callable[[str], str]) -> None:
        path = folder / f"{name}.{case(suffix)}"
        read_one = read(path, encoded(rows, suffix), success_threshold=threshold)
        count(f"replay, {suffix}, values", "refused" if read_one is None else "read")
        if read_one is None:
            return
        trace, found = read_one
        written = sum(any(value not in (None, "") for value in row.values()) for row in rows)
        if found.files[0].format == "counts":
            assert len(rows) >= trace.prompts
        elif suffix != "parquet" or written == len(rows):
            lines = found.rollouts + found.missing + found.repeated
            assert written <= lines <= len(rows), "a row was lost, or read twice"

    try_one()


@given(st.sampled_from(sorted(LOGS)), st.integers(0, 9))
def test_logs_and_problems_with_a_column_twice(folder: Path, name: str, column: int) -> None:
    path = folder / "twice.parquet"
    for rows, reader in ((LOGS[name], read_logs), (PROBLEMS, load_problems)):
        path.write_bytes(as_parquet(rows, twice=column))
        _, said = refusal(
            lambda reader=reader: reader([path] if reader is read_logs else path), path, ArgumentError
        )
        assert "rename one" in said
        count("parquet, a column twice", "refused")


_NAMED = ("p", "r", "s", "k", "n", "t")
_ROLES = (
    ("prompt=p", "reward=r", "step=s", "tokens=t"),
    ("id=p", "success=r", "visit=s"),
    ("id=p", "successes=k", "trials=n", "success_tokens=t", "failure_tokens=t"),
    ("prompt=p", "successes=k", "trials=n", "tokens=t", "step=s"),
)
_cells = st.sampled_from([0, 1, 1.0, "1", True]) | scalars | values
_records = st.lists(st.fixed_dictionaries(dict.fromkeys(_NAMED, _cells)), min_size=1, max_size=4)


@given(_records, st.sampled_from(_ROLES), st.sampled_from(SUFFIXES), st.sampled_from([None, 0.5]))
def test_any_records_under_any_roles(
    folder: Path, rows: Rows, columns: tuple[str, ...], suffix: str, threshold: float | None
) -> None:
    path = folder / f"any.{suffix}"
    read_one = read(path, encoded(rows, suffix), columns=columns, success_threshold=threshold)
    count("replay, any records", "refused" if read_one is None else "read")


PROBLEMS: Rows = [{"prompt": f"{i} + 1 =", "answer": i + 1, "level": i % 2} for i in range(5)]
CHATS: Rows = [{"prompt": _messages(f"{i}?"), "answer": str(i)} for i in range(4)]


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("rows", [PROBLEMS, CHATS], ids=["text", "chat"])
def test_problems_with_edited_bytes_or_other_values(folder: Path, rows: Rows, suffix: str) -> None:
    valid = encoded(rows, suffix)

    @given(edited(valid) | changed_rows(rows), _named)
    def try_one(damaged: bytes | Rows, case: Callable[[str], str]) -> None:
        path = folder / f"problems.{case(suffix)}"
        path.write_bytes(damaged if isinstance(damaged, bytes) else encoded(damaged, suffix))
        problems, said = refusal(lambda: load_problems(path, duplicates="number"), path, NeymanError)
        assert said or problems
        assert said or all(isinstance(one.answer, str) and one.answer for one in problems)
        if suffix == "jsonl" and isinstance(damaged, list):
            answers = [row.get("answer") for row in damaged]
            assert said or not any(isinstance(a, float) and not math.isfinite(a) for a in answers)
        count(f"task data, {suffix}", "refused" if said else "read")

    try_one()
