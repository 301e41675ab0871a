"""Which checkpoints go when a new one is whole: by their steps, whatever the clock says."""

from __future__ import annotations

import os
import shutil
import time
from types import SimpleNamespace

import pytest
import torch
from transformers import TrainerCallback

import neyman
from neyman._files import checkpoints
from neyman.trl import last_checkpoint
from neyman.trl._rotation import held_back, rotate


def seal(run, step, *, seconds=0.0):
    """Write a whole checkpoint whose folder looks that many seconds newer than it is."""
    folder = run / f"checkpoint-{step}"
    checkpoints.begin(folder)
    (folder / "model.safetensors").write_bytes(b"weights")
    checkpoints.seal(folder, {})
    os.utime(folder, (time.time() + seconds,) * 2)
    return folder


def trainer(limit, best=None):
    return SimpleNamespace(
        args=SimpleNamespace(save_total_limit=limit),
        state=SimpleNamespace(best_model_checkpoint=None if best is None else str(best)),
    )


def names(run):
    return sorted(path.name.removeprefix("checkpoint-") for path in run.glob("checkpoint-*"))


def after(run, sealed, limit, best=None):
    """Return the checkpoints that are left once one more is whole."""
    rotate(trainer(limit, best), seal(run, sealed))
    return names(run)


@pytest.mark.parametrize(
    ("limit", "left"), [(1, ["4"]), (2, ["3", "4"]), (3, ["1", "3", "4"]), (9, ["1", "3", "4"])]
)
def test_the_newest_by_step_stay_when_the_clock_goes_back(tmp_path, limit, left):
    seal(tmp_path, 1, seconds=7200)
    seal(tmp_path, 3, seconds=3600)
    assert after(tmp_path, 4, limit) == left


@pytest.mark.parametrize("limit", [None, 0, -1])
def test_without_a_limit_all_stay(tmp_path, limit):
    seal(tmp_path, 1)
    assert after(tmp_path, 2, limit) == ["1", "2"]


def test_steps_are_numbers(tmp_path):
    seal(tmp_path, 9)
    assert after(tmp_path, 10, 1) == ["10"]


@pytest.mark.parametrize(("limit", "left"), [(1, ["1", "4"]), (2, ["1", "4"]), (3, ["1", "3", "4"])])
def test_the_best_one_stays_and_takes_a_place(tmp_path, limit, left):
    best = seal(tmp_path, 1)
    for step in (2, 3):
        seal(tmp_path, step)
    assert after(tmp_path, 4, limit, best) == left


def test_a_best_one_in_another_folder_takes_no_place(tmp_path):
    seal(tmp_path, 1)
    assert after(tmp_path, 2, 2, tmp_path / "elsewhere" / "checkpoint-1") == ["1", "2"]


def test_only_whole_ones_count(tmp_path):
    """One whose removal was killed, one whose writing was, one that is damaged."""
    for step in (1, 2, 3, 5):
        seal(tmp_path, step)
    (tmp_path / "checkpoint-1" / "model.safetensors").unlink()
    checkpoints.begin(tmp_path / "checkpoint-2")
    (tmp_path / "checkpoint-5" / "model.safetensors").write_bytes(b"")
    assert after(tmp_path, 6, 2) == ["3", "5", "6"]


def test_what_neyman_did_not_write_stays(tmp_path):
    seal(tmp_path, 1)
    shutil.copytree(tmp_path / "checkpoint-1", tmp_path / "checkpoint-1-backup")
    shutil.copytree(tmp_path / "checkpoint-1", tmp_path / "checkpoint-best")
    (tmp_path / "checkpoint-2").mkdir()
    (tmp_path / "checkpoint-2" / "of_the_stock_trainer").touch()
    (tmp_path / "checkpoint-notes.txt").touch()
    assert after(tmp_path, 3, 1) == ["1-backup", "2", "3", "best", "notes.txt"]


def test_a_run_started_again_from_the_start_keeps_its_own(tmp_path):
    for step in (4, 5):
        seal(tmp_path, step)
    assert after(tmp_path, 1, 2) == ["1", "5"]
    assert after(tmp_path, 2, 2) == ["1", "2"]
    assert after(tmp_path, 3, 2) == ["2", "3"]


def test_what_writes_the_arguments_sees_the_users_limit_and_what_rotates_sees_none():
    class Saver:
        args = SimpleNamespace(save_total_limit=2)

        def _save(self):
            return self.args.save_total_limit

        def _push_from_checkpoint(self):
            raise OSError

    saver = Saver()
    with held_back(saver):
        assert saver._save() == 2
        with pytest.raises(OSError):  # noqa: PT011 - its own
            saver._push_from_checkpoint()
        assert saver.args.save_total_limit is None
    assert saver.args.save_total_limit == 2
    assert not vars(saver)


def test_a_trainer_under_a_clock_set_back_keeps_what_it_saved_last(bench, tmp_path):
    class SetBack(TrainerCallback):
        def on_save(self, args, state, control, **kwargs):
            os.utime(
                tmp_path / f"checkpoint-{state.global_step}", (time.time() + 7200 - state.global_step,) * 2
            )
            seen.append(names(tmp_path))

    seen = []
    run = bench.build(
        strategy=neyman.preset("uniform"),
        output_dir=str(tmp_path),
        save_strategy="steps",
        save_steps=1,
        save_total_limit=1,
        max_steps=3,
    )
    run.trainer.add_callback(SetBack())
    run.trainer.train()
    assert seen == [["1"], ["2"], ["3"]]
    assert last_checkpoint(tmp_path) == str(tmp_path / "checkpoint-3")
    saved = torch.load(tmp_path / "checkpoint-3" / "training_args.bin", weights_only=False)
    assert saved.save_total_limit == 1
    assert run.trainer.args.save_total_limit == 1
    assert "_save" not in vars(run.trainer)
