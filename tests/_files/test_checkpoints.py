"""Checkpoint folders: whole, unfinished, damaged and foreign ones are told apart, whatever byte is wrong."""

from __future__ import annotations

import json
import math
import os
import sys

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from neyman._files import checkpoints
from neyman._files.atomic import write_atomic
from neyman.errors import StateError

STATE = {"strategy": {"name": "vip"}, "belief": [0.1, math.nan, 3], "prompts": "digest", "ö": "ü"}
OWN = "neyman_process0.safetensors"
HOST = ("model.safetensors", "trainer_state.json", "ranks/optimizer.pt")


def write(folder, state=STATE):
    checkpoints.begin(folder)
    for name in (*HOST, OWN, "README.md"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(f"content of {name}".encode())
    checkpoints.seal(folder, state)
    return folder


@pytest.fixture
def run(tmp_path):
    """A run with whole checkpoints 2, 4 and 10."""
    for step in (2, 4, 10):
        write(tmp_path / f"checkpoint-{step}")
    return tmp_path


def refusal(folder):
    """Return what a checkpoint is refused with, on the way that a resume takes."""
    with pytest.raises(StateError) as caught:
        checkpoints.check_content(folder, OWN, checkpoints.check(folder))
    return str(caught.value)


def test_what_was_sealed_is_read(run):
    state = checkpoints.check(run / "checkpoint-10")
    checkpoints.check_content(run / "checkpoint-10", OWN, state)
    assert json.dumps(STATE) == json.dumps({name: state[name] for name in STATE})
    assert set(state) == {*STATE, "files"}
    assert set(state["files"]) == {*HOST, OWN}
    assert checkpoints.last_whole(run) == run / "checkpoint-10"


@pytest.mark.parametrize("name", [checkpoints.STATE_FILE, OWN, *HOST])
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(share=st.floats(0.0, 1.0, exclude_max=True))
def test_a_file_cut_short_at_any_byte_is_named_with_the_way_out(run, name, share):
    path = write(run / "checkpoint-10") / name
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    message = refusal(run / "checkpoint-10")
    assert str(path) in message
    assert f"Resume from {run / 'checkpoint-4'}, the last whole checkpoint before it" in message


@pytest.mark.parametrize("name", [checkpoints.STATE_FILE, OWN])
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.floats(0.0, 1.0, exclude_max=True), mask=st.integers(1, 255))
def test_a_changed_byte_of_ours_is_named_with_the_way_out(run, name, place, mask):
    path = write(run / "checkpoint-10") / name
    content = path.read_bytes()
    at = int(place * len(content))
    changed = bytes([*content[:at], content[at] ^ mask, *content[at + 1 :]])
    assume(name == OWN or not means_the_same(content, changed))
    path.write_bytes(changed)
    message = refusal(run / "checkpoint-10")
    assert str(path) in message
    assert f"Resume from {run / 'checkpoint-4'}, the last whole checkpoint before it" in message


def means_the_same(content, changed):
    """Whether only white space stands for white space."""
    try:
        return json.dumps(json.loads(content)) == json.dumps(json.loads(changed))
    except ValueError:
        return False


@pytest.mark.parametrize(
    "content", [b"", b"null", b"[]", b"{}", b"\xff\xfe", b"[" * 100_000, b'{"version": 4}']
)
def test_what_is_no_state_is_refused(run, content):
    path = run / "checkpoint-10" / checkpoints.STATE_FILE
    path.write_bytes(content)
    assert f"{path} " in refusal(run / "checkpoint-10")


@pytest.mark.parametrize(
    "files",
    [
        None,
        "abc",
        ["model.safetensors"],
        {"model.safetensors": 9},
        {"model.safetensors": [9]},
        {"model.safetensors": ["9", None]},
        {"model.safetensors": [True, None]},
        {"model.safetensors": [-1, None]},
        {"model.safetensors": [9, 9]},
        {"../checkpoint-4/model.safetensors": [9, None]},
        {"/etc/hosts": [1, None]},
        {"model\0": [1, None]},
    ],
    ids=repr,
)
def test_a_list_of_files_that_is_none_is_refused_whatever_its_checksum_says(run, files):
    path = run / "checkpoint-10" / checkpoints.STATE_FILE
    body = json.dumps(STATE if files is None else {**STATE, "files": files})
    head = json.dumps({"version": checkpoints.VERSION, "checksum": checkpoints._digest(body.encode())})
    path.write_text(f"{head[:-1]}, {body[1:]}")
    message = refusal(run / "checkpoint-10")
    assert f"{path} is damaged: 'files' does not give the size" in message
    assert f"Resume from {run / 'checkpoint-4'}" in message


def test_a_state_with_a_field_twice_is_refused_where_its_checksum_fits_the_last(run):
    path = run / "checkpoint-10" / checkpoints.STATE_FILE
    path.write_text('{"version": 0, ' + path.read_text()[1:])
    message = refusal(run / "checkpoint-10")
    assert f"{path} is damaged (the field 'version' stands twice" in message


@pytest.mark.parametrize("version", [3, 5, "4", None])
def test_another_version_is_named_as_such(run, version):
    path = run / "checkpoint-10" / checkpoints.STATE_FILE
    path.write_text(json.dumps({**json.loads(path.read_text()), "version": version}))
    message = refusal(run / "checkpoint-10")
    assert (
        f"{path} has version {version!r}, this neyman reads version 4: resume with the neyman that wrote"
        in message
    )


