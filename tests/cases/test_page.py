"""The page of cases names tests that exist, one of them over a class of inputs, and defaults that are the code's."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from functools import cache
from pathlib import Path

import pytest

import neyman

TESTS = Path(__file__).parents[1]
ROWS = {
    int(number): (holds, inputs, tests, choice)
    for number, holds, inputs, tests, choice in re.findall(
        r"^\| (\d+) \| (.+?) \| (.+?) \| (.+?) \| (.*?) ?\|$",
        (TESTS.parent / "docs" / "reliability.md").read_text(encoding="utf-8"),
        flags=re.MULTILINE,
    )
}


@cache
def functions(path):
    """Return the names of a file's tests, each with those of its decorators."""
    tree = ast.parse((TESTS / path).read_text(encoding="utf-8"))
    return {
        node.name: {ast.unparse(decorator).partition("(")[0] for decorator in node.decorator_list}
        for node in tree.body
        if isinstance(node, ast.FunctionDef)
    }


def default_of(call, name):
    """Return the default of an argument of a public name, or of a preset."""
    target = getattr(neyman, call.func.id, None) or getattr(neyman.formulas, call.func.id)
    if call.func.id == "preset":
        target = importlib.import_module(f"neyman.presets.{ast.literal_eval(call.args[0])}").build
    return inspect.signature(target).parameters[name].default


def test_every_case_has_its_line():
    assert list(ROWS) == list(range(1, 33))


@pytest.mark.parametrize("number", ROWS)
def test_the_tests_that_a_case_names_exist_and_one_is_over_its_class_of_inputs(number):
    named = re.findall(r"`([\w/]+\.py)::(\w+)`", ROWS[number][2])
    assert ROWS[number][2] == ", ".join(f"`{path}::{test}`" for path, test in named)
    for path, test in named:
        assert test in functions(path), f"{path} has no {test}"
    of_the_case = [(path, test) for path, test in named if test.startswith(f"test_case_{number:02}_")]
    assert any("given" in functions(path)[test] for path, test in of_the_case if path.startswith("cases/"))


@pytest.mark.parametrize("number", ROWS)
def test_the_defaults_that_a_case_names_are_the_codes(number):
    for source in re.findall(r"`(\w+\([^`]+\))`", ROWS[number][3]):
        call = ast.parse(source, mode="eval").body
        for keyword in call.keywords:
            assert default_of(call, keyword.arg) == ast.literal_eval(keyword.value), source


def test_a_name_that_is_gone_and_a_default_that_changed_are_noticed():
    assert "test_case_99_nothing" not in functions("cases/test_steps.py")
    call = ast.parse("Controller(retries=0.2)", mode="eval").body
    assert default_of(call, "retries") != ast.literal_eval(call.keywords[0].value)
