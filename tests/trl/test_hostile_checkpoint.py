"""A checkpoint with pickles in the place of its files: refused or ignored, never executed."""

from __future__ import annotations

import pickle
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch

import neyman


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


@pytest.mark.parametrize(
    "name",
    ["neyman_state.json", "neyman_process0.safetensors", "optimizer.pt", "scheduler.pt", "rng_state.pth"],
)
def test_a_pickle_in_the_place_of_a_file_is_not_run(
    bench: Any, saved: Path, name: str, tmp_path: Path
) -> None:
    path, mark = saved / name, tmp_path / "gone off"
    whole = path.read_bytes()
    if name.endswith((".pt", ".pth")):
        torch.save(Bomb(mark), path)
    else:
        path.write_bytes(pickle.dumps(Bomb(mark)))
    try:
        run = bench.build(strategy=neyman.preset("vip", lower=4), max_steps=2)
        with pytest.raises((neyman.errors.StateError, pickle.UnpicklingError, AttributeError, KeyError)):
            run.trainer.train(resume_from_checkpoint=str(saved))
    finally:
        path.write_bytes(whole)
    assert not mark.exists()
