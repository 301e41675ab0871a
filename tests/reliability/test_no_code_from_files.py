"""No file runs code: the source has no way to it, and hostile files import and execute nothing."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

import neyman
from reliability.source_walk import faults, importers

SOURCE = Path(neyman.__file__).parent
# Where a name becomes an import, and whose name it is.
IMPORTS = {
    "presets/_named.py": "the user's own configuration names a strategy, belief or function as package.module:name",
    "presets/_registry.py": "the files of the package's own folder",
    "tasks/_judge.py": "the user's own code names a judge; runs in the worker process",
    "modulation/__init__.py": "constants of the package",
    "beliefs/embeddings.py": "constants of the package",
    "verl/__init__.py": "constants of the package",
}


def test_no_module_can_run_code_from_data():
    modules = sorted(SOURCE.rglob("*.py"))
    assert len(modules) > 150
    assert {str(path): bad for path in modules if (bad := faults(path.read_text("utf-8")))} == {}


@pytest.mark.parametrize(
    "source",
    [
        "import pickle", "from marshal import loads", "import yaml", "from os import *",
        "eval('1')", "exec('1')", "import builtins; builtins.exec('1')",
        "__import__('os')", "e = eval", "e = eval; f = e; f('1')", "map(eval, rows)", "from builtins import eval as e",
        "import torch; torch.load(path)", "import torch; torch.load(path, weights_only=False)",
        "from torch import load", "from torch import load as l; l(path)", "import torch as t; t.load(path)",
        "import torch; partial(torch.load, weights_only=True)", "import torch; getattr(torch, 'load')(path)",
        "from torch import jit; jit.load(path)", "import torch; torch.hub.load(name)",
        "import numpy as np; np.load(path)", "import numpy as np; np.load(path, allow_pickle=True)",
        "from numpy import load", "from numpy.lib import format as f; f.read_array(file)", "load(allow_pickle=True)",
        "import os; os.system('ls')", "import os as o; o.execv(path, words)", "from os import execv",
        "import os; os.spawnl(mode, path)", "import os; os.posix_spawn(path)", "import os; getattr(os, 'popen')('ls')",
        "import subprocess; subprocess.run('ls', shell=True)", "subprocess.run('ls', shell=flag)",
        "import subprocess; subprocess.getoutput('ls')", "from subprocess import getoutput",
        "import asyncio; asyncio.create_subprocess_shell('ls')", "loop.subprocess_shell(protocol, 'ls')",
        "import importlib; importlib.reload(module)", "from importlib import reload as again",
        "from importlib.util import spec_from_file_location", "f(x, trust_remote_code=True)",
    ],
)  # fmt: skip
def test_the_walk_finds_what_it_looks_for(source):
    assert faults(source)


@pytest.mark.parametrize(
    "source",
    [
        "import torch; torch.load(path, weights_only=True)", "import torch as t; t.load(path, weights_only=True)",
        "import numpy; numpy.load(path, allow_pickle=False)", "import subprocess; subprocess.run(words)",
        "import re; re.compile(text)", "from re import compile; compile(text)", "model.eval()", "json.load(file)",
        "import os; os.path.exists(path)", "f(x, shell=False, trust_remote_code=False)",
    ],
)  # fmt: skip
def test_the_walk_finds_nothing_else(source):
    assert faults(source) == []


@pytest.mark.parametrize(
    "source",
    [
        "import importlib; importlib.import_module(name)", "import importlib as i; i.import_module(name)",
        "from importlib import import_module as im", "from importlib import import_module as im; im(name)",
        "import importlib; load = importlib.import_module", "from pydoc import locate",
        "import pkgutil as p; p.resolve_name(name)",
    ],
)  # fmt: skip
def test_the_walk_finds_imports_by_name(source):
    assert importers(source)
    assert not importers("import importlib.util; importlib.util.find_spec(name)")


def test_names_become_imports_in_known_places_only():
    found = {
        path.relative_to(SOURCE).as_posix()
        for path in SOURCE.rglob("*.py")
        if importers(path.read_text("utf-8"))
    }
    assert found == set(IMPORTS)


class Bomb:
    """Writes a file when it is unpickled."""

    def __init__(self, target):
        self._target = target

    def __reduce__(self):
        return Path.touch, (self._target,)


def test_the_bomb_goes_off_where_something_is_unpickled(tmp_path):
    pickle.loads(pickle.dumps(Bomb(tmp_path / "gone off")))
    assert (tmp_path / "gone off").exists()


# Every string of every file names a module that leaves a mark when it is imported.
CHILD = """
import json, sys
from pathlib import Path
import neyman
from neyman import Controller, preset
from neyman.errors import NeymanError
from neyman.replay import read_logs

