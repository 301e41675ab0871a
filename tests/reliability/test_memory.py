"""Files that would fill the memory: a line of a gigabyte, a record without end, long rows, very many prompts."""

from __future__ import annotations

import json
import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest

pytest.importorskip("resource", reason="limits on memory are POSIX")

from neyman._files.tables import open_table
from neyman.errors import ArgumentError
from neyman.tasks import load_problems

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "memory.py"
PROMPTS, LINE = 20_000, 10**9
MIB = 2**20


@pytest.fixture(scope="module")
def measured():
    """Return what each reader said of its file, each in a process with 256 MiB to spare."""
    for module, extra in (("torch", "train"), ("pydantic", "cli")):
        pytest.importorskip(module, reason=f"{module} is not installed: pip install 'neyman[{extra}]'")
    words = [sys.executable, str(SCRIPT), "--prompts", str(PROMPTS), "--line-bytes", str(LINE), "--json"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=250, check=True)
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    ("reader", "kind", "limit"),
    [
        ("problems", "jsonl", "1 MiB"),
        ("problems", "csv", "1 MiB"),
        ("log", "jsonl", "16 MiB"),
        ("log", "csv", "16 MiB"),
        ("a run's metrics, report", None, "64 MiB"),
        ("a run's metrics, resume", None, "64 MiB"),
        ("a run's metrics, progress", None, "64 MiB"),
    ],
)
def test_a_line_of_a_gigabyte_is_refused_by_file_line_and_limit(measured, reader, kind, limit):
    words = f"{reader}, {kind}" if kind else reader
    said = measured[f"a line of {LINE:,} bytes, {words}"]
    assert said["status"] == 0, said["error"]
    name = f"long {reader}.{kind}" if kind else "metrics.jsonl"
    assert name in said["error"]
    assert f"{name}, line 2:" in said["error"]
    assert limit in said["error"]


@pytest.mark.parametrize(
    ("reader", "name", "limit"),
    [
        ("a run's head", "run.json", "64 MiB"),
        ("a run of the lab", "seed0.json", "64 MiB"),
        ("settings", "config.toml", "1 MiB"),
    ],
)
def test_a_file_of_a_gigabyte_is_refused_by_its_size_and_the_limit(measured, reader, name, limit):
    said = measured[f"a file of {LINE:,} bytes, {reader}"]
    assert said["status"] == 0, said["error"]
    assert name in said["error"]
    assert f"{LINE:,} bytes, more than the limit of {limit}" in said["error"]
    assert said["grown_bytes"] < 16 * MIB


@pytest.mark.parametrize(
    "what", ["prompts of a task, JSONL", "prompts of a task, CSV", "prompts of a log, JSONL"]
)
def test_many_prompts_cost_bytes_each(measured, what):
    said = measured[what]
    assert said["prompts"] == PROMPTS
    assert said["grown_bytes"] < 8 * MIB + 900 * PROMPTS


@pytest.mark.parametrize("cell", ['"\n",', '"a\n","b\n",'])
def test_a_csv_record_without_end_is_refused_where_it_is_too_long(tmp_path, cell):
    path = tmp_path / "table.csv"
    path.write_text("prompt,reward\nfirst,1\n" + cell * (2 * MIB // len(cell)))
    words = r"table\.csv, line \d+: a record is longer than 1 MiB; is a quote left open"
    with pytest.raises(ArgumentError, match=words):
        load_problems(path, answer="reward")
    with pytest.raises(ArgumentError, match=words):
        list(open_table(path, limit=MIB).rows(["prompt", "reward"]))


def test_a_record_may_span_lines_and_others_follow(tmp_path):
    path = tmp_path / "table.csv"
    long = '"' + "x\n" * 1000 + '"'
    path.write_text("prompt,answer\n" + f"{long},1\n" * 3 + "".join(f"p{i},2\n" for i in range(5)))
    assert len(load_problems(path, max_line_bytes=3000, duplicates="number")) == 8


@pytest.mark.parametrize("suffix", ["jsonl", "csv", "parquet"])
def test_few_long_rows_are_held_at_once(tmp_path, suffix):
    path, text, rows = tmp_path / f"long.{suffix}", "x" * (2 * MIB), 24
    if suffix == "parquet":
        pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        texts = [f"{i}{text}" for i in range(rows)]
        pq.write_table(pa.table({"prompt": texts, "reward": [1] * rows}), path, use_dictionary=False)
    elif suffix == "csv":
        path.write_text("prompt,reward\n" + "".join(f"{i}{text},1\n" for i in range(rows)))
    else:
        path.write_text(
            "".join(json.dumps({"prompt": f"{i}{text}", "reward": 1}) + "\n" for i in range(rows))
        )
    table = open_table(path)
    tracemalloc.start()
    assert sum(1 for _ in table.rows(["prompt", "reward"])) == rows
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 32 * MIB  # of 48
