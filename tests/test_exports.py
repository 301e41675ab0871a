"""The public names, and what importing them loads."""

from __future__ import annotations

import subprocess
import sys

import neyman

PUBLIC = [
    "Batch",
    "Budget",
    "Cancel",
    "Controller",
    "Fate",
    "GroupReport",
    "Ledger",
    "MissingReward",
    "Outcome",
    "Reason",
    "Request",
    "Status",
    "StopReason",
    "Strategy",
    "Work",
    "abandon_index",
    "allocate",
    "beliefs",
    "dead_share",
    "effective_probability",
    "errors",
    "gradient_variance",
    "group_advantages",
    "maj_at_k",
    "mean_at_k",
    "modulation",
    "pass_at_k",
    "preset",
    "prompt_weights",
    "rules",
    "water_level",
]


def test_the_public_names_are_these():
    assert neyman.__all__ == PUBLIC
    assert all(hasattr(neyman, name) for name in PUBLIC)


def test_warnings_are_seen_where_nobody_configured_logging():
    code = "import logging, neyman; logging.getLogger('neyman').warning('look here')"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stderr
    assert said.strip() == "look here"


def test_import_loads_numpy_and_scipy_only_and_changes_nothing():
    code = """
import sys, random, logging, numpy, scipy
before = set(sys.modules)
state = random.getstate(), numpy.random.get_state()[1].tolist(), logging.getLogger().handlers[:]
import neyman
assert state == (random.getstate(), numpy.random.get_state()[1].tolist(), logging.getLogger().handlers[:])
tops = {name.partition(".")[0] for name in set(sys.modules) - before}
print(sorted(tops - set(sys.stdlib_module_names) - {"neyman", "numpy", "scipy"}))
"""
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed.strip() == "[]"
