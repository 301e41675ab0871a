"""The loss by early verdicts is estimated without bias, and their yield is judged right."""

from __future__ import annotations

import logging

import numpy as np
import pytest

from neyman import Budget, Controller, Outcome, formulas, preset
from neyman.rules import EarlyVerdict, FullGroup
from neyman.rules.audit import audit, survival_probability
from neyman.step._yield import Yield
from strategies import PRESETS

K = 8
UNIFORM = (1.0, 1.0)


def simulate(verdict, rates, rng):
    """Draw whole groups, take verdicts on their prefixes, and return the audit and the truth."""
    outcomes = rng.random((len(rates), K)) < rates[:, None]
    totals, open_rows = outcomes.sum(axis=1), np.ones(len(rates), dtype=bool)
    committed, stopped = [], []
    for look in verdict.looks(K):
        so_far = outcomes[:, :look].sum(axis=1)
        mixed = open_rows & (so_far > 0) & (so_far < look)
        committed += [(s, K, UNIFORM) for s in totals[mixed].tolist()]
        open_rows &= ~mixed
        for pure in (0, look):
            if look == K or verdict.decide(pure, look, K, UNIFORM) == "abandon":
                given_up = open_rows & (so_far == pure)
                stopped += [(look, K)] * int(given_up.sum())
                open_rows &= ~given_up
    s = outcomes.sum(axis=1)
    return audit(verdict, committed, stopped), float(((s > 0) & (s < K)).sum()), float((s * (K - s)).sum())


@pytest.mark.parametrize(
    ("verdict", "draw"),
    [
        (EarlyVerdict(), lambda rng: rng.beta(0.4, 0.4, 64)),
        (EarlyVerdict(), lambda rng: np.full(64, 0.1)),
        (EarlyVerdict(0.6, schedule=(2, 3, 5)), lambda rng: rng.uniform(size=64)),
    ],
)
def test_effective_groups_and_signal_are_estimated_without_bias(verdict, draw):
    rng = np.random.default_rng(7)
    errors = []
    for _ in range(1500):
        finding, effective, signal = simulate(verdict, draw(rng), rng)
        errors.append((finding.effective - effective, finding.signal - signal))
    mean, error = np.mean(errors, axis=0), np.std(errors, axis=0) / np.sqrt(len(errors))
    assert (np.abs(mean) < 4 * error).all()
    assert (error < (0.3, 4.0)).all(), "tight enough to see a bias of a few percent"


def test_the_stated_variance_is_that_of_the_estimate_beyond_the_groups_drawn():
    rng = np.random.default_rng(3)
    pairs = [simulate(EarlyVerdict(), np.full(64, 0.2), rng) for _ in range(1500)]
    errors = np.array([finding.effective - effective for finding, effective, _ in pairs])
    stated = np.mean([finding.variance for finding, _, _ in pairs])
    assert errors.var() == pytest.approx(stated, rel=0.12)  # a variance of 1500 draws has an error of 4 %


def test_signal_kept_is_that_of_the_formula():
    rng = np.random.default_rng(5)
    for p in (0.05, 0.2, 0.5):
        findings = [simulate(EarlyVerdict(), np.full(512, p), rng)[0] for _ in range(60)]
        kept = sum(f.kept for f in findings) / sum(f.signal for f in findings)
        assert kept == pytest.approx(float(formulas.signal_kept(p, K, 4)), abs=0.02)


def test_survival_is_one_minus_the_chance_of_a_pure_prefix():
    from math import comb

    expected = 1.0 - comb(6, 4) / comb(8, 4)  # two successes of eight: the first four may all fail
    assert expected == pytest.approx(survival_probability(EarlyVerdict(), 2, 8, UNIFORM))
    assert survival_probability(FullGroup(), 1, 8, UNIFORM) == 1.0


def test_survival_equals_the_share_of_orders_that_survive():
    from itertools import permutations

    verdict = EarlyVerdict(0.6, schedule=(2, 3), min_probe=2)
    for s in range(1, 5):
        group = [1] * s + [0] * (5 - s)
        kept = 0
        for order in permutations(group):
            alive = True
            for look in verdict.looks(5)[:-1]:
                t = sum(order[:look])
                if 0 < t < look:
                    break
                if verdict.decide(t, look, 5, UNIFORM) == "abandon":
                    alive = False
                    break
            kept += alive
        assert survival_probability(verdict, s, 5, UNIFORM) == pytest.approx(kept / 120)


