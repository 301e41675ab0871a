"""How the suites are imported, collected and used."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from neyman import testing
from neyman.testing._contract import PAGE, Suite

ROOT = Path(__file__).parent.parent.parent
SUITES = [name for name in testing.__all__ if name.endswith("Suite")]


def test_the_public_names_are_these():
    assert testing.__all__ == [
        "AllocateSuite",
        "BeliefSuite",
        "BrokenContract",
        "Host",
        "HostCase",
        "HostDriver",
        "HostRecord",
        "HostStep",
        "HostSuite",
        "SelectSuite",
        "StrategySuite",
        "VerdictSuite",
        "run_step",
    ]


@pytest.mark.parametrize("absent", ["pytest", "hypothesis"])
def test_without_pytest_the_error_has_the_command(absent):
    code = f"import sys; sys.modules[{absent!r}] = None\nimport neyman.testing"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode
    assert (
        f"neyman.testing needs {absent}, which is not installed: run pip install '.[testing]'" in done.stderr
    )


def test_the_example_of_the_page_passes_and_the_suites_themselves_are_not_collected(tmp_path):
    (block,) = re.findall(r"```python\n(.*?)```", (ROOT / PAGE).read_text(), re.DOTALL)
    (tmp_path / "test_mine.py").write_text(block)
    command = [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", "--rootdir", str(tmp_path)]
    done = subprocess.run([*command, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    collected = {line.split("::")[1] for line in done.stdout.splitlines() if "::" in line}
    assert collected == {
        "TestClosestToHalf",
        "TestMyStrategy",
        "TestItsBelief",
        "TestItsAllocation",
        "TestAVerdict",
    }


@pytest.mark.parametrize("name", SUITES)
def test_a_suite_is_collected_only_when_it_is_subclassed(name):
    suite = getattr(testing, name)
    assert suite.__test__ is False
    assert type("Mine", (suite,), {}).__test__ is True
    assert type("Base", (suite,), {"__test__": False}).__test__ is False


@pytest.mark.parametrize("name", SUITES)
def test_a_subclass_without_make_is_told_so(name):
    suite = type("TestMine", (getattr(testing, name),), {})()
    with pytest.raises(NotImplementedError, match=r"TestMine has no make\(\)"):
        suite.make()


@pytest.mark.parametrize("name", SUITES)
def test_every_attribute_hook_and_check_is_documented(name):
    suite = getattr(testing, name)
    own = {
        attribute: value
        for kind in suite.__mro__
        if kind.__module__.startswith("neyman.testing")
        for attribute, value in vars(kind).items()
        if not attribute.startswith("_")
    }
    for attribute, value in own.items():
        if attribute.startswith("test_"):
            assert value.__doc__, attribute
        elif not callable(value):
            assert re.search(rf"\b{attribute}\b", f"{suite.__doc__}{Suite.__doc__}"), attribute