@pytest.mark.parametrize("name", [OWN, *HOST])
def test_a_file_that_is_gone_is_named(run, name):
    (run / "checkpoint-10" / name).unlink()
    assert f"{run / 'checkpoint-10' / name} is missing" in refusal(run / "checkpoint-10")


def test_the_disk_has_every_file_before_the_checkpoint_counts_as_whole(tmp_path, monkeypatch):
    folder, flushed = tmp_path / "checkpoint-10", []

    def fsync(descriptor):
        is_whole = (folder / checkpoints.STATE_FILE).exists()
        flushed.append((is_whole, os.fstat(descriptor).st_ino))

    monkeypatch.setattr("os.fsync", fsync)
    write(folder)
    before = {inode for is_whole, inode in flushed if not is_whole}
    paths = (*(folder / name for name in (*HOST, OWN)), folder / "ranks", folder, tmp_path)
    assert [path for path in paths if path.stat().st_ino not in before] == []


def test_a_checkpoint_that_the_disk_does_not_take_stays_unfinished(run, monkeypatch):
    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write(run / "checkpoint-12")
    assert checkpoints.last_whole(run) == run / "checkpoint-10"


def test_a_removal_that_is_killed_leaves_an_unfinished_checkpoint(run):
    """At every single deletion; a half-removed checkpoint must never look like one that neyman did not write."""
    folder, states = run / "checkpoint-10", []

    def watch(event, arguments):
        if watching and event in {"os.remove", "os.rmdir", "shutil.rmtree"}:
            states.append(checkpoints.is_unfinished(folder))

    watching = True
    sys.addaudithook(watch)
    checkpoints.remove(folder)
    watching = False
    assert not folder.exists()
    is_first, *rest = states
    assert is_first
    assert len(rest) >= len((*HOST, OWN))
    assert all(rest)


def test_what_cannot_be_removed_is_told_and_ends_nothing(run, monkeypatch, caplog):
    def refuse(path):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("shutil.rmtree", refuse)
    checkpoints.remove(run / "checkpoint-10")
    assert "checkpoint-10: the old checkpoint cannot be removed" in caplog.text
    assert checkpoints.last_whole(run) == run / "checkpoint-4"


def test_a_link_is_not_removed(run, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "kept").touch()
    (run / "checkpoint-12").symlink_to(elsewhere)
    checkpoints.remove(run / "checkpoint-12")
    assert (run / "checkpoint-12" / "kept").exists()


def test_texts_for_people_and_files_that_came_later_are_no_damage(run):
    (run / "checkpoint-10" / "README.md").unlink()
    (run / "checkpoint-10" / "trainer_state.json").write_text("longer than before " * 10)
    (run / "checkpoint-10" / "later.json").touch()
    assert checkpoints.last_whole(run) == run / "checkpoint-10"


def test_an_unfinished_checkpoint_is_passed_over_and_named(run, caplog):
    checkpoints.begin(run / "checkpoint-10")  # over one that was whole: its files may be of either now
    (run / "checkpoint-12").mkdir()
    assert checkpoints.last_whole(run) == run / "checkpoint-4"
    assert (
        "died while it wrote checkpoint-12, checkpoint-10; training goes on from checkpoint-4" in caplog.text
    )
    assert "the checkpoint is unfinished, as the run died while it was written" in refusal(
        run / "checkpoint-10"
    )


def test_before_the_first_checkpoint_is_whole_there_is_nothing_to_go_on_from(tmp_path, caplog):
    assert checkpoints.last_whole(tmp_path / "no such run") is None
    assert checkpoints.last_whole(tmp_path) is None
    assert not caplog.records
    checkpoints.begin(tmp_path / "checkpoint-1")
    assert checkpoints.last_whole(tmp_path) is None
    assert "goes on from the start, as no checkpoint was finished before" in caplog.text


def test_a_newer_checkpoint_that_is_damaged_or_foreign_is_not_passed_over(run):
    (run / "checkpoint-10" / OWN).write_bytes(b"")
    with pytest.raises(StateError, match=f"{OWN} is damaged: it has 0 bytes .* Resume from .*checkpoint-4"):
        checkpoints.last_whole(run)
    (run / "checkpoint-10" / checkpoints.STATE_FILE).unlink()
    with pytest.raises(StateError, match=r"is missing: neyman did not finish .* Resume from .*checkpoint-4"):
        checkpoints.last_whole(run)


def test_the_way_out_leads_to_a_whole_checkpoint_only(run):
    for step in (4, 10):
        (run / f"checkpoint-{step}" / HOST[0]).unlink()
    assert f"Resume from {run / 'checkpoint-2'}" in refusal(run / "checkpoint-10")
    (run / "checkpoint-2" / HOST[0]).unlink()
    assert "No earlier checkpoint beside it is whole" in refusal(run / "checkpoint-10")


def test_folders_of_other_names_are_no_checkpoints(run):
    for name in ("checkpoint-best", "checkpoint-11.tmp", "checkpoint-"):
        (run / name).mkdir()
    (run / "checkpoint-12").touch()
    assert checkpoints.last_whole(run) == run / "checkpoint-10"


def test_what_a_kill_left_of_an_atomic_write_goes_with_the_next(run):
    left = run / "checkpoint-10" / f".{OWN}.k3j2"
    left.write_bytes(b"half")
    write(run / "checkpoint-10")
    assert not left.exists()


def test_an_atomic_write_that_fails_leaves_the_old_content_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "state.json"
    write_atomic(path, b"old")

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_atomic(path, b"new")
    assert path.read_bytes() == b"old"
    assert [path] == list(tmp_path.iterdir())
