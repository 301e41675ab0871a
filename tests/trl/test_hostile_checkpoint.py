"""A checkpoint with pickles in the place of its files: refused or ignored, never executed."""

from __future__ import annotations

import contextlib
import pickle
import shutil
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch

import neyman
from neyman._files import checkpoints


class Bomb:
    """Writes a file when it is unpickled."""

    def __init__(self, target: Path) -> None:
        self._target = target

    def __reduce__(self) -> Any:
        return Path.touch, (self._target,)


@pytest.fixture(scope="module")
def saved(bench: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a run with one checkpoint."""
    out = tmp_path_factory.mktemp("hostile")
    bench.train(
        strategy=neyman.preset("vip", lower=4),
        max_steps=1,
        save_strategy="steps",
        save_steps=1,
        output_dir=str(out),
    )
    return out / "checkpoint-1"


def test_a_checkpoint_holds_no_pickle_of_ours(saved: Path) -> None:
    ours = sorted(path.name for path in saved.iterdir() if path.name.startswith("neyman"))
    assert ours == ["neyman_process0.safetensors", "neyman_state.json"]
    for name in ours:
        assert not zipfile.is_zipfile(saved / name)
        assert b"\x80\x04" not in (saved / name).read_bytes()[:64]


def put(bomb: Bomb, path: Path) -> None:
    """Write a pickle in the place of a file, in the format of those that torch saves."""
    if path.suffix in (".pt", ".pth", ".bin"):
        torch.save(bomb, path)
    else:
        path.write_bytes(pickle.dumps(bomb))


@pytest.mark.parametrize(
    "name",
    ["neyman_state.json", "neyman_process0.safetensors", "optimizer.pt", "scheduler.pt", "rng_state.pth"],
)
def test_a_pickle_in_the_place_of_a_file_is_not_run(
    bench: Any, saved: Path, name: str, tmp_path: Path
) -> None:
    folder, mark = Path(shutil.copytree(saved, tmp_path / saved.name)), tmp_path / "gone off"
    put(Bomb(mark), folder / name)
    run = bench.build(strategy=neyman.preset("vip", lower=4), max_steps=2)
    # Of another size than is listed, or by chance of the same: then the host reads it.
    with pytest.raises((neyman.errors.StateError, pickle.UnpicklingError)):
        run.trainer.train(resume_from_checkpoint=str(folder))
    assert not mark.exists()


# Whoever can write the files can write a list of them that fits: then the host's own way of reading stands alone.
@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("neyman_process0.safetensors", neyman.errors.StateError),
        ("optimizer.pt", pickle.UnpicklingError),
        ("scheduler.pt", pickle.UnpicklingError),
        ("rng_state.pth", pickle.UnpicklingError),
        ("pytorch_model.bin", pickle.UnpicklingError),  # read where there is no model.safetensors
        ("training_args.bin", None),  # the trainer writes it, and never reads it
    ],
)
def test_a_pickle_in_a_checkpoint_whose_list_of_files_fits_is_not_run_either(
    bench: Any, saved: Path, name: str, error: type[Exception] | None, tmp_path: Path
) -> None:
    folder, mark = Path(shutil.copytree(saved, tmp_path / saved.name)), tmp_path / "gone off"
    put(Bomb(mark), folder / name)
    if name == "pytorch_model.bin":
        (folder / "model.safetensors").unlink()
    state = checkpoints.check(saved)
    checkpoints.seal(folder, {key: state[key] for key in set(state) - {"version", "checksum", "files"}})
    run = bench.build(strategy=neyman.preset("vip", lower=4), max_steps=2)
    with contextlib.nullcontext() if error is None else pytest.raises(error):
        run.trainer.train(resume_from_checkpoint=str(folder))
    assert (run.trainer.state.global_step == 2) == (error is None)
    assert not mark.exists()


def test_training_arguments_are_a_pickle_of_the_hosts_that_its_user_may_run(
    saved: Path, tmp_path: Path
) -> None:
    args = torch.load(saved / "training_args.bin", weights_only=False)
    assert args.max_steps == 1, "the file holds objects, so that whoever loads it trusts it"
    with pytest.raises(pickle.UnpicklingError):
        torch.load(saved / "training_args.bin", weights_only=True)
    put(Bomb(tmp_path / "gone off"), tmp_path / "training_args.bin")
    torch.load(tmp_path / "training_args.bin", weights_only=False)
    assert (tmp_path / "gone off").exists()
