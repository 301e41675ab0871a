"""Gives the report's tests the generator of synthetic runs."""

import importlib.util
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def synthetic():
    spec = importlib.util.spec_from_file_location(
        "report_synthetic", Path(__file__).with_name("synthetic.py")
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def write_run(synthetic):
    return synthetic.write_run
