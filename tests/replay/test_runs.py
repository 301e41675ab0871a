"""Strategies and seeds in processes: the same figures as in one, kept as they finish, and nothing left running."""

import json
import os

import numpy as np
import pytest

import jobs_of_test
from neyman.errors import ArgumentError, RunFailedError
from neyman.replay import _runs, replay_all, settings_for
from neyman.replay._host import strategy_for
from replay.records import drifting

TRACE = drifting(prompts=20, visits=2)
SETTINGS = settings_for(TRACE, group_size=4, prompts_per_step=5)


def figures(runs):
    """Return the runs by strategy and seed."""
    return {(run.strategy, run.seed): run.figures for run in runs}


def test_processes_give_the_figures_of_one_process(tmp_path):
    before = dict(os.environ)
    shown = []
    here = replay_all(TRACE, ["uniform", "sara"], SETTINGS, seeds=[0, 1])
    apart = replay_all(
        TRACE, ["uniform", "sara"], SETTINGS, seeds=[0, 1], jobs=2, out=tmp_path / "runs", watch=shown.append
    )
    assert figures(here) == figures(apart)
    assert [(run.strategy, run.seed) for run in apart] == [
        ("uniform", 0),
        ("uniform", 1),
        ("sara", 0),
        ("sara", 1),
    ]
    assert shown[-1] == [("uniform", 0, 1.0), ("uniform", 1, 1.0), ("sara", 0, 1.0), ("sara", 1, 1.0)]
    assert dict(os.environ) == before


def test_what_is_finished_is_not_done_again_unless_anything_changed(tmp_path, monkeypatch):
    done = []
    original = _runs._one
    monkeypatch.setattr(_runs, "_one", lambda *a: (done.append(a[3]), original(*a))[1])
    replay_all(TRACE, ["uniform"], SETTINGS, seeds=[0, 1], out=tmp_path)
    again = replay_all(TRACE, ["uniform", "vip"], SETTINGS, seeds=[0, 1], out=tmp_path)
    assert done == [("uniform", 0), ("uniform", 1), ("vip", 0), ("vip", 1)]
    assert (
        figures(again)["uniform", 0]
        == figures(replay_all(TRACE, ["uniform"], SETTINGS, seeds=[0]))["uniform", 0]
    )
    done.clear()
    other = settings_for(TRACE, group_size=4, prompts_per_step=10)
    replay_all(TRACE, ["uniform"], other, seeds=[0], out=tmp_path)
    replay_all(drifting(prompts=20, visits=2, seed=9), ["uniform"], SETTINGS, seeds=[1], out=tmp_path)
    assert done == [("uniform", 0), ("uniform", 1)]


def test_a_half_written_record_of_a_run_is_done_again(tmp_path):
    first = replay_all(TRACE, ["uniform"], SETTINGS, seeds=[0], out=tmp_path)
    path = tmp_path / "uniform-0.json"
    path.write_text(path.read_text()[:40])
    assert figures(replay_all(TRACE, ["uniform"], SETTINGS, seeds=[0], out=tmp_path)) == figures(first)
    assert json.loads(path.read_text())["seed"] == 0


@pytest.mark.parametrize(
    "damage",
    [
        lambda record: "[" * 3000,
        lambda record: json.dumps([record]),
        lambda record: json.dumps({**record, "figures": 7}),
        lambda record: json.dumps({**record, "figures": None}),
        lambda record: json.dumps({**record, "figures": {}}),
        lambda record: json.dumps({**record, "figures": {**record["figures"], "rollouts": "many"}}),
        lambda record: json.dumps({**record, "checksum": []}),
        lambda record: json.dumps({name: part for name, part in record.items() if name != "checksum"}),
    ],
)
def test_a_damaged_record_of_a_run_is_done_again(tmp_path, damage):
    first = replay_all(TRACE, ["uniform"], SETTINGS, seeds=[0], out=tmp_path)
    path = tmp_path / "uniform-0.json"
    whole = path.read_bytes()
    path.write_text(damage(json.loads(whole)))
    assert figures(replay_all(TRACE, ["uniform"], SETTINGS, seeds=[0], out=tmp_path)) == figures(first)
    assert path.read_bytes() == whole


def test_unknown_strategies_are_refused_before_anything_runs(tmp_path):
    with pytest.raises(ArgumentError, match="'sarah'"):
        replay_all(TRACE, ["uniform", "sarah"], SETTINGS, seeds=[0], out=tmp_path / "runs")
    assert not (tmp_path / "runs").exists()


def test_options_stand_behind_the_name_and_make_a_run_of_their_own(tmp_path):
    names = ["mopps", "mopps:explore=mean", "sara:variant=published:threshold=0.3"]
    runs = replay_all(TRACE, names, SETTINGS, seeds=[0], out=tmp_path)
    assert [run.strategy for run in runs] == names
    assert runs[0].figures != runs[1].figures
    assert len(list(tmp_path.iterdir())) == 3
    assert figures(replay_all(TRACE, names, SETTINGS, seeds=[0], out=tmp_path)) == figures(runs)
    strategy = strategy_for(names[2], SETTINGS)
    assert (strategy.verdict.threshold, strategy.verdict.prior) == (0.3, (1.0, 1.0))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("uniform:", "key=value, got ''"),
        ("uniform:groups=2", "groups"),
        ("uniform:group_size=1", "must be >= 2, got 1"),
        ("sara:threshold=a:threshold=b", "given twice"),
    ],
)
def test_options_that_a_strategy_has_not_are_refused_before_anything_runs(name, message, tmp_path):
    with pytest.raises(ArgumentError, match=message):
        replay_all(TRACE, [name], SETTINGS, seeds=[0], out=tmp_path / "runs")
    assert not (tmp_path / "runs").exists()


def test_features_reach_the_beliefs_that_use_them():
    features = np.column_stack([np.linspace(-1, 1, 20), np.ones(20)]).astype(np.float32)
    plain = figures(replay_all(TRACE, ["vip", "uniform"], SETTINGS, seeds=[0]))
    told = figures(replay_all(TRACE, ["vip", "uniform"], SETTINGS, seeds=[0], features=features))
    assert told["vip", 0]["log_loss"] != plain["vip", 0]["log_loss"]
    assert told["uniform", 0] == plain["uniform", 0]


def test_a_process_that_is_killed_is_an_error_with_its_run(monkeypatch):
    monkeypatch.setattr(_runs, "_one", jobs_of_test.die)
    with pytest.raises(
        RunFailedError, match=r"the replay of uniform, seed [01], failed: its process ended with status 9"
    ):
        replay_all(TRACE, ["uniform"], SETTINGS, seeds=[0, 1], jobs=2)
