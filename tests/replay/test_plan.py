"""The planner: moments without bias, the closed forms of the verdicts, and the figures of a real pool."""

import os
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest

from neyman import formulas, preset
from neyman.errors import ArgumentError
from neyman.replay import BetaDifficulty, CountDifficulty, plan, plan_of, read_logs
from replay.records import build_trace

COUNTS = Path(os.environ.get("NEYMAN_DATA", "data")) / "deepscaler_pass_counts.parquet"


@pytest.mark.parametrize("powers", [(0, 0), (2, 0), (0, 3), (2, 1), (1, 2)])
def test_moments_of_counts_are_the_chance_of_that_run_among_the_trials(powers):
    fails, wins = powers
    outcomes = [1, 1, 1, 0, 0]
    wanted = [0] * fails + [1] * wins
    runs = [list(order[: fails + wins]) == wanted for order in permutations(outcomes)]
    assert CountDifficulty([3], [5]).moments([powers])[0, 0] == pytest.approx(np.mean(runs))


def test_moments_of_counts_are_unbiased_for_the_rate():
    rate, trials, powers = 0.3, 6, [(4, 0), (0, 2), (2, 2)]
    wins = np.arange(trials + 1)
    chance = np.array([np.prod(np.arange(trials - s + 1, trials + 1) / np.arange(1, s + 1)) for s in wins])
    chance *= rate**wins * (1 - rate) ** (trials - wins)
    expected = chance @ CountDifficulty(wins, np.full(trials + 1, trials)).moments(powers)
    assert expected == pytest.approx([0.7**4, 0.3**2, 0.7**2 * 0.3**2])


def test_moments_of_a_beta_agree_with_integration():
    nodes, weights = np.polynomial.legendre.leggauss(80)
    p = (nodes + 1) / 2
    density = weights / 2 * p * (1 - p) ** 2
    for fails, wins in ((3, 0), (0, 4), (2, 1)):
        integral = (density * (1 - p) ** fails * p**wins).sum() / density.sum()
        assert BetaDifficulty(2, 3).moments([(fails, wins)])[0, 0] == pytest.approx(integral)


@pytest.mark.parametrize("prior", [(1.0, 1.0), (0.3, 0.5), (2.0, 2.0)])
@pytest.mark.parametrize("k", [4, 8, 16])
def test_the_plan_agrees_with_the_formulas_of_verdicts(prior, k):
    one = plan(BetaDifficulty(*prior), k)
    index = formulas.abandon_index(k, 0.45)[0]
    check = formulas.yield_condition(k, index, prior=prior)
    sara = one.ways["sara"]
    assert sara.probe == index
    assert one.dead.mean == pytest.approx(1 - check.mixed_by_group)
    assert one.yield_holds == check.holds
    assert 1 / (1 - sara.saving.mean) == pytest.approx(check.relative_yield)
    rollouts = float(formulas.expected_rollouts(k, index, prior=prior)) / check.mixed_by_probe
    assert sara.rollouts_per_group.mean == pytest.approx(rollouts)
    assert one.ways["best probe"].rollouts_per_group.mean <= min(rollouts, k / check.mixed_by_group) + 1e-12
    assert one.ways["perfect choice"].saving.mean == pytest.approx(one.dead.mean)


@pytest.mark.parametrize(("k", "n"), [(8, 4), (8, 7), (4, 2), (3, 2)])
def test_signal_kept_agrees_with_the_formula_of_verdicts(k, n):
    from neyman.replay._plan import _signal_kept

    # Rates that counts hold exactly: 12 trials each, and the formula's expectations weighted by p(1-p).
    nodes, weights = np.polynomial.legendre.leggauss(60)
    p = (nodes + 1) / 2
    kept = formulas.signal_kept(p, k, n)
    expected = (weights * kept * p * (1 - p)).sum() / (weights * p * (1 - p)).sum()
    assert _signal_kept(BetaDifficulty(1, 1), k, n, (0, n)) == pytest.approx(expected)


