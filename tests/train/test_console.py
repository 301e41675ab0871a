"""The lines that a person sees where the output is no terminal."""

import io

import pytest

pytest.importorskip("rich")

from rich.console import Console

from neyman.config import from_mapping
from neyman.train import Outcome, RunFolder
from neyman.train._console import Display


def step(folder, number):
    spent = {"rollouts": 128 * number, "tokens": 640 * number}
    folder.append({"event": "step", "step": number, **spent, "report": {"effective_ratio": 0.5}})


def measure(folder, number):
    spent = {"rollouts": 128 * number, "tokens": 640 * number}
    folder.append({"event": "eval", "step": number, **spent, "accuracy": number / 100})


@pytest.fixture
def shown(tmp_path):
    """Return a display, the folder of its only run, and what it has said so far."""
    text = io.StringIO()
    config = from_mapping({"seeds": [0], "baselines": [], "strategy": {"name": "vip"}})
    folder = RunFolder(tmp_path / "vip-seed0")
    folder.begin({})
    display = Display(config, tmp_path, Console(file=text, width=200))
    return (
        display,
        folder,
        lambda: [line.partition(", effective")[0] for line in text.getvalue().splitlines()],
    )


def test_a_measurement_is_said_with_the_step_that_it_was_taken_at(shown):
    display, folder, said = shown
    measure(folder, 0)
    display.update([folder])
    for number in range(1, 26):
        step(folder, number)
        if number == 24:
            measure(folder, number)
    display.update([folder])
    display.update([folder])
    assert said() == [
        "vip-seed0: step 0/48, 0 rollouts, accuracy 0.000",
        "vip-seed0: step 24/48, 3072 rollouts, accuracy 0.240",
    ]


@pytest.mark.parametrize("seen", [True, False])
def test_the_last_measurement_is_said_once_whoever_sees_it_first(shown, seen):
    display, folder, said = shown
    step(folder, 48)
    measure(folder, 48)
    if seen:
        display.update([folder])
    display.ended(Outcome(name="vip-seed0", error=None, log=folder.log))
    assert said() == ["vip-seed0: step 48/48, 6144 rollouts, accuracy 0.480", "vip-seed0: done"]


def test_a_run_that_failed_says_why(shown):
    display, folder, said = shown
    display.ended(Outcome(name="vip-seed0", error="it broke", log=folder.log))
    assert said() == ["vip-seed0: it broke"]
