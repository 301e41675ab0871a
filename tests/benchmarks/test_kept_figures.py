"""What run_all keeps of a replay: the summary's figures, and each seed's waste factor."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def keep(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(BENCHMARKS)
    import run_all

    monkeypatch.setattr(run_all, "RESULTS", tmp_path)
    return run_all.keep


def replayed(folder, waste, mean):
    (folder / "runs").mkdir(parents=True)
    figures = {"waste_factor": {"mean": mean}, "waste_factor_counts": "full"}
    summary = {"strategies": {"sara": figures}, "seeds": sorted(waste), "options": {"command": "/a/path"}}
    (folder / "summary.json").write_text(json.dumps(summary))
    for seed, value in {
        **waste,
        9: 100.0,
    }.items():  # a seed of an earlier, larger replay is no part of this one
        record = {"strategy": "sara", "seed": seed, "figures": {"waste_factor_full": value}}
        (folder / "runs" / f"sara-{seed}.json").write_text(json.dumps(record))
    return folder


def test_a_kept_replay_has_every_seeds_waste_and_no_path(keep, tmp_path):
    keep(replayed(tmp_path / "trace", {0: 1.25, 1: 1.75}, 1.5), "strategies")
    kept = json.loads((tmp_path / "trace.json").read_text())
    assert list(kept) == ["strategies"]
    assert kept["strategies"]["sara"]["waste_factor_by_seed"] == {"0": 1.25, "1": 1.75}


def test_runs_that_are_not_the_summarys_are_refused(keep, tmp_path):
    with pytest.raises(SystemExit, match="sara"):
        keep(replayed(tmp_path / "trace", {0: 1.25, 1: 1.75}, 1.6), "strategies")
    assert not (tmp_path / "trace.json").exists()
