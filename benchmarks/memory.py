"""Measure the memory of reading files of a million prompts, with a line of a gigabyte, and of a gigabyte in one object.

``python benchmarks/memory.py [--prompts N] [--line-bytes N] [--json]``: each file is read by a process of its own,
which reports the growth of its resident memory. Files with a long line are sparse, so that they need no disk.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import resource
import tempfile
from pathlib import Path

from neyman.config import read_toml
from neyman.errors import NeymanError
from neyman.lab._saved import read_run
from neyman.replay import read_logs
from neyman.report._lines import read_events, read_object
from neyman.tasks import load_problems
from neyman.train._folder import RunFolder
from neyman.train._tail import Tail

# Readers of a file of one run or one setting, which is not read by lines.
WHOLE = {
    "a run's head": ("run.json", read_object),
    "a run of the lab": ("seed0.json", read_run),
    "settings": ("config.toml", read_toml),
}
# Address space that a reading process may take beyond that of its imports.
ROOM_BYTES = 256 * 2**20


def write_prompts(folder: Path, count: int) -> dict[str, tuple[str, Path]]:
    """Write files of different prompts, and return the reader of each: name -> (reader, file)."""
    problems, table, log = folder / "problems.jsonl", folder / "problems.csv", folder / "log.jsonl"
    with problems.open("w") as lines, table.open("w", newline="") as cells, log.open("w") as rollouts:
        rows = csv.writer(cells)
        rows.writerow(["prompt", "answer"])
        for number in range(count):
            prompt = f"What is the smallest prime above {number}? Put your answer into a box."
            lines.write(json.dumps({"prompt": prompt, "answer": str(number)}) + "\n")
            rows.writerow([prompt, number])
            rollouts.write(json.dumps({"prompt": prompt, "step": number // 128, "reward": number % 2}) + "\n")
    return {
        "prompts of a task, JSONL": ("problems", problems),
        "prompts of a task, CSV": ("problems", table),
        "prompts of a log, JSONL": ("log", log),
    }


def write_long_lines(folder: Path, size: int) -> dict[str, tuple[str, Path]]:
    """Write files whose second line is ``size`` bytes long."""
    first = {
        "problems": ("jsonl", '{"prompt": "a", "answer": "b"}'),
        "log": ("jsonl", '{"prompt": "a", "reward": 1}'),
    }
    tables = {"problems": "prompt,answer", "log": "prompt,reward"}
    found = {}
    for reader, (suffix, line) in first.items():
        for kind, head in ((suffix, line), ("csv", tables[reader])):
            path = folder / f"long {reader}.{kind}"
            path.write_text(head + "\n")
            with path.open("ab") as file:
                file.truncate(size + len(head) + 1)
            found[f"a line of {size:,} bytes, {reader}, {kind}"] = reader, path
    run = folder / "run"
    run.mkdir()
    with (run / "metrics.jsonl").open("wb") as file:
        file.write(b'{"event": "eval", "step": 0, "rollouts": 0, "accuracy": 0.5}\n')
        file.truncate(size)
    for reader in ("report", "resume", "progress"):
        found[f"a line of {size:,} bytes, a run's metrics, {reader}"] = reader, run / "metrics.jsonl"
    for reader, (name, _) in WHOLE.items():
        with (run / name).open("wb") as file:
            file.truncate(size)
        found[f"a file of {size:,} bytes, {reader}"] = reader, run / name
    return found


def read_with(reader: str, path: Path) -> int:
    """Read a file with the named reader, and return its number of prompts."""
    if reader == "problems":
        return len(load_problems(path))
    if reader == "log":
        return read_logs([path])[0].prompts
    if reader == "report":
        return len(read_events(path).steps)
    if reader == "resume":
        return RunFolder(path.parent).rewind().step
    if reader == "progress":
        tail = Tail(RunFolder(path.parent))
        tail.read()
        return tail.step
    WHOLE[reader][1](path)
    return 0


def read(reader: str, path: Path, room: int) -> dict[str, object]:
    """Read a file in this process under a limit on its address space, and return the result."""
    if room:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit = pages * resource.getpagesize() + room
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    error, size = None, 0
    try:
        size = read_with(reader, path)
    except NeymanError as refused:
        error = str(refused)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    return {"error": error, "prompts": size, "grown_bytes": 1024 * grown}


def in_a_process(reader: str, path: Path, room: int) -> dict[str, object]:
    """Read a file in a fork of this process, which already has the imports."""
    here, there = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.write(there, json.dumps(read(reader, path, room)).encode())
            status = 0
        finally:
            os._exit(status)
    os.close(there)
    with os.fdopen(here, "rb") as pipe:
        said = pipe.read()
    _, ended = os.waitpid(child, 0)
    result = json.loads(said) if said else {"error": "the process died", "prompts": 0, "grown_bytes": 0}
    return {"status": os.waitstatus_to_exitcode(ended), **result}


def measure(prompts: int, line_bytes: int) -> dict[str, dict[str, object]]:
    """Write the files, read each in a process of its own, and return the reports."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        results = {}
        if prompts:
            for what, (reader, path) in write_prompts(folder, prompts).items():
                results[what] = in_a_process(reader, path, 0)
        if line_bytes:
            for what, (reader, path) in write_long_lines(folder, line_bytes).items():
                results[what] = in_a_process(reader, path, ROOM_BYTES)
        return results


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--prompts", type=int, default=1_000_000)
    parser.add_argument("--line-bytes", type=int, default=10**9)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    results = measure(options.prompts, options.line_bytes)
    if options.json:
        print(json.dumps(results))
        return
    for what, result in results.items():
        grown = int(str(result.get("grown_bytes", 0)))
        each = f", {grown / options.prompts:.0f} bytes a prompt" if result.get("prompts") else ""
        print(f"{what}: {grown / 2**20:.0f} MiB{each}; {result['error'] or 'read whole'}")


if __name__ == "__main__":
    main()
