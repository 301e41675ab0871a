"""What decisions after a probe do to a prompt's expected gradient: the sizes that docs/methods/neyman.md names."""

from __future__ import annotations

import importlib.util
import itertools
import json
import sys
from pathlib import Path

import numpy as np
import pytest

from neyman import formulas

ROOT = Path(__file__).parents[2]
FIGURES = json.loads((ROOT / "benchmarks" / "results" / "gradient_bias.json").read_text())


def script(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "benchmarks" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # where dataclasses look for the types that they name
    spec.loader.exec_module(module)
    return module


bias = script("gradient_bias")


@pytest.fixture(autouse=True)
def _expected_warnings(caplog):
    """Most groups are without signal here, of which the controller warns."""
    caplog.set_level("ERROR", logger="neyman")


def first_step(case, seeds):
    """Return the ratio of expected to true gradient by rate, and its standard error."""
    found = bias.summary(
        [next(bias.opened_alike(bias.CASES[case], seed, history=0))[0] for seed in range(seeds)]
    )
    return np.array(found["mean"]), np.array(found["error"])


def test_equal_counts_give_every_prompt_its_gradient():
    mean, error = first_step("uniform", 300)
    assert error.max() < 0.08
    assert (np.abs(mean - 1.0) < 4.0 * error).all()


def test_neyman_takes_gradient_from_rare_outcomes_by_as_much_as_the_docs_say():
    mean, error = first_step("neyman", 300)
    hard = bias.RATES.index(0.1)
    assert error[hard] < 0.05
    assert mean[hard] + 4.0 * error[hard] < 1.0
    published = FIGURES["cases"]["neyman"]["ratio"]
    spread = np.hypot(error, published["error"])
    assert (np.abs(mean - published["mean"]) < 4.0 * spread).all()


def test_probes_alone_give_every_prompt_its_gradient():
    mean, error = first_step("neyman, probes alone", 300)
    assert error.max() < 0.12
    assert (np.abs(mean - 1.0) < 4.0 * error).all()


def test_scaled_to_its_probe_a_group_says_what_the_probe_alone_does():
    for seed in range(5):
        alone, scaled = (
            next(bias.opened_alike(bias.CASES[f"neyman, {form}"], seed, history=0))[0]
            for form in ("probes alone", "scaled to its probes")
        )
        assert scaled == pytest.approx(alone, abs=1e-12)


# Softmax policy over three answers, the first right: a success has one score, a failure either of two.
LOGITS = np.array([-1.0, 0.3, 0.8])


def expected_gradient(*, scaled):
    """Return E[sum a z] when a mixed pair is extended to four, by enumeration, with the true gradient and p."""
    chance = np.exp(LOGITS) / np.exp(LOGITS).sum()
    score = np.eye(3) - chance
    found = np.zeros(3)
    for answers in itertools.product(range(3), repeat=4):
        rewards = np.array([float(answer == 0) for answer in answers])
        n = 4 if rewards[0] != rewards[1] else 2
        factors = formulas.group_advantages(rewards[:n], [0] * n, "rloo") / n
        if scaled and factors.any():
            factors *= rewards[:2].var(ddof=1) / rewards[:n].var(ddof=1)
        found += chance[list(answers)].prod() * (factors @ score[list(answers[:n])])
    return found, chance[0] * score[0], chance[0]


def test_stopping_on_outcomes_scales_the_gradient_and_does_not_turn_it():
    found, true, p = expected_gradient(scaled=False)
    # A mixed pair (chance 2pq) that is extended has a variance of 1/4 + pq/6 on average, in place of 1/2.
    assert found == pytest.approx(true * (0.5 + p * (1.0 - p) / 3.0), abs=1e-15)


def test_scaling_to_the_probe_gives_the_gradient_exactly():
    found, true, _ = expected_gradient(scaled=True)
    assert found == pytest.approx(true, abs=1e-15)


def test_the_page_of_neyman_has_the_measured_figures():
    page = (ROOT / "docs" / "methods" / "neyman.md").read_text()
    words = " ".join(page.split())
    cases = ["uniform", "vip", "sara", "neyman", "neyman, full groups"]
    for line in script("render_bias").ratios(FIGURES, cases):
        assert line in page
    for case in ("neyman", "sara"):
        weight = np.array(FIGURES["cases"][case]["weight"]["mean"])
        weight /= weight.mean()
        for rate in (0.05, 0.5, 0.95):
            assert f"{weight[bias.RATES.index(rate)]:.2f}".removeprefix("0") in page
    noise = FIGURES["cases"]["neyman, scaled to its probes"]["noise"]
    assert f"{min(noise):.1f} to {max(noise):.1f} times the noise" in words
