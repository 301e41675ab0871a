"""``neyman compare`` from end to end, at settings of seconds."""

import json

import pytest

pytest.importorskip("torch")

from neyman.cli._compare import CORE, CompareCommand, _at_the_edge, _settle, cells_of, compare_command
from neyman.errors import ArgumentError
from neyman.lab import strategy_names
from neyman.presets import PRESETS

SMALL = [
    "--regimes", "easy", "--strategies", "uniform,oracle", "--seeds", "2", "--rates", "1e-3", "--rows", "32",
    "--rollouts", "64", "--pool", "64", "--warm-start-steps", "2", "--jobs", "1",
]  # fmt: skip


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))


def test_a_comparison_writes_its_files_and_resumes_with_more_seeds(tmp_path, capsys):
    out = tmp_path / "out"
    assert compare_command([*SMALL, "--out", str(out)]) == 0
    first = json.loads((out / "summary.json").read_text())
    assert set(first["regimes"]["easy"]["strategies"]) == {"uniform", "oracle"}
    assert (out / "report.html").read_text().startswith("<!doctype html>")
    assert "uniform" in capsys.readouterr().out
    kept = {path: path.stat().st_mtime_ns for path in (out / "runs").rglob("*.json")}
    assert len(kept) == 4

    with pytest.raises(ArgumentError, match="--resume"):
        compare_command([*SMALL, "--out", str(out)])
    more = ["3" if word == "2" and SMALL[i - 1] == "--seeds" else word for i, word in enumerate(SMALL)]
    assert compare_command([*more, "--out", str(out), "--resume"]) == 0
    assert json.loads((out / "summary.json").read_text())["regimes"]["easy"]["seeds"] == [0, 1, 2]
    assert {path: path.stat().st_mtime_ns for path in kept} == kept

    with pytest.raises(ArgumentError, match="rollouts 64 there, 96 here"):
        compare_command([*SMALL, "--rollouts", "96", "--out", str(out), "--resume"])


DAMAGED = [
    "[]",
    "null",
    "3",
    "{",
    "",
    "\0",
    "[" * 100_000,
    '{"rollouts": ' * 3000,
    '{"rollouts": 1, "rollouts": 2}',
]


@pytest.mark.parametrize("content", DAMAGED)
def test_damaged_settings_are_refused_by_file_and_the_way_out_leads_on(tmp_path, content):
    out = tmp_path / "out"
    command = CompareCommand(out=out)
    _settle(command, resume=False)
    path, whole = out / "compare.json", (out / "compare.json").read_text()
    (out / "runs").mkdir()
    path.write_text(content)
    with pytest.raises(ArgumentError, match=r"is damaged: .*delete it and give --resume again") as refused:
        _settle(command, resume=True)
    assert str(path) in str(refused.value)
    path.unlink()
    with pytest.raises(ArgumentError, match="not empty"):
        _settle(command, resume=False)
    _settle(command, resume=True)
    assert path.read_text() == whole


def test_settings_nested_deeply_are_named_and_shown_in_part(tmp_path):
    command = CompareCommand(out=tmp_path)
    _settle(command, resume=False)
    (tmp_path / "compare.json").write_text('{"rollouts": ' + "[" * 90 + "]" * 90 + "}")
    with pytest.raises(ArgumentError, match=r"other settings \(.*rollouts \[{80} there, 16000 here"):
        _settle(command, resume=True)


def test_a_directory_of_something_else_is_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(ArgumentError, match="not empty"):
        compare_command([*SMALL, "--out", str(tmp_path)])
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"strategies": "uniform,best"}, "--strategies must be one of uniform, .*neyman-told"),
        ({"strategies": "vip"}, "--reference must be one of"),
        ({"seeds": 0}, "--seeds must be >= 1"),
        ({"rates": "fast"}, "--rates must be separated by commas"),
        ({"group_sizes": "5"}, "multiple of every group size"),
        ({"regimes": "medium"}, "regime must be one of"),
        ({"jobs": 0}, "--jobs must be >= 1"),
    ],
)
def test_what_is_wrong_with_the_flags_is_named(options, message, tmp_path):
    with pytest.raises(ArgumentError, match=message):
        cells_of(CompareCommand(out=tmp_path, **options))


def test_the_core_grid_is_of_known_strategies(tmp_path):
    assert set(CORE) <= set(strategy_names())
    command = CompareCommand(
        out=tmp_path, strategies="core", regimes="hard,ushape,easy", seeds=5, rates="3e-4,6e-4,1.2e-3"
    )
    assert len(cells_of(command)) == 3 * len(CORE) * 5 * 3


def test_all_is_every_preset_beside_the_oracle(tmp_path):
    cells = cells_of(CompareCommand(out=tmp_path, strategies="all", regimes="hard", seeds=1, rates="1e-3"))
    assert {cell.experiment.strategy for cell in cells} == {*PRESETS, "neyman-told", "oracle"}


def test_a_best_rate_at_the_edge_of_what_was_tried_is_named():
    def one(best, *rates):
        return {
            "setting": {"learning_rate": best},
            "settings": [{"learning_rate": rate, "group_size": size} for rate in rates for size in (2, 4)],
        }

    strategies = {
        "low": one(1e-3, 1e-3, 2e-3),
        "high": one(4e-3, 1e-3, 2e-3, 4e-3),
        "too": one(4e-3, 2e-3, 4e-3),
        "inside": one(2e-3, 1e-3, 2e-3, 4e-3),
        "single": one(1e-3, 1e-3),
    }
    assert _at_the_edge({"strategies": strategies}) == [
        "best at the last rate tried, 0.001, so try smaller ones: low",
        "best at the last rate tried, 0.004, so try larger ones: high, too",
    ]
