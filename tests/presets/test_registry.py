"""The registry finds every preset's file, in any kind of installation, and loads nothing heavy for it."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import neyman.presets
from neyman.presets import PRESETS, Preset
from neyman.testing import StrategySuite

FOLDER = Path(neyman.presets.__file__).parent


def test_every_file_without_an_underscore_is_one_preset():
    files = [path.stem for path in FOLDER.glob("*.py") if path.name[0] != "_"]
    assert sorted(name.replace("-", "_").replace("+", "_") for name in PRESETS) == sorted(files)


def test_lists_of_presets_stand_by_place():
    places = [entry.place for entry in PRESETS.values()]
    assert places == sorted(places)
    ours = ["uniform", "vip", "sara", "dynamo", "dynamic-sampling", "mopps", "polaris", "neyman"]
    assert [name for name in PRESETS if name in ours] == ours


@pytest.mark.parametrize("entry", PRESETS.values(), ids=list(PRESETS))
def test_what_a_file_states_fits_the_method(entry):
    assert isinstance(entry, Preset)
    assert set(entry.small) <= set(entry.options)
    assert len(entry.table.split("|")) == 5
    assert entry.build().name == entry.name
    assert set(entry.exceptions) <= {"any", "fixed_spend", "fixed_train", "streaming"}
    for stated in entry.exceptions.values():
        assert all(hasattr(StrategySuite, name) for name in stated)


@pytest.mark.parametrize("zipped", [False, True])
def test_presets_are_found_in_a_folder_and_in_a_zip_and_load_numpy_and_scipy_alone(tmp_path, zipped):
    where = FOLDER.parents[1]
    if zipped:
        where = tmp_path / "neyman.zip"
        with zipfile.ZipFile(where, "w") as archive:
            for path in FOLDER.parent.rglob("*.py"):
                archive.write(path, path.relative_to(FOLDER.parents[1]))
    script = (
        f"import sys; sys.path.insert(0, {str(where)!r}); import neyman, neyman.presets as p; "
        "print(neyman.__file__, *p.PRESETS); "
        "assert not {'torch', 'pydantic', 'trl', 'verl', 'matplotlib', 'transformers'} & set(sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    file, *names = done.stdout.split()
    assert file.startswith(str(where))
    assert names == list(PRESETS)