def test_without_any_group_nothing_is_missed():
    finding = audit(EarlyVerdict(), [], [])
    assert (finding.miss_rate, finding.signal_kept, finding.judged) == (0.0, 1.0, 0)


def observed(rates, steps=60, seed=0, **options):
    """Run SARA over a pool of these rates and return the controller."""
    rng = np.random.default_rng(seed)
    pool = range(len(rates))
    strategy = preset(options.pop("name", "sara"), group_size=K, **options)
    controller = Controller(strategy, budget=Budget(rollouts=1024), train_rows=256, pool=pool, seed=seed)
    rounds = []
    for step in range(steps):
        controller.begin([(step * 32 + i) % len(rates) for i in range(32)])
        while not controller.is_done:
            controller.tell(
                Outcome(rollout_id=i, prompt_id=r.prompt_id, reward=float(rng.random() < rates[r.prompt_id]))
                for r in controller.ask()
                for i in r.rollout_ids
            )
        rounds.append(controller.finish().report["rounds"])
    return controller, rounds


def warnings_of(caplog, rates, **options):
    caplog.clear()
    with caplog.at_level(logging.WARNING, logger="neyman"):
        observed(np.asarray(rates), **options)
    return [r.getMessage() for r in caplog.records]


@pytest.mark.slow
@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_homogeneous_prompts_are_warned_of(caplog, rate):
    assert not formulas.yield_condition(K, 4, success_rate=[rate]).holds
    # A prior that learns the pool stops giving them up; the published one, of every step anew, does not.
    message, *more = warnings_of(caplog, np.full(4000, rate), steps=40, variant="published")
    assert len(more) < 3, "it is said once, and again only after the doubt had gone"
    assert "early verdicts cost more than they save" in message
    assert "preset('dynamic-sampling')" in message


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_u_shaped_prompts_are_not_warned_of(caplog, seed):
    assert formulas.yield_condition(K, 4, prior=(0.4, 0.4)).holds
    rates = np.random.default_rng(seed).beta(0.4, 0.4, 4000)
    assert warnings_of(caplog, rates, seed=seed, steps=40) == []


def test_dynamic_sampling_is_never_warned_of_and_its_margin_is_one(caplog):
    assert warnings_of(caplog, np.full(2000, 0.3), steps=12, name="dynamic-sampling") == []
    controller, _ = observed(np.full(2000, 0.3), steps=4, name="dynamic-sampling")
    assert controller._engine.state.observed.margin(K) == pytest.approx(1.0)


def test_the_margin_is_that_of_the_yield_condition():
    rng = np.random.default_rng(11)
    seen = Yield()
    rates = np.full(20_000, 0.2)
    seen.add(simulate(EarlyVerdict(), rates, rng)[0])
    check = formulas.yield_condition(K, 4, success_rate=[0.2])
    assert seen.margin(K) == pytest.approx(check.odds_ratio / check.required, rel=0.05)


def test_a_step_takes_two_to_four_rounds_on_u_shaped_prompts():
    rates = np.random.default_rng(0).beta(0.4, 0.4, 4000)
    _, rounds = observed(rates, steps=15)
    assert 2.0 <= np.mean(rounds) <= 4.0


@pytest.mark.parametrize("name", [name for name, make in PRESETS.items() if make().verdict is not None])
def test_a_chance_of_survival_is_a_probability_and_the_audits_variance_none_below_zero(name):
    # Shares that make up 1 may be rounded beyond it; the square root of the variance then ended a training.
    verdict, prior = PRESETS[name]().verdict, (1.0, 1.0)
    for size in range(8, 33):
        looked = Yield()
        for successes in range(1, size):
            assert 0.0 <= survival_probability(verdict, successes, size, prior) <= 1.0
            found = audit(verdict, [(successes, size, prior)] * 64, [(2, size)])
            assert found.variance >= 0.0
            looked.add(found)
            looked.warn(size)
