"""A run's directory brought back to its last complete checkpoint."""

import json
import math
import shutil

import pytest

pytest.importorskip("pydantic")

from neyman._files import checkpoints
from neyman._files.json import plain
from neyman.errors import StateError
from neyman.train._folder import Progress, RunFolder
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


def save(checkpoint):
    checkpoints.begin(checkpoint)
    (checkpoint / "model.safetensors").write_bytes(b"weights")
    checkpoints.seal(checkpoint, {})


@pytest.fixture
def folder(tmp_path):
    """A run of five steps, evaluated at 0, 2 and 4, with checkpoints 2 and 4."""
    folder = RunFolder(tmp_path)
    folder.append(measured(0))
    for number in range(1, 6):
        folder.append(step(number))
        if number % 2 == 0:
            folder.append(measured(number))
            save(tmp_path / f"checkpoint-{number}")
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
    checkpoints.begin(folder.path / "checkpoint-4")
    assert folder.rewind().step == 2
    assert not (folder.path / "checkpoint-4").exists()
    assert lines(folder)[-1]["step"] == 2


@pytest.mark.parametrize("save_every", [None, 5])
def test_without_a_complete_checkpoint_the_run_begins_anew_and_says_so(folder, save_every, caplog):
    for number in (2, 4):
        checkpoints.begin(folder.path / f"checkpoint-{number}")
    assert Progress() == folder.rewind(save_every=save_every)
    assert lines(folder) == []
    assert "begins anew at step 0, not at 5" in caplog.text


def test_that_all_checkpoints_are_gone_is_no_reason_to_begin_anew(folder):
    before = folder.metrics.read_bytes()
    for number in (2, 4):
        shutil.rmtree(folder.path / f"checkpoint-{number}")
    with pytest.raises(StateError, match=r"metrics.jsonl reaches step 5, .* holds no finished checkpoint"):
        folder.rewind(save_every=2)
    assert folder.metrics.read_bytes() == before


def test_a_damaged_checkpoint_is_refused_before_anything_is_taken_back(folder):
    before = folder.metrics.read_bytes()
    (folder.path / "checkpoint-4" / "model.safetensors").write_bytes(b"weig")
    with pytest.raises(
        StateError, match=r"model.safetensors is damaged: .* Resume from .*checkpoint-2.*remove .*-4"
    ):
        folder.rewind()
    assert folder.metrics.read_bytes() == before
    shutil.rmtree(folder.path / "checkpoint-4")
    assert folder.rewind().step == 2


@pytest.mark.parametrize(
    "damage",
    [
        b"\xff",
        b"[]",
        b"[" * 9999,
        b'{"event":"step"}',
        b'{"event":"step","step":"3"}',
        b'{"event":"step","step":2,"step":3}',
        b'{"event":"step","step":true}',
        b'{"event":"step","step":-1}',
        b'{"event":[],"step":2}',
        b'{"event":"step","step":2,"seconds":"abc"}',
        b'{"event":"step","step":2,"seconds":[1]}',
        b'{"event":"step","step":2,"seconds":null}',
        b'{"event":"step","step":2,"seconds":true}',
        b'{"event":"step","step":2,"seconds":NaN}',
        b'{"event":"step","step":2,"seconds":1e999}',
        b'{"event":"step","step":2,"seconds":1' + b"0" * 400 + b"}",
    ],
)
def test_a_damaged_line_of_the_metrics_is_named(folder, damage):
    whole = folder.metrics.read_bytes().splitlines(keepends=True)
    folder.metrics.write_bytes(b"".join([*whole[:2], damage + b"\n", *whole[3:]]))
    with pytest.raises(
        StateError, match=r"metrics.jsonl, line 3 is damaged .* or remove .* to train this run anew"
    ):
        folder.rewind()
    with pytest.raises(StateError, match=r"metrics.jsonl, line 3 is damaged"):
        Tail(folder).read()


@pytest.mark.parametrize(
    "line",
    [
        b'{"event":"step","step":2}',
        b'{"event":"eval","step":2,"rollouts":3}',
        b'{"event":"step","step":2,"rollouts":3,"report":[]}',
    ],
)
def test_a_line_without_what_the_console_shows_is_named(folder, line):
    folder.metrics.write_bytes(line + b"\n")
    with pytest.raises(StateError, match=r"metrics.jsonl, line 1 is damaged"):
        Tail(folder).read()


def test_a_checkpoint_that_lost_its_state_is_named_and_stays(folder):
    before = folder.metrics.read_bytes()
    (folder.path / "checkpoint-4" / checkpoints.STATE_FILE).unlink()
    with pytest.raises(StateError, match=r"neyman_state.json is missing: .* Resume from .*checkpoint-2"):
        folder.rewind()
    assert (folder.path / "checkpoint-4" / "model.safetensors").exists()
    assert folder.metrics.read_bytes() == before


def test_what_is_no_checkpoint_of_the_run_stays(folder, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    kept = ["checkpoint-4-backup", "checkpoint-final", "checkpoint-notes.txt", "checkpoint-9", "checkpoint-"]
    for name in kept[:2]:
        shutil.copytree(folder.path / "checkpoint-4", folder.path / name)
    checkpoints.begin(folder.path / kept[1])  # as a copy that was made while it was written
    (folder.path / kept[2]).touch()
    (folder.path / kept[3]).symlink_to(elsewhere)
    (folder.path / kept[4]).mkdir()
    checkpoints.begin(folder.path / "checkpoint-6")
    assert folder.rewind().step == 4
    left = {path.name for path in folder.path.glob("checkpoint-*")}
    assert left == {"checkpoint-2", "checkpoint-4", *kept}


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
    save(tmp_path / "checkpoint-1")
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
