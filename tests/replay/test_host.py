"""Strategies replayed through the real controller: figures by hand, and figures that must hold for all."""

import numpy as np
import pytest

from neyman import preset, rules
from neyman.errors import ArgumentError, RunFailedError
from neyman.presets import PRESETS
from neyman.replay import replay_strategy, settings_for, strategy_for
from replay.records import build_trace, drifting

# k = 2; of the eight groups four are mixed.
BY_HAND = [[(1, 2), (1, 2)], [(0, 2), (1, 2)], [(2, 2), (2, 2)], [(1, 2), (0, 2)]]


def run(trace, name, *, seed=0, **options):
    """Replay a preset."""
    settings = settings_for(trace, **options)
    return replay_strategy(trace, strategy_for(name, settings), settings, seed=seed)


def test_uniform_on_a_record_by_hand():
    figures = run(build_trace(BY_HAND), "uniform", group_size=2, prompts_per_step=2)
    apart = ("series", "calibration", "max_revisit_gap", "staleness")
    assert {name: value for name, value in figures.items() if name not in apart} == {
        "effective_ratio": 4 / 8,
        "effective_of_opened": 4 / 8,
        "effective_groups_per_1000_rollouts": 250.0,
        "effective_groups_per_million_tokens": None,
        "waste_factor_full": 2.0,
        "waste_factor_any": 2.0,
        "trains_full_groups": True,
        "signal_kept": 1.0,
        "miss_rate": None,
        # Four mixed pairs with an unbiased p(1-p) of 1/2, over n = 2 and four steps.
        "sum_v_over_n": 4 * (0.5 / 2) / 4,
        "coverage": 1.0,
        "rounds_per_step": 1.0,
        "group_size_mean": 2.0,
        "rollouts": 16.0,
        "tokens": None,
        "steps": 4.0,
        "passes": 2.0,
        "beyond_share": 0.0,
        "log_loss": pytest.approx(np.log(2)),
        "log_loss_first": pytest.approx(np.log(2)),
        "log_loss_later": pytest.approx(np.log(2)),
        "brier": 0.25,
        "ece": 0.0,  # 8 of 16 succeed, and 1/2 was said
        "fates": {"trained": 8, "uniform": 8},
        "group_sizes": {"2": 8},
        "stop_reasons": {"complete": 4},
    }  # fmt: skip
    assert figures["series"]["passes"] == [0.5, 1.0, 1.5, 2.0]
    assert figures["calibration"][5] == [16.0, 8.0, 8.0]


def test_gaps_and_staleness_by_hand():
    # One prompt, opened at 0, 1 and 2 of three passes: the gaps are 1, 1 and 1.
    figures = run(build_trace([[(1, 2)] * 3]), "uniform", group_size=2)
    assert figures["max_revisit_gap"] == 1.0
    assert figures["staleness"] == pytest.approx(0.5)
    # Two prompts, one step of one prompt: the other is never opened, half a pass long.
    figures = run(build_trace([[(1, 2)]] * 2), "uniform", group_size=2, prompts_per_step=1, passes=0.5)
    assert figures["coverage"] == 0.5
    assert figures["max_revisit_gap"] == 0.5
    # Each squares to (1/2)^2, and they are halved, over time and prompts.
    assert figures["staleness"] == pytest.approx((0.25 + 0.25) / 2 / (0.5 * 2))


@pytest.mark.parametrize("prompts_per_step", [7, 20, 60])
def test_uniforms_effective_ratio_is_the_records_own(prompts_per_step):
    trace = drifting()
    figures = run(trace, "uniform", group_size=8, prompts_per_step=prompts_per_step)
    mixed = ((trace.successes > 0) & (trace.successes < trace.trials)).reshape(60, 6)
    steps = int(figures["steps"])
    if 60 % prompts_per_step == 0:
        assert figures["beyond_share"] == 0.0
        assert figures["effective_ratio"] == mixed.mean()
        assert figures["waste_factor_full"] == pytest.approx(1 / mixed.mean())
        assert figures["sum_v_over_n"] == pytest.approx(trace.spread.sum() / 8 / steps)
    else:  # the last step goes into a seventh pass, where the last visit stays
        over = steps * prompts_per_step - 360
        assert figures["beyond_share"] == pytest.approx(over / (360 + over))
        assert abs(figures["effective_ratio"] - mixed.mean()) < over / 360


def test_dynamic_sampling_keeps_all_signal_and_pays_for_dead_groups():
    trace = drifting()
    figures = run(trace, "dynamic-sampling", group_size=8, prompts_per_step=10)
    assert figures["effective_ratio"] == figures["signal_kept"] == 1.0
    assert figures["miss_rate"] == 0.0
    effective = sum(figures["series"]["effective"])
    assert figures["waste_factor_full"] == pytest.approx(figures["rollouts"] / (8 * effective))
    assert sum(figures["fates"].values()) == figures["rollouts"]


