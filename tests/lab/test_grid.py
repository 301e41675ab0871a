"""A grid of runs in processes: complete, resumed, and honest about what failed."""

import json

import pytest

from neyman.errors import ArgumentError, StateError
from neyman.lab.grid import grid, load_grid, run_grid


class Seen:
    def __init__(self):
        self.calls = []

    def update(self, done, total, doing):
        self.calls.append((done, total, doing))


@pytest.fixture
def cells(tiny):
    return grid(
        tiny(rollouts=64),
        regimes=["easy"],
        strategies=["uniform", "oracle"],
        seeds=[0],
        rates=[1e-3],
        group_sizes=[4, 8],
    )


def test_a_grid_has_every_combination_and_keeps_the_rows_of_a_step(cells):
    assert len(cells) == len({cell.name for cell in cells}) == 4
    assert {cell.experiment.prompts * cell.experiment.group_size for cell in cells} == {32}


def test_group_sizes_must_divide_the_rows_and_nothing_is_named_twice(tiny):
    axes = {"regimes": ["easy"], "strategies": ["uniform"], "seeds": [0], "rates": [1e-3]}
    with pytest.raises(ArgumentError, match="divide the 32 rollouts of a step, got 5"):
        grid(tiny(), **axes, group_sizes=[5])
    with pytest.raises(ArgumentError, match="strategies must name at least one, and each once"):
        grid(tiny(), **{**axes, "strategies": ["uniform", "uniform"]}, group_sizes=[4])


def test_runs_are_done_once_and_resumed_where_they_are_missing(cells, cache, tmp_path):
    seen = Seen()
    assert run_grid(cells, tmp_path, jobs=2, watch=seen, cache=cache) == {}
    assert seen.calls[0][:2] == (0, 4)
    assert seen.calls[-1][:2] == (4, 4)
    results = load_grid(cells, tmp_path)
    assert [one["experiment"]["strategy"] for one in results] == [c.experiment.strategy for c in cells]
    missing = tmp_path / f"{cells[1].name}.json"
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.json") if path != missing}
    saved = json.loads(missing.read_bytes())
    missing.unlink()
    assert run_grid(cells, tmp_path, jobs=1, cache=cache) == {}
    again = json.loads(missing.read_bytes())
    assert {**again, "cpu_seconds": 0} == {**saved, "cpu_seconds": 0}
    assert before == {path: path.stat().st_mtime_ns for path in before}


def test_a_run_that_fails_is_named_and_the_others_are_done(tiny, cache, tmp_path):
    axes = {"regimes": ["easy"], "seeds": [0], "rates": [1e-3], "group_sizes": [4]}
    cells = grid(tiny(rollouts=32), strategies=["uniform", "no-such"], **axes)
    failed = run_grid(cells, tmp_path, jobs=1, cache=cache)
    assert list(failed) == [cells[1].name]
    assert "strategy must be one of" in failed[cells[1].name]
    assert len(load_grid(cells, tmp_path)) == 1


def test_results_of_other_settings_and_damaged_ones_are_refused(cells, tiny, tmp_path):
    path = tmp_path / f"{cells[0].name}.json"
    path.parent.mkdir(parents=True)
    path.write_text('{"experiment": {"rollouts": 1}, "seed": 0}')
    with pytest.raises(StateError, match="other settings"):
        run_grid(cells, tmp_path, jobs=1)
    path.write_text('{"experiment"')
    with pytest.raises(StateError, match="damaged"):
        run_grid(cells, tmp_path, jobs=1)
