"""What users of RL trainers ran into: a group size that leaves most groups dead, found after the runs."""

from __future__ import annotations

import logging

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

import neyman
from neyman import Budget, Controller, preset
from neyman.errors import ArgumentError
from strategies import Host, run_step

SIZES = [2, 4, 8, 16]


def test_case_24_the_planner_foretells_the_share_of_dead_groups():
    """CASE 24. For one success rate, the reported numbers."""
    assert neyman.dead_share(0.18, SIZES).round(2).tolist() == [0.70, 0.45, 0.20, 0.04]
    assert neyman.dead_share(0.18, 2) == pytest.approx(0.82**2 + 0.18**2)


@given(
    rates=st.lists(
        st.floats(0.0, 1.0, allow_subnormal=False), min_size=1, max_size=9
    ),  # else SciPy overflows
    sizes=st.lists(st.integers(1, 64), min_size=1, max_size=5),
)
def test_case_24_the_share_is_the_mean_over_prompts_and_falls_with_the_size(rates, sizes):
    """CASE 24. For any prompts and sizes, against the binomial distribution."""
    shares = neyman.dead_share(rates, sizes)
    expected = [np.mean(binom.pmf(0, n, rates) + binom.pmf(n, n, rates) * (n > 0)) for n in sizes]
    np.testing.assert_allclose(shares, expected, atol=1e-12)
    assert (np.diff(neyman.dead_share(rates, sorted(sizes))) <= 1e-12).all()


@pytest.mark.parametrize("rates", [[], [[0.5]], [1.5], [float("nan")]])
def test_case_24_rates_that_are_none_are_refused(rates):
    """CASE 24. For what is no list of success rates."""
    with pytest.raises(ArgumentError, match="success_rate"):
        neyman.dead_share(rates, 4)


def warnings_of(caplog, name, rate, size, *, steps=12, prompts=16):
    """Run steps on prompts of one rate and return what was said of dead groups."""
    options = {"group_size": size} if name != "uniform" else {}
    wide = 1 if name == "uniform" else 4
    controller = Controller(
        preset(name, **options),
        budget=Budget(rollouts=wide * prompts * size),
        train_rows=prompts * size,
        pool=range(4000),
    )
    host = Host(rates=dict.fromkeys(range(4000), rate), seed=1)
    caplog.clear()
    with caplog.at_level(logging.WARNING, logger="neyman"):
        for step in range(steps):
            run_step(controller, host, range(prompts * step, prompts * (step + 1)))
    return [r.getMessage() for r in caplog.records if "no signal" in r.getMessage()]


@pytest.mark.parametrize("name", ["uniform", "dynamic-sampling"])
@pytest.mark.parametrize(("rate", "size"), [(0.18, 2), (0.05, 8), (0.98, 16)])
def test_case_24_a_group_size_that_leaves_most_groups_dead_is_warned_of_once(caplog, name, rate, size):
    """CASE 24. For rates and sizes with more dead groups than live ones, in the first steps of a run."""
    (message,) = warnings_of(caplog, name, rate, size)
    assert "Raise the group size" in message
    assert f"{2 * size}.0 rollouts" not in message
    assert f"{size}.0 rollouts a group" in message
    assert float(message.partition("%")[0]) > 50


@pytest.mark.parametrize("name", ["uniform", "dynamic-sampling", "sara"])
@pytest.mark.parametrize(("rate", "size"), [(0.18, 8), (0.5, 2), (0.95, 32)])
def test_case_24_a_group_size_that_fits_is_not_warned_of(caplog, name, rate, size):
    """CASE 24. For rates and sizes with more live groups than dead ones."""
    assert warnings_of(caplog, name, rate, size, steps=8) == []