def test_early_verdicts_lose_the_signal_that_the_formula_says():
    # 3,000 prompts of one in eight: abandoned after 4 failures, which happens in half of them.
    trace = build_trace([[(1, 8)]] * 3000)
    figures = run(
        trace, "sara", group_size=8, prompts_per_step=1000, passes=0.1
    )  # one step: none is opened twice
    assert figures["beyond_share"] == 0.0
    error = np.sqrt(0.25 / 2000)
    assert figures["signal_kept"] == pytest.approx(0.5, abs=5 * error)
    # All that were given up would have become mixed, and that is known exactly.
    assert figures["miss_rate"] == 1.0
    opened = sum(figures["fates"].values())
    assert opened == figures["rollouts"]


def test_a_strategy_that_chooses_leaves_prompts_alone_and_the_figures_say_so():
    trace = drifting(prompts=80, visits=12)
    choosing = run(trace, "mopps", group_size=8, prompts_per_step=10)
    uniform = run(trace, "uniform", group_size=8, prompts_per_step=10)
    assert choosing["effective_of_opened"] > uniform["effective_of_opened"] + 0.1
    assert choosing["max_revisit_gap"] > uniform["max_revisit_gap"]
    assert choosing["staleness"] > uniform["staleness"]
    assert choosing["log_loss_later"] < uniform["log_loss_later"]
    assert choosing["beyond_share"] > uniform["beyond_share"] == 0.0


def test_strategies_whose_groups_vary_say_so():
    trace = drifting()
    assert run(trace, "vip", group_size=8, prompts_per_step=10)["trains_full_groups"] is False
    assert run(trace, "sara", group_size=8, prompts_per_step=10)["trains_full_groups"] is True


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_replays_and_its_account_balances(name):
    trace = drifting(prompts=40, visits=3)
    figures = run(trace, name, group_size=8, prompts_per_step=10)
    assert sum(figures["fates"].values()) == figures["rollouts"]
    assert figures["passes"] >= 3.0
    assert sum(figures["series"]["rollouts"]) == figures["rollouts"]
    assert 0.0 < figures["coverage"] <= 1.0
    assert figures == run(trace, name, group_size=8, prompts_per_step=10)
    assert figures != run(trace, name, group_size=8, prompts_per_step=10, seed=1)


@pytest.mark.parametrize("group_size", [2, 4, 16])
@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_fits_other_group_sizes(name, group_size):
    trace = drifting(prompts=30, visits=2)
    figures = run(trace, name, group_size=group_size, prompts_per_step=10, passes=1.0)
    assert figures["passes"] >= 1.0


def test_an_engine_of_some_width_takes_more_rounds_for_the_same():
    trace = drifting()
    whole = run(trace, "uniform", group_size=8, prompts_per_step=20)
    narrow = run(trace, "uniform", group_size=8, prompts_per_step=20, width=50)
    assert whole["rounds_per_step"] == 1.0
    assert narrow["rounds_per_step"] == 4.0  # 160 rollouts, 50 at once
    assert narrow["effective_ratio"] == whole["effective_ratio"]


def test_refused_rollouts_fail_and_are_not_asked_for_again():
    trace = build_trace([[(2, 4)] * 2] * 10)
    figures = run(trace, "uniform", group_size=8, prompts_per_step=10, beyond="refuse")
    assert figures["fates"]["failed"] == figures["rollouts"] / 2
    assert figures["beyond_share"] == 0.5
    assert figures["effective_ratio"] == 1.0
    assert figures["waste_factor_full"] is None  # no group is whole
    drawn = run(trace, "uniform", group_size=8, prompts_per_step=10)
    assert "failed" not in drawn["fates"]


def test_tokens_are_summed_and_priced():
    trace = build_trace([[(1, 2)]] * 4, tokens=np.array([[30.0, 10.0]] * 4))
    figures = run(trace, "uniform", group_size=2, prompts_per_step=2)
    assert figures["tokens"] == 4 * 40
    assert figures["effective_groups_per_million_tokens"] == pytest.approx(4 / 160 * 1e6)


def test_strategies_of_ones_own_are_replayed_too():
    trace = drifting()
    settings = settings_for(trace, group_size=8, prompts_per_step=10)
    mixed = preset("dynamic-sampling").with_options(name="mine", verdict=rules.EarlyVerdict(0.3))
    assert replay_strategy(trace, mixed, settings)["effective_ratio"] == 1.0


def test_unknown_strategies_and_sizes_are_refused_with_the_legal_ones():
    trace = drifting(prompts=5)
    settings = settings_for(trace, group_size=8)
    assert settings.prompts_per_step == 5
    with pytest.raises(ArgumentError, match="uniform"):
        strategy_for("unifrom", settings)
    for wrong in (
        {"group_size": 1},
        {"passes": 0.0},
        {"width": 0},
        {"beyond": "guess"},
        {"prompts_per_step": 6},
        {"prompts_per_step": 0},
        {"prompts_per_step": "5"},
    ):
        with pytest.raises(ArgumentError):
            settings_for(trace, **{"group_size": 8, **wrong})


def test_a_clock_that_stands_still_is_an_error_and_not_a_hang():
    class Nobody:
        def pick(self, view, count):
            return []

    trace = drifting(prompts=5)
    idle = preset("uniform").with_options(name="idle", select=Nobody())
    with pytest.raises(RunFailedError, match=r"'idle' asked for no rollout in step 0"):
        replay_strategy(trace, idle, settings_for(trace, group_size=8))
