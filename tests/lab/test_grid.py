"""A grid of runs in processes: complete, resumed, and honest about what failed."""

import json

import pytest

from neyman.errors import ArgumentError, StateError
from neyman.lab import Experiment
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


@pytest.fixture(scope="module")
def one_run(cache, tmp_path_factory):
    """Return a cell of which the run was done, and its file's content."""
    base = Experiment(regime="easy", prompts=8, rollouts=64, pool=64, held_out=50, warm_start_steps=2)
    axes = {"regimes": ["easy"], "strategies": ["uniform"], "seeds": [0], "rates": [1e-3], "group_sizes": [4]}
    (cell,), out = grid(base, **axes), tmp_path_factory.mktemp("grid")
    assert run_grid([cell], out, jobs=1, cache=cache) == {}
    return cell, json.loads((out / f"{cell.name}.json").read_bytes())


def put(cell, out, content):
    path = out / f"{cell.name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def test_results_of_other_settings_are_refused(one_run, tmp_path):
    cell, saved = one_run
    put(cell, tmp_path, {**saved, "experiment": {"rollouts": 1}})
    with pytest.raises(StateError, match="other settings"):
        run_grid([cell], tmp_path, jobs=1)
    put(cell, tmp_path, {**saved, "seed": 1})
    with pytest.raises(StateError, match="other settings"):
        load_grid([cell], tmp_path)


@pytest.mark.parametrize(
    "content",
    ['{"experiment"', "", "[]", "7", "[" * 3000, "{" * 10, "\0", '{"experiment": {}, "seed": 0}'],
)
def test_files_that_hold_no_run_are_refused_with_the_way_out(cells, content, tmp_path):
    path = put(cells[0], tmp_path, content)
    for use in (lambda: run_grid(cells, tmp_path, jobs=1), lambda: load_grid(cells, tmp_path)):
        with pytest.raises(StateError, match=r"is damaged: .*; delete it and resume") as refused:
            use()
        assert str(path) in str(refused.value)


def without(part, name):
    return lambda run: run[part].pop(name)


def other(part, name, value):
    return lambda run: run[part].update({name: value})


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda run: run.pop("curve"), "'curve' must map names to series, got None"),
        (lambda run: run.pop("steps"), "'steps' must map names to series, got None"),
        (lambda run: run.update(curve=[1]), "'curve' must map names to series"),
        (lambda run: run.update(seed=True), "'seed' must be a whole number"),
        (lambda run: run.update(experiment=[]), "'experiment' must hold the settings"),
        (without("curve", "tokens"), r"curve\['tokens'\] must be a list of finite numbers, got None"),
        (without("steps", "entropy"), r"steps\['entropy'\] must be a list of finite numbers"),
        (other("curve", "accuracy", "high"), r"curve\['accuracy'\] must be a list"),
        (other("curve", "accuracy", []), "equally long and not empty"),
        (other("curve", "rollouts", [0]), "equally long and not empty"),
        (
            lambda run: run["curve"]["accuracy"].__setitem__(0, 1.5),
            r"curve\['accuracy'\] must lie in \[0, 1\]",
        ),
        (lambda run: run["curve"]["rollouts"].reverse(), r"curve\['rollouts'\] must start at 0 or above"),
        *[
            (
                lambda run, value=value: run["steps"]["rows"].__setitem__(0, value),
                r"steps\['rows'\] must be a list",
            )
            for value in (None, "1", True, [1], float("nan"), float("inf"), 10**400)
        ],
        (lambda run: run["steps"].update({name: [] for name in run["steps"]}), "equally long and not empty"),
    ],
)
def test_runs_without_what_a_report_draws_are_refused_by_the_place(one_run, damage, words, tmp_path):
    cell, saved = one_run
    saved = json.loads(json.dumps(saved))
    put(cell, tmp_path, saved)
    assert load_grid([cell], tmp_path) == [saved]
    damage(saved)
    path = put(cell, tmp_path, saved)
    with pytest.raises(StateError, match=words) as refused:
        load_grid([cell], tmp_path)
    assert str(path) in str(refused.value)
    assert "delete it and resume" in str(refused.value)
