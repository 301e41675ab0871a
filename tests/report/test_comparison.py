"""The figures of a comparison: settings chosen without the seed reported, costs, shares, and a safe page."""

import itertools
import json

import numpy as np
import pytest

from neyman.errors import ArgumentError
from neyman.report import comparison_summary, write_comparison
from neyman.report._comparison import flip_test, resamples

FIGURES = {"mean", "low", "high"}


def one_run(strategy, seed, final, *, rate=1e-3, size=4, regime="hard", tokens_per_rollout=4.0, budget=1000):
    """A run whose accuracy rises in a straight line from .2 to ``final``."""
    rollouts = np.linspace(0, budget, 11)
    return {
        "experiment": {
            "regime": regime,
            "strategy": strategy,
            "learning_rate": rate,
            "group_size": size,
            "rollouts": budget,
        },
        "seed": seed,
        "curve": {
            "rollouts": rollouts.tolist(),
            "tokens": (tokens_per_rollout * rollouts).tolist(),
            "accuracy": (0.2 + (final - 0.2) * rollouts / budget).tolist(),
        },
        "steps": {
            "rows": [32.0, 32.0],
            "coverage": [0.1, 0.2],
            "effective_groups": [4.0, 6.0],
            "gradient_norm": [0.1, 0.3],
            "entropy": [0.5, 0.5],
        },
    }


@pytest.fixture
def runs():
    offsets = (0.0, 0.01, -0.01, 0.005)
    finals = {"uniform": 0.6, "ours": 0.7, "oracle": 0.8}
    return [one_run(name, seed, f + offsets[seed]) for name, f in finals.items() for seed in range(4)]


def test_the_summary_has_the_names_that_checks_outside_read(runs):
    summary = comparison_summary(runs)
    assert list(summary) == ["regimes"]
    strategies = summary["regimes"]["hard"]["strategies"]
    assert set(strategies) == {"uniform", "ours", "oracle"}
    for one in strategies.values():
        for name in ("final_accuracy", "rollouts_to_reference", "oracle_saving_captured"):
            assert set(one[name]) >= FIGURES
    assert json.loads(json.dumps(summary, allow_nan=False)) == summary


def test_costs_and_shares_of_straight_lines_are_what_they_must_be(runs):
    ours = comparison_summary(runs)["regimes"]["hard"]["strategies"]["ours"]
    # From .2 to .70125 in 1,000 rollouts: .60125 is reached at 800.5; the oracle is there at 667.2.
    mean = {"uniform": 0.60125, "ours": 0.70125, "oracle": 0.80125}
    cost = {name: 1000 * (mean["uniform"] - 0.2) / (final - 0.2) for name, final in mean.items()}
    assert ours["rollouts_to_reference"]["mean"] == pytest.approx(cost["ours"])
    assert ours["share_of_reference_rollouts"]["mean"] == pytest.approx(cost["ours"] / 1000)
    saving = (cost["uniform"] - cost["ours"]) / (cost["uniform"] - cost["oracle"])
    assert ours["oracle_saving_captured"]["mean"] == pytest.approx(saving)
    assert ours["oracle_gain_captured"]["mean"] == pytest.approx(0.5)
    assert ours["final_accuracy"]["mean"] == pytest.approx(mean["ours"])
    assert ours["difference_to_reference"]["mean"] == pytest.approx(0.1)
    assert ours["difference_to_reference"]["wins"] == 4
    assert ours["difference_to_reference"]["p_value"] == 0.125
    low, high = (ours["rollouts_to_reference"][key] for key in ("low", "high"))
    assert low < cost["ours"] < high


def test_a_strategy_that_never_gets_there_has_the_budget_as_a_bound():
    runs = [
        one_run(name, seed, final) for name, final in (("uniform", 0.6), ("worse", 0.4)) for seed in (0, 1)
    ]
    worse = comparison_summary(runs)["regimes"]["hard"]["strategies"]["worse"]
    assert worse["rollouts_to_reference"] == {"mean": 1000.0, "low": None, "high": None, "censored": True}
    assert worse["oracle_saving_captured"] is None


def test_each_seed_is_reported_at_the_setting_that_was_best_on_the_others():
    # At the high rate seed 0 is lucky; the others do better at the low one.
    lucky = [one_run("uniform", seed, 0.9 if seed == 0 else 0.4, rate=1e-2) for seed in range(3)]
    steady = [one_run("uniform", seed, 0.5, rate=1e-3) for seed in range(3)]
    uniform = comparison_summary(lucky + steady)["regimes"]["hard"]["strategies"]["uniform"]
    rates = {seed: setting["learning_rate"] for seed, setting in uniform["setting_by_seed"].items()}
    # Seed 0 is chosen for by the others (low); they see its luck: (.9 + .4)/2 > .5.
    assert rates == {"0": 1e-3, "1": 1e-2, "2": 1e-2}
    assert uniform["final_accuracy"]["mean"] == pytest.approx((0.5 + 0.4 + 0.4) / 3)
    assert len(uniform["settings"]) == 2


