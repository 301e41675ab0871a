"""What runs leave behind, damaged in every way: read as it stands, done again, or refused by the file's name."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuzz.mutations import damaged
from fuzz.tally import count
from neyman.errors import NeymanError, StateError
from neyman.replay import _runs
from neyman.report import comparison_summary, load_runs, summary
from report.synthetic import write_run

pytest.importorskip("torch", reason="torch is not installed: pip install 'neyman[train]'")

from neyman.cli._compare import CompareCommand, _settle
from neyman.lab.experiment import METRICS, Experiment
from neyman.lab.grid import grid, load_grid
from neyman.train._folder import RunFolder
from neyman.train._tail import Tail


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("folders")


def refused(error: NeymanError, path: Path) -> None:
    """An error names the file."""
    assert str(path) in str(error), f"the error does not name {path}: {error}"


@pytest.fixture(scope="module")
def run_files(folder: Path) -> dict[str, list[Any]]:
    """Return the JSON of each line of a run's files."""
    run = write_run(folder / "whole", "sara", steps=2, prompts=3, budget=12, every=1)
    return {path.name: [json.loads(line) for line in path.read_text().splitlines()] for path in run.iterdir()}


@st.composite
def one_damaged(draw: st.DrawFn, files: dict[str, list[Any]]) -> tuple[str, dict[str, bytes]]:
    """Draw a run's files, one of which has a damaged line, and its name."""
    name = draw(st.sampled_from(["run.json", "metrics.jsonl", "metrics.jsonl", "metrics.jsonl", "done.json"]))
    content = {other: [json.dumps(line).encode() for line in lines] for other, lines in files.items()}
    at = draw(st.integers(0, len(content[name]) - 1))
    content[name][at] = draw(damaged(files[name][at]))
    return name, {other: b"".join(line + b"\n" for line in lines) for other, lines in content.items()}


def test_a_run_is_read_and_summed_up_or_refused_by_the_file(
    folder: Path, run_files: dict[str, list[Any]]
) -> None:
    @given(one_damaged(run_files))
    def try_one(drawn: tuple[str, dict[str, bytes]]) -> None:
        name, files = drawn
        run = folder / "runs" / "sara-seed0"
        run.mkdir(parents=True, exist_ok=True)
        for other, content in files.items():
            (run / other).write_bytes(content)
        try:
            runs = load_runs(run.parent)
        except NeymanError as error:
            refused(error, run / name)
            count("run folder, read", "refused")
            return
        json.dumps(summary(runs), allow_nan=False)
        count("run folder, read", "read")

    try_one()


def test_a_run_is_gone_on_with_and_watched_or_refused_by_the_file(
    folder: Path, run_files: dict[str, list[Any]]
) -> None:
    @given(one_damaged(run_files))
    def try_one(drawn: tuple[str, dict[str, bytes]]) -> None:
        run = RunFolder(folder / "resumed")
        shutil.rmtree(run.path, ignore_errors=True)
        run.path.mkdir()
        run.metrics.write_bytes(drawn[1]["metrics.jsonl"])
        for use in (Tail(run).read, run.rewind):
            try:
                use()
            except StateError as error:
                refused(error, run.metrics)
                count("run folder, resumed", "refused")
                continue
            count("run folder, resumed", "read")

    try_one()


def one_part_damaged(run: dict[str, Any], part: str) -> st.SearchStrategy[bytes]:
    """Draw the bytes of a run of which one part is damaged."""
    before, after = json.dumps({**run, part: "here"}).encode().split(b'"here"')
    return damaged(run[part]).map(lambda content: before + content + after)


def lab_run(cell: Any) -> dict[str, Any]:
    """Return what a run in the lab writes."""
    curve = {
        "rollouts": [0, 64, 128],
        "tokens": [0, 250, 500],
        "step": [1, 2, 4],
        "accuracy": [0.1, 0.2, 0.4],
    }
    steps = {name: [1.0, 2.0, 0.5] for name in METRICS}
    return {"experiment": asdict(cell.experiment), "seed": cell.seed, "curve": curve, "steps": steps}


def test_a_run_of_the_lab_is_compared_or_refused_by_the_file(folder: Path) -> None:
    axes: dict[str, Any] = {"regimes": ["easy"], "strategies": ["uniform", "oracle"], "seeds": [0, 1]}
    cells = grid(Experiment(rollouts=128), **axes, rates=[1e-3], group_sizes=[4])
    out = folder / "grid"
    for cell in cells:
        path = out / f"{cell.name}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(lab_run(cell)))
    target = out / f"{cells[0].name}.json"
    assert len(load_grid(cells, out)) == len(cells)

    whole = lab_run(cells[0])
    series = st.sampled_from(["curve", "steps"]).flatmap(lambda part: one_part_damaged(whole, part))

    @given(series | damaged(whole))
    def try_one(content: bytes) -> None:
        target.write_bytes(content)
        try:
            runs = load_grid(cells, out)
        except StateError as error:
            refused(error, target)
            count("lab run", "refused")
            return
        json.dumps(comparison_summary(runs), allow_nan=False)
        count("lab run", "read")

    try_one()


def test_settings_of_a_comparison_are_taken_up_or_refused_by_the_file(folder: Path) -> None:
    command = CompareCommand(out=folder / "compare")
    _settle(command, resume=False)
    path = command.out / "compare.json"
    whole = path.read_bytes()

    @given(damaged(json.loads(whole)))
    def try_one(content: bytes) -> None:
        path.write_bytes(content)
        try:
            _settle(command, resume=True)
        except NeymanError as error:
            refused(error, path)
            count("comparison", "refused")
            return
        assert path.read_bytes() == whole
        count("comparison", "taken up")

    try_one()


def test_a_kept_replay_is_what_was_written_or_done_again(folder: Path) -> None:
    figures = {"rollouts": 40.0, "log_loss": None, "fates": {"trained": 3}, "series": {"passes": [0.5, 1.0]}}
    record = {
        "key": "k",
        "strategy": "vip",
        "seed": 0,
        "figures": figures,
        "checksum": _runs._checksum(figures),
    }
    path = folder / "vip-0.json"
    path.write_text(json.dumps(record))
    assert _runs._kept(path, "k") == figures

    @given(damaged(record))
    def try_one(content: bytes) -> None:
        path.write_bytes(content)
        kept = _runs._kept(path, "k")
        assert kept is None or json.dumps(kept) == json.dumps(figures)
        count("kept replay", "done again" if kept is None else "kept")

    try_one()