where, name = Path(sys.argv[1]), "tripwire:Boom"

def refused(call, *args, **kwargs):
    try:
        call(*args, **kwargs)
    except (NeymanError, TypeError, KeyError, AttributeError):
        pass

trace, _, _ = read_logs([where / "log.jsonl", where / "log2.jsonl"], keep_texts=True)
assert trace.prompts == 2
refused(read_logs, [where / "log.csv"], columns=["reward=" + name])

from neyman.tasks import load_problems
(problem,) = load_problems(where / "problems.jsonl", metadata=("meta",))
assert problem.answer == name

strategy = preset("neyman")
for state in (name, {name: name}, [name], {**strategy.belief.state_dict(), "kind": name, "class": name, "type": name}):
    refused(strategy.belief.load_state_dict, state)

if sys.argv[2] == "cli":
    from neyman.config import from_mapping
    from neyman.report import load_runs, write_report

    # Checking a config imports nothing of what it names; nor does one whose names are no classes.
    config = from_mapping({"strategy": {"name": name, "belief": name, "features": name, "options": {"x": name}},
                           "model": {"path": name}, "trainer": {"options": {"optim": name}}, "baselines": [name]})
    assert config.strategy.name == name
    for task in ({"type": name}, {"type": "data", "path": "log.jsonl", "verifier": name}, {"regime": name}):
        refused(from_mapping, {"task": task})
    from_mapping({}).build_strategy("uniform")
    refused(write_report, where / "run")
    assert "tripwire" not in sys.modules
    # The user's own config that names a class does import it, where it is built.
    if sys.argv[3] == "build":
        refused(config.build_strategy, name)
print("tripwire" in sys.modules)
"""


@pytest.fixture
def hostile(tmp_path):
    """Write the files, and a module that leaves a mark when it is imported."""
    name = "tripwire:Boom"
    (tmp_path / "tripwire.py").write_text(
        f"from pathlib import Path\nPath({str(tmp_path / 'gone off')!r}).touch()\nclass Boom: pass\n"
    )
    row = {
        "prompt": name,
        "step": 1,
        "reward": 1,
        "__class__": name,
        "py/object": name,
        "!!python/object": name,
    }
    (tmp_path / "log.jsonl").write_text(json.dumps(row) + "\n")
    (tmp_path / "log2.jsonl").write_text(
        json.dumps({**row, "prompt": [{"role": name, "content": name}]}) + "\n"
    )
    (tmp_path / "log.csv").write_text(f"prompt,{name}\n{name},=cmd|' /C calc'!A0\n")
    (tmp_path / "problems.jsonl").write_text(
        json.dumps({"prompt": name, "answer": name, "meta": {"py/object": name}})
    )
    (tmp_path / "run").mkdir()
    head = {
        "version": 1, "strategy": name, "seed": 0, "task": name, "budget_rollouts_per_step": 4, "steps": 1,
        "estimator": name, "config": {"strategy": {"name": name, "belief": name}, "model": {"path": name}},
    }  # fmt: skip
    (tmp_path / "run" / "run.json").write_text(json.dumps(head))
    (tmp_path / "run" / "metrics.jsonl").write_text(json.dumps({"event": name, "step": 0}) + "\n")
    return tmp_path


def child(folder, *words):
    paths = os.pathsep.join([str(folder), *sys.path])
    command = [sys.executable, "-c", CHILD, str(folder), *words]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": paths},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_no_string_of_a_file_or_config_is_imported(hostile):
    pytest.importorskip("pydantic")
    assert child(hostile, "cli", "check") == "False"
    assert not (hostile / "gone off").exists()


def test_a_config_that_names_a_class_imports_it_when_it_is_built(hostile):
    pytest.importorskip("pydantic")
    assert child(hostile, "cli", "build") == "True"
    assert (hostile / "gone off").exists()