def test_the_oracle_without_a_saving_gives_no_share():
    finals = {"uniform": 0.6, "ours": 0.7, "oracle": 0.5}
    runs = [one_run(name, seed, final) for name, final in finals.items() for seed in (0, 1)]
    ours = comparison_summary(runs)["regimes"]["hard"]["strategies"]["ours"]
    assert ours["oracle_saving_captured"] == {"mean": None, "low": None, "high": None}
    assert ours["oracle_gain_captured"]["mean"] is None


def test_equal_tokens_are_the_most_that_every_run_has_spent():
    runs = [
        one_run("uniform", seed, 0.6, tokens_per_rollout=tokens)
        if tokens == 4
        else one_run("short", seed, 0.6, tokens_per_rollout=tokens)
        for tokens in (4, 2)
        for seed in (0, 1)
    ]
    regime = comparison_summary(runs)["regimes"]["hard"]
    assert regime["compared_at"] == {"rollouts": 1000.0, "tokens": 2000.0}
    assert regime["strategies"]["short"]["accuracy_at_equal_tokens"]["mean"] == pytest.approx(0.6)
    assert regime["strategies"]["uniform"]["accuracy_at_equal_tokens"]["mean"] == pytest.approx(0.4)


def test_the_reference_reaches_its_own_final_in_every_resample():
    rng = np.random.default_rng(1)
    runs = []
    for seed in range(4):
        run = one_run("uniform", seed, 0.6)
        run["curve"]["accuracy"] = np.sort(rng.random(11)).tolist()
        runs.append(run)
    cost = comparison_summary(runs)["regimes"]["hard"]["strategies"]["uniform"]["rollouts_to_reference"]
    assert cost["mean"] == pytest.approx(1000.0)
    assert not cost["censored"]
    assert cost["low"] is None or cost["high"] == pytest.approx(1000.0)


def test_intervals_of_accuracies_stay_between_none_and_all():
    runs = [one_run("uniform", seed, final) for seed, final in enumerate((0.9, 1.0))]
    final = comparison_summary(runs)["regimes"]["hard"]["strategies"]["uniform"]["final_accuracy"]
    assert final["high"] == 1.0


def test_only_seeds_that_all_ran_are_compared(runs):
    less = [run for run in runs if (run["experiment"]["strategy"], run["seed"]) != ("ours", 3)]
    assert comparison_summary(less)["regimes"]["hard"]["seeds"] == [0, 1, 2]


def test_what_cannot_be_compared_is_named(runs):
    with pytest.raises(ArgumentError, match="no complete runs"):
        comparison_summary([])
    with pytest.raises(ArgumentError, match="reference 'vip' has no run in regime 'hard'"):
        comparison_summary(runs, reference="vip")
    with pytest.raises(ArgumentError, match="no seed was run by every strategy"):
        comparison_summary([one_run("uniform", 0, 0.5), one_run("ours", 1, 0.5)])


def test_resamples_begin_with_the_sample_and_weigh_seeds_alike():
    weights = resamples(3)
    assert weights.shape == (28, 3)
    np.testing.assert_allclose(weights.sum(axis=1), 1.0)
    np.testing.assert_allclose(weights[0], 1.0 / 3.0)
    np.testing.assert_allclose(weights[1:].mean(axis=0), 1.0 / 3.0)


def test_the_flip_test_counts_sign_patterns():
    d = [0.3, -0.1, 0.2, 0.25]
    patterns = [abs(np.dot(signs, d)) for signs in itertools.product((1, -1), repeat=4)]
    assert flip_test(d) == np.mean([value >= abs(sum(d)) - 1e-12 for value in patterns])


def test_the_page_is_whole_runs_no_script_and_escapes_what_it_is_given(runs, tmp_path):
    evil = "<script>alert(1)</script>"
    runs = [*runs, *(one_run(evil, seed, 0.65, regime="hard") for seed in range(4))]
    runs += [one_run("uniform", seed, 0.5, regime=f"{evil}&") for seed in range(2)]
    summary = write_comparison(tmp_path, runs, notes=[evil], command=f"neyman compare {evil}")
    page = (tmp_path / "report.html").read_text()
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    assert page.count("<svg") == 10  # five in each of two regimes
    assert json.loads((tmp_path / "summary.json").read_text()) == summary


def test_one_seed_gives_figures_without_intervals(tmp_path):
    runs = [one_run(name, 0, final) for name, final in (("uniform", 0.6), ("ours", 0.7))]
    ours = write_comparison(tmp_path, runs)["regimes"]["hard"]["strategies"]["ours"]
    assert ours["final_accuracy"] == {"mean": pytest.approx(0.7), "low": None, "high": None}
    assert ours["rollouts_to_reference"]["low"] is None
