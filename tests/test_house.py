"""Rules of the house that no linter checks: rooms, sizes, words of summaries, and one owner of the state of a step."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "neyman"
FILES = sorted(SOURCE.rglob("*.py"))
TREES = {path.relative_to(SOURCE).as_posix(): ast.parse(path.read_text("utf-8")) for path in FILES}
IDIOM = re.compile(r"\b(what|say|says|said|tell|tells|told|hear|heard)\b", re.IGNORECASE)


def documented(tree):
    """Yield the modules, classes and functions of a tree."""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    return (node for node in ast.walk(tree) if isinstance(node, kinds))


def summaries_in_the_idiom(tree):
    """Return the first lines of docstrings that speak of data as of a person."""
    firsts = [(ast.get_docstring(node) or "").partition("\n")[0] for node in documented(tree)]
    return [line for line in firsts if IDIOM.search(line)]


def writes_to_the_state(tree):
    """Return the lines that assign to an attribute of a step's state, however it is named."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            flat = [
                t for target in targets for t in (target.elts if isinstance(target, ast.Tuple) else [target])
            ]
            for target in flat:
                owner = ast.unparse(target.value) if isinstance(target, ast.Attribute) else ""
                if owner.rpartition(".")[2] in ("state", "_state"):
                    found.append(node.lineno)
    return found


def test_the_top_of_the_package_is_a_hall_and_no_store():
    assert len(list(SOURCE.glob("*.py"))) <= 12


def test_rooms_are_at_most_two_levels_below_the_top():
    assert max(len(path.relative_to(SOURCE).parts) for path in FILES) <= 3


@pytest.mark.parametrize("path", TREES)
def test_files_and_functions_stay_short(path):
    assert len((SOURCE / path).read_text("utf-8").splitlines()) <= 400
    for node in ast.walk(TREES[path]):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            body = [item for item in node.body if not isinstance(item, ast.Expr | ast.FunctionDef)]
            length = body[-1].end_lineno - body[0].lineno if body else 0
            assert length < 80, f"{node.name} has {length} lines"


@pytest.mark.parametrize("path", TREES)
def test_summaries_begin_with_a_noun_or_a_verb_of_the_field(path):
    assert summaries_in_the_idiom(TREES[path]) == []


@pytest.mark.parametrize("path", [path for path in TREES if path.startswith(("step/", "controller"))])
def test_the_state_of_a_step_is_changed_by_its_own_methods_alone(path):
    assert path == "step/_state.py" or writes_to_the_state(TREES[path]) == []


def test_a_summary_and_a_write_that_break_the_rules_are_found():
    assert summaries_in_the_idiom(ast.parse('def f():\n    """Say what came."""'))
    assert writes_to_the_state(ast.parse("self._state.left -= 1\nstate.out, x = 1, 2")) == [1, 2]
