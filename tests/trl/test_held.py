"""One training at a time in an output_dir: a second is refused, and nothing outlives the one that held it."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import neyman
from neyman._files.lock import FolderLock
from neyman.errors import RunFailedError
from neyman.trl import _held, last_checkpoint

SAVING = {"max_steps": 2, "save_strategy": "steps", "save_steps": 1}
HOLD = """
import sys, time
from pathlib import Path
from neyman._files.lock import FolderLock
lock = FolderLock(Path(sys.argv[1]), sys.argv[2])
print(lock.take(60.0), flush=True)
time.sleep(600)
"""


@contextmanager
def another(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Let another process hold a folder as a training does."""
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-c", HOLD, str(folder), _held.LOCK]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "None\n"
            yield process
        finally:
            process.kill()


@pytest.fixture
def build(bench: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Build a trainer in one and the same folder, which does not wait for another."""
    monkeypatch.setattr(_held, "SECONDS", 0.0)

    def built(**more: Any) -> Any:
        options = {**SAVING, "output_dir": str(tmp_path / "run"), **more}
        return bench.build(strategy=neyman.preset("uniform"), **options).trainer

    return built


def test_a_second_training_in_a_folder_is_refused_with_the_folder_the_holder_and_the_way_out(
    build: Any, tmp_path: Path
) -> None:
    trainer = build()
    with another(tmp_path / "run") as process:
        before = sorted(path.name for path in (tmp_path / "run").iterdir())
        with pytest.raises(RunFailedError) as refused:
            trainer.train()
        assert sorted(path.name for path in (tmp_path / "run").iterdir()) == before
    said = str(refused.value)
    for part in (str(tmp_path / "run"), f"process {process.pid} on ", "another output_dir"):
        assert part in said


def test_a_training_within_a_training_of_the_same_folder_is_refused(build: Any) -> None:
    met: list[RunFailedError] = []

    def reward(completions: list[str], **columns: Any) -> list[float]:
        with pytest.raises(RunFailedError, match=f"process {os.getpid()} on ") as refused:
            build().train()
        met.append(refused.value)
        return [float(len(completion) > 3) for completion in completions]

    trainer = build(rewards=reward)
    trainer.train()
    assert trainer.state.global_step == len(met) == 2


def test_what_a_killed_training_held_is_free_at_once(build: Any, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    build(max_steps=1).train()
    with another(folder) as process:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        trainer = build()
        trainer.train(resume_from_checkpoint=True)
    assert trainer.state.global_step == 2
    assert last_checkpoint(folder) == str(folder / "checkpoint-2")


def test_a_training_that_ends_or_raises_lets_go(build: Any, tmp_path: Path) -> None:
    def fails(**columns: Any) -> list[float]:
        raise ValueError("the judge is out")

    for _ in range(2):
        with pytest.raises(ValueError, match="the judge is out"):
            build(rewards=fails).train()
        build().train()
    with another(tmp_path / "run"):
        pass


def test_without_checkpoints_two_trainings_may_share_a_folder(build: Any, tmp_path: Path) -> None:
    with another(tmp_path / "run"):
        trainer = build(save_strategy="no")
        trainer.train()
    assert trainer.state.global_step == 2


def test_a_folder_that_cannot_be_locked_is_said_and_trains(
    build: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "run" / _held.LOCK).mkdir(parents=True)
    build().train()
    assert f"{tmp_path / 'run'} cannot be locked" in caplog.text


@pytest.mark.skipif(sys.platform == "win32", reason="where locks are not a matter of the file system")
def test_what_a_killed_training_leaves_bars_nobody_where_the_file_system_has_no_locks(
    build: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lustre has none unless it is told to; a file in the place of a lock outlives its process, and names a machine."""
    import fcntl

    def flock(descriptor: Any, operation: int) -> None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(fcntl, "flock", flock)
    left = FolderLock(tmp_path / "run", _held.LOCK)
    assert left.take(0.0) is None
    trainer = build()
    trainer.train()
    assert trainer.state.global_step == 2
    assert f"{tmp_path / 'run'} cannot be locked" in caplog.text
    assert not list((tmp_path / "run").glob(f"{_held.LOCK}*"))


def test_a_folder_that_is_gone_when_training_begins_is_made(build: Any, tmp_path: Path) -> None:
    trainer = build()
    (tmp_path / "run").rmdir()
    trainer.train()
    assert last_checkpoint(tmp_path / "run") is not None


def test_a_training_whose_processes_fail_as_they_begin_lets_go(tmp_path: Path) -> None:
    trainer = SimpleNamespace(
        args=SimpleNamespace(save_strategy="steps"), _get_output_dir=lambda trial: str(tmp_path)
    )

    def exchange(doing: str, make: Any) -> None:
        make()
        raise RunFailedError("another process has gone")

    failing: Any = SimpleNamespace(index=0, exchange=exchange)
    with pytest.raises(RunFailedError, match="has gone") as failed, _held.held(trainer, failing, None):
        pass
    assert FolderLock(tmp_path, _held.LOCK).take(0.0) is None
    assert failed.tb is not None  # kept, with all its frames, as a notebook keeps the last error


def test_the_processes_of_one_training_share_its_folder(tmp_path: Path) -> None:
    trainer = SimpleNamespace(
        args=SimpleNamespace(save_strategy="steps"), _get_output_dir=lambda trial: str(tmp_path)
    )

    def ranks(index: int) -> Any:
        return SimpleNamespace(index=index, exchange=lambda doing, make: make())

    with _held.held(trainer, ranks(0), None), _held.held(trainer, ranks(1), None):
        pass
