"""Reading run directories: complete, half-written, resumed, damaged."""

import json

import numpy as np
import pytest

from neyman.errors import ArgumentError, StateError
from neyman.report import load_run, load_runs


def lines_of(folder):
    return (folder / "metrics.jsonl").read_text().splitlines()


def rewrite(folder, lines, end="\n"):
    (folder / "metrics.jsonl").write_text("\n".join(lines) + end)


def test_a_complete_run_is_read_whole(tmp_path, write_run):
    folder = write_run(tmp_path, "vip", 3, steps=4, every=2)
    run = load_run(folder)
    last = json.loads(lines_of(folder)[-2])
    assert (run.strategy, run.seed, run.task, run.budget) == ("vip", 3, "rules/hard", 128)
    assert run.step.tolist() == [1, 2, 3, 4]
    assert run.eval_step.tolist() == [0, 2, 4]
    assert run.eval_rollouts[0] == 0
    assert run.rollouts[-1] == last["rollouts"] == run.eval_rollouts[-1]
    assert run.account["trained"] == tuple(last["account"]["trained"].values())
    assert run.account["padding"] == (0, 0)  # a bare number
    assert len(run.groups.prompt_id) == 4 * 16
    assert run.groups.predicted[-1] == last["groups"][-1]["predicted"]
    np.testing.assert_allclose(run.eval_seconds, [0.0, 3.0, 6.0])
    assert run.is_finished
    assert run.is_exact
    assert run.wall_seconds == 6.0
    assert run.notes == ()


