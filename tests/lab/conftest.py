"""A cache of warm starts for the session, and experiments of seconds."""

import pytest

torch = pytest.importorskip("torch")

from neyman.lab import Experiment, starting_policy  # noqa: E402

TAUGHT = 150  # optimiser steps: enough for rates between 0 and 1, not for much skill


@pytest.fixture(scope="session")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("lab-policies")


@pytest.fixture
def tiny():
    """Build experiments of a few steps."""

    def build(**options):
        small = {
            "regime": "easy",
            "prompts": 8,
            "group_size": 4,
            "rollouts": 128,
            "pool": 64,
            "held_out": 50,
            "evaluations": 2,
            "warm_start_steps": TAUGHT,
        }
        return Experiment(**(small | options))

    return build


@pytest.fixture
def policy(tiny, cache):
    torch.set_num_threads(1)
    return starting_policy(tiny().warm_start, cache=cache)