@pytest.mark.parametrize("name", ["speed", "pilot-commit"])
@pytest.mark.parametrize("k", [3, 4, 8, 32])
def test_screening_rules_cost_and_keep_what_playing_them_does(name, k):
    """The plan's closed forms against the presets' own verdicts, played on drawn outcomes."""
    rng, groups = np.random.default_rng([k, len(name)]), 40_000
    outcomes = rng.random((groups, k)) < rng.beta(0.5, 0.7, groups)[:, None]
    verdict = preset(name).verdict
    look, *_ = verdict.looks(k)
    table = np.array([verdict.decide(s, look, k, (1.0, 1.0)) == "commit" for s in range(look + 1)])
    passed = table[outcomes[:, :look].sum(axis=1)]
    spent, wins = np.where(passed, k, look), outcomes.sum(axis=1)
    way = plan(BetaDifficulty(0.5, 0.7), k).ways[name]
    assert way.probe == look
    for top, bottom, expected in (
        (spent, passed, way.rollouts_per_group.mean),
        (passed * wins * (k - wins), wins * (k - wins), way.signal_kept),
    ):
        ratio = top.mean() / bottom.mean()
        error = (top - ratio * bottom).std() / bottom.mean() / np.sqrt(groups)
        assert abs(ratio - expected) <= 4.5 * error + 1e-12


@pytest.mark.parametrize("name", ["speed", "pilot-commit"])
def test_screening_rules_are_planned_without_bias_from_counts(name):
    rng = np.random.default_rng(3)
    counts = CountDifficulty(rng.binomial(8, rng.beta(0.5, 0.7, 4000)), np.full(4000, 8))
    found, truth = (plan(one, 8).ways[name] for one in (counts, BetaDifficulty(0.5, 0.7)))
    half = (found.rollouts_per_group.high - found.rollouts_per_group.low) / 2
    assert abs(found.rollouts_per_group.mean - truth.rollouts_per_group.mean) < 2.5 * half
    assert found.signal_kept == pytest.approx(truth.signal_kept, abs=0.02)


def test_in_groups_of_four_speed_is_dynamic_sampling():
    one = plan(BetaDifficulty(0.5, 0.7), 4)
    assert one.ways["speed"].rollouts_per_group == one.ways["dynamic-sampling"].rollouts_per_group
    assert one.ways["speed"].signal_kept == 1.0


def test_a_budget_buys_groups_and_no_effective_group_is_said_plainly():
    one = plan(BetaDifficulty(1, 1), 8, budget=1000)
    assert one.ways["dynamic-sampling"].groups.mean == pytest.approx(1000 * (1 - 2 / 9) / 8)
    dead = plan(CountDifficulty([0, 8], [8, 8]), 4, budget=100).as_dict()
    assert dead["dead"]["mean"] == 1.0
    assert dead["ways"]["dynamic-sampling"]["rollouts_per_group"]["mean"] is None
    assert dead["ways"]["dynamic-sampling"]["groups"]["mean"] == 0.0


def test_intervals_hold_the_chance_of_the_prompts():
    rng = np.random.default_rng(0)
    truth = plan(BetaDifficulty(0.4, 0.6), 8).dead.mean
    held = []
    for _ in range(60):
        one = plan(CountDifficulty(rng.binomial(16, rng.beta(0.4, 0.6, 300)), np.full(300, 16)), 8).dead
        held.append(one.low <= truth <= one.high)
    assert np.mean(held) >= 0.95 - 4 * np.sqrt(0.95 * 0.05 / 60)


def test_groups_larger_than_any_record_are_refused_and_smaller_prompts_left_out():
    with pytest.raises(ArgumentError, match=r"at least 16 recorded trials.*most here is 8"):
        plan(CountDifficulty([1, 2], [8, 8]), 16)
    assert plan(CountDifficulty([1, 2], [8, 4]), 8).prompts == 1
    assert plan_of(build_trace([[(1, 4)]]), 8) is None
    with pytest.raises(ArgumentError):
        BetaDifficulty(0, 1)
    with pytest.raises(ArgumentError):
        CountDifficulty([0], [0])


def test_on_a_real_pool_early_verdicts_save_what_was_found():
    if not COUNTS.exists():
        pytest.skip(f"no counts at {COUNTS}: set NEYMAN_DATA to the folder that has {COUNTS.name}")
    trace, _, _ = read_logs([COUNTS])
    plans = {k: plan(CountDifficulty(trace.successes, trace.trials), k) for k in (8, 16, 32)}
    assert [one.ways["best probe"].probe for one in plans.values()] == [3, 3, 3]
    savings = [round(one.ways["best probe"].saving.mean, 2) for one in plans.values()]
    assert savings == [0.09, 0.17, 0.21]
    assert [round(one.dead.mean, 2) for one in plans.values()] == [0.54, 0.44, 0.36]
    assert all(one.yield_holds for one in plans.values())