def test_a_half_written_last_line_is_left_out_and_said(tmp_path, write_run):
    folder = write_run(tmp_path, steps=3, finished=False)
    lines = lines_of(folder)
    rewrite(folder, [*lines[:-1], lines[-1][: len(lines[-1]) // 2]], end="")
    run = load_run(folder)
    assert len(run.eval_step) == 2
    assert f"line {len(lines)} of metrics.jsonl is half-written and was left out" in run.notes
    assert "not finished: 3 of 3 steps are written" in run.notes


def test_a_line_cut_inside_a_character_is_half_written_too(tmp_path, write_run):
    folder = write_run(tmp_path, steps=2)
    whole = (folder / "metrics.jsonl").read_bytes()
    (folder / "metrics.jsonl").write_bytes(whole + '{"event": "é'.encode()[:-1])
    assert "half-written" in load_run(folder).notes[0]


def test_a_line_that_a_kill_cut_before_a_resume_is_left_out_and_said(tmp_path, write_run):
    folder = write_run(tmp_path, steps=3, every=1)
    lines = lines_of(folder)
    rewrite(folder, [*lines[:3], lines[3][:40], *lines[3:]])
    run = load_run(folder)
    assert run.step.tolist() == [1, 2, 3]
    assert "line 4 of metrics.jsonl is half-written and was left out" in run.notes


def test_any_other_broken_line_is_an_error_that_names_file_and_line(tmp_path, write_run):
    folder = write_run(tmp_path, steps=3)
    lines = lines_of(folder)
    rewrite(folder, [lines[0], "what}", *lines[1:]])
    with pytest.raises(StateError, match=r"metrics\.jsonl, line 2: not a JSON object"):
        load_run(folder)


@pytest.mark.parametrize("place", [2, 4])  # between others, and the last, which may be half-written
def test_a_line_with_a_field_twice_is_refused_and_not_taken_for_half_written(tmp_path, write_run, place):
    folder = write_run(tmp_path, steps=3)
    lines = lines_of(folder)
    line = lines[1].strip()
    lines.insert(place - 1, '{"event": "step", ' + line[1:])
    rewrite(folder, lines[:place])
    with pytest.raises(StateError, match=rf"metrics\.jsonl, line {place}: the field 'event' stands twice"):
        load_run(folder)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rollouts": -1}, r"line 2: rollouts must be >= 0, got -1"),
        ({"rollouts": "many"}, r"line 2: rollouts must be a whole number"),
        ({"rollouts": 2**53 + 1}, r"line 2: rollouts must be <= 9007199254740992, got 9007199254740993"),
        ({"seconds": float("nan")}, r"line 2: seconds must be a finite number"),
        ({"report": [1]}, r"line 2: 'report' must map names to numbers"),
        ({"report": {"rounds": "two"}}, r"line 2: 'report' must map names to numbers"),
        ({"report": {"rounds": "2"}}, r"line 2: 'report' must map names to numbers, got '2' for 'rounds'"),
        ({"trainer": {"loss": True}}, r"line 2: 'trainer' must map names to numbers, got True for 'loss'"),
        ({"account": 3}, r"line 2: 'account' must map fates to counts"),
        ({"groups": [3]}, r"line 2: 'groups' must be a list of objects"),
        ({"groups": [{"prompt_id": "x", "rollouts": 2, "successes": 3, "trials": 2}]},
         r"line 2, groups\[0\]: successes must be <= trials, got 3 of 2"),
        ({"groups": [{"prompt_id": "x", "predicted": 1.5, "rollouts": 2, "successes": 1, "trials": 2}]},
         r"line 2, groups\[0\]: predicted must be a finite number in \[0.0, 1.0\], got 1.5"),
    ],
)  # fmt: skip
def test_bad_values_name_file_line_and_legal_range(tmp_path, write_run, change, message):
    folder = write_run(tmp_path, steps=1)
    lines = lines_of(folder)
    lines[1] = json.dumps(json.loads(lines[1]) | change)
    rewrite(folder, lines)
    with pytest.raises(StateError, match=message):
        load_run(folder)


@pytest.mark.parametrize("value", ["soon", [[1]], {"a": 1}, True, float("nan"), -1, 10**400])
def test_a_duration_that_is_none_is_named(tmp_path, write_run, value):
    folder = write_run(tmp_path, steps=1)
    (folder / "done.json").write_text(json.dumps({"finished": True, "seconds": value}))
    with pytest.raises(StateError, match=r"done\.json: seconds must be"):
        load_run(folder)


@pytest.mark.parametrize("name", ["run.json", "metrics.jsonl", "done.json"])
@pytest.mark.parametrize("levels", [101, 900, 3000])
def test_deep_nesting_is_refused_by_the_file(tmp_path, write_run, name, levels):
    folder = write_run(tmp_path, steps=2)
    lines = (folder / name).read_text().splitlines()
    lines[0] = lines[0].rpartition("}")[0] + ', "deep": ' + "[" * levels + "]" * levels + "}"
    (folder / name).write_text("\n".join(lines))
    with pytest.raises(
        StateError, match=r"nested deeper than 100 levels.*(put back|delete the line)"
    ) as refused:
        load_run(folder)
    assert str(folder / name) in str(refused.value)


def test_an_integer_beyond_floats_is_an_infinite_figure(tmp_path, write_run):
    folder = write_run(tmp_path, steps=1)
    lines = lines_of(folder)
    lines[1] = json.dumps(json.loads(lines[1]) | {"trainer": {"loss": 10**400, "entropy": -(10**400)}})
    rewrite(folder, lines)
    trainer = load_run(folder).trainer
    assert [trainer["loss"][0], trainer["entropy"][0]] == [np.inf, -np.inf]


def test_a_missing_key_is_named(tmp_path, write_run):
    folder = write_run(tmp_path, steps=2)
    lines = lines_of(folder)
    event = json.loads(lines[1])
    del event["tokens"]
    rewrite(folder, [lines[0], json.dumps(event), *lines[2:]])
    with pytest.raises(StateError, match=r"line 2: 'tokens' is missing"):
        load_run(folder)


def test_after_a_resume_the_later_line_wins(tmp_path, write_run):
    folder = write_run(tmp_path, steps=4, every=1)
    lines = lines_of(folder)
    again = [json.loads(line) for line in lines[5:]]  # steps 3 and 4 and their evaluations
    for event in again:
        event["rollouts"] += 7
    rewrite(folder, lines + [json.dumps(event) for event in again])
    run = load_run(folder)
    assert run.step.tolist() == [1, 2, 3, 4]
    assert run.eval_step.tolist() == [0, 1, 2, 3, 4]
    assert run.rollouts[2] == again[0]["rollouts"]
    assert run.eval_rollouts[-1] == again[-1]["rollouts"]
    assert len(run.groups.step) == 4 * 16  # groups are not counted twice
    assert run.notes == ("resumed: 4 earlier line(s) were written again, and the later ones count",)


def test_a_resume_that_has_not_caught_up_does_not_mix_two_futures(tmp_path, write_run):
    folder = write_run(tmp_path, steps=4, every=1, finished=False)
    lines = lines_of(folder)
    rewrite(folder, [*lines, lines[3]])  # back to step 2, and nothing after it yet
    run = load_run(folder)
    assert run.step.tolist() == [1, 2]
    assert run.eval_step.tolist() == [0, 1, 2]


def test_a_run_that_has_just_started_is_empty(tmp_path, write_run):
    folder = write_run(tmp_path, finished=False)
    (folder / "metrics.jsonl").unlink()
    run = load_run(folder)
    assert run.step.shape == run.accuracy.shape == (0,)
    assert run.notes == ("not finished: 0 of 12 steps are written",)


def test_null_and_absent_metrics_are_nan(tmp_path, write_run):
    folder = write_run(tmp_path, steps=2, every=5)
    lines = lines_of(folder)
    first = json.loads(lines[1])
    first["report"]["rounds"] = None
    del first["report"]["success_rate"]
    rewrite(folder, [lines[0], json.dumps(first), *lines[2:]])
    run = load_run(folder)
    assert np.isnan(run.metrics["rounds"]).tolist() == [True, False]
    assert np.isnan(run.metrics["success_rate"]).tolist() == [True, False]


def test_a_clock_that_runs_backwards_orders_nothing(tmp_path, write_run):
    folder = write_run(tmp_path, steps=3, every=1)
    lines = [json.loads(line) for line in lines_of(folder)]
    lines[-2]["seconds"] = 0.1
    rewrite(folder, [json.dumps(line) for line in lines])
    assert np.isnan(load_run(folder).eval_seconds).all()


def test_another_version_is_refused(tmp_path, write_run):
    folder = write_run(tmp_path)
    head = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps(head | {"version": 2}))
    with pytest.raises(StateError, match=r"run\.json: version must be 1, got 2"):
        load_run(folder)


def test_runs_come_by_strategy_and_seed(tmp_path, write_run):
    for strategy, seed in (("vip", 1), ("uniform", 0), ("vip", 0)):
        write_run(tmp_path, strategy, seed, steps=2)
    (tmp_path / "notes").mkdir()
    assert [run.name for run in load_runs(tmp_path)] == ["uniform, seed 0", "vip, seed 0", "vip, seed 1"]
    assert [run.name for run in load_runs(tmp_path / "vip-seed1")] == ["vip, seed 1"]


def test_one_seed_twice_is_refused(tmp_path, write_run):
    write_run(tmp_path, "vip", 0, steps=2).rename(tmp_path / "copy")
    write_run(tmp_path, "vip", 0, steps=2)
    with pytest.raises(ArgumentError, match=r"copy and .*vip-seed0 are both vip, seed 0"):
        load_runs(tmp_path)


def test_a_directory_without_runs_is_refused(tmp_path):
    with pytest.raises(ArgumentError, match="holds no run"):
        load_runs(tmp_path)
    with pytest.raises(ArgumentError, match="must be a directory"):
        load_runs(tmp_path / "absent")
    with pytest.raises(StateError, match=r"run\.json: cannot be read"):
        load_run(tmp_path)
