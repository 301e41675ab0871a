"""TRL's private names stand in one place, so that a new TRL is met in one place."""

from __future__ import annotations

import ast
from pathlib import Path

from neyman import trl

FOLDER = Path(trl.__file__).parent
# `_mixin` overrides TRL's methods, which it can only do by their names; torch has no other way to its store.
ALLOWED = {"_host.py": None, "_mixin.py": None, "_ranks.py": {"_get_default_store"}}


def private_names(path: Path) -> set[str]:
    """Return the private attributes that a module reads or writes of anything but its own objects."""
    return {
        node.attr
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute)
        and node.attr.startswith("_")
        and not node.attr.startswith("__")
        and not (isinstance(node.value, ast.Name) and node.value.id in {"self", "cls"})
    }


def test_trls_private_names_stand_in_host_and_mixin_alone() -> None:
    found = {path.name: private_names(path) for path in FOLDER.glob("*.py")}
    assert found["_host.py"] >= {"_metrics", "_logs", "_step", "_buffered_inputs", "_pending_extra_logs"}
    for name, names in found.items():
        allowed = ALLOWED.get(name, set())
        assert allowed is None or names <= allowed, name
