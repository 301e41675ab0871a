"""A run's directory brought back to its last complete checkpoint."""

import json
import math

import pytest

pytest.importorskip("pydantic")

from neyman.errors import StateError
from neyman.train._folder import COMPLETE, Progress, RunFolder, plain
from neyman.train._tail import Tail


def step(number, **more):
    return {
        "event": "step",
        "step": number,
        "rollouts": 8 * number,
        "seconds": 1.5 * number,
        "report": {},
        **more,
    }


def measured(number):
    return {"event": "eval", "step": number, "rollouts": 8 * number, "accuracy": 0.1 * number}


@pytest.fixture
def folder(tmp_path):
    """A run of five steps, evaluated at 0, 2 and 4, with checkpoints 2 and 4."""
    folder = RunFolder(tmp_path)
    folder.append(measured(0))
    for number in range(1, 6):
        folder.append(step(number))
        if number % 2 == 0:
            folder.append(measured(number))
            (tmp_path / f"checkpoint-{number}").mkdir()
            (tmp_path / f"checkpoint-{number}" / COMPLETE).touch()
    return folder


def lines(folder):
    return [json.loads(line) for line in folder.metrics.read_text().splitlines()]


def test_what_came_after_the_checkpoint_is_taken_back(folder):
    progress = folder.rewind()
    assert Progress(checkpoint=folder.path / "checkpoint-4", step=4, seconds=6.0) == progress
    assert [(line["event"], line["step"]) for line in lines(folder)] == [
        ("eval", 0),
        ("step", 1),
        ("step", 2),
        ("eval", 2),
        ("step", 3),
        ("step", 4),
        ("eval", 4),
    ]
    assert progress == folder.rewind()


def test_an_incomplete_checkpoint_goes_and_the_one_before_counts(folder):
    (folder.path / "checkpoint-4" / COMPLETE).unlink()
    assert folder.rewind().step == 2
    assert not (folder.path / "checkpoint-4").exists()
    assert lines(folder)[-1]["step"] == 2


def test_without_a_complete_checkpoint_the_run_begins_anew(folder):
    for number in (2, 4):
        (folder.path / f"checkpoint-{number}" / COMPLETE).unlink()
    assert Progress() == folder.rewind()
    assert lines(folder) == []


def test_a_fresh_directory_begins_at_nothing(tmp_path):
    assert Progress() == RunFolder(tmp_path / "new").rewind()


def test_a_line_that_a_kill_cut_short_is_dropped(folder):
    whole = folder.metrics.read_bytes()
    folder.metrics.write_bytes(whole + b'{"event":"step","step":6,"rol')
    assert folder.rewind().step == 4
    assert whole.startswith(folder.metrics.read_bytes())


def test_metrics_that_end_before_the_checkpoint_are_refused(folder):
    kept = folder.metrics.read_bytes().splitlines(keepends=True)[:4]
    folder.metrics.write_bytes(b"".join(kept))
    with pytest.raises(StateError, match="ends at step 2, but the checkpoint is of step 4"):
        folder.rewind()


def test_a_run_killed_between_its_last_step_and_its_end_has_nothing_left_to_train(tmp_path):
    folder = RunFolder(tmp_path)
    folder.append(step(1, last=True))
    (tmp_path / "checkpoint-1").mkdir()
    (tmp_path / "checkpoint-1" / COMPLETE).touch()
    assert folder.rewind().is_last


def test_unknown_numbers_are_null():
    assert plain({"a": (math.nan, math.inf, 1.0), "b": {1: "x"}}) == {"a": [None, None, 1.0], "b": {"1": "x"}}


def test_the_tail_reads_only_what_is_new_and_whole(folder):
    tail = Tail(folder)
    tail.read()
    assert (tail.step, tail.rollouts, tail.accuracy, tail.evaluated) == (5, 40, 0.4, 4)
    assert None is tail.eta(80)
    with folder.metrics.open("ab") as file:
        file.write(json.dumps(step(6, report={"effective_ratio": 0.25})).encode()[:-3])
    tail.read()
    assert tail.step == 5
    with folder.metrics.open("ab") as file:
        file.write(json.dumps(step(6, report={"effective_ratio": 0.25})).encode()[-3:] + b"\n")
    tail.read()
    assert (tail.step, tail.rollouts, tail.effective) == (6, 48, 0.25)
    assert 0 < tail.eta(80) < 60
    assert tail.eta(48) == 0


def test_the_tail_starts_over_when_a_resume_rewrote_the_file(folder):
    tail = Tail(folder)
    tail.read()
    folder.rewind()
    tail.read()
    assert (tail.step, tail.rollouts) == (4, 32)
