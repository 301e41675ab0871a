"""The comparison and its sentences, on curves whose answer is known."""

import dataclasses
import json

import numpy as np
import pytest

from neyman.errors import ArgumentError
from neyman.report import load_run, summary
from neyman.report._findings import analyse
from neyman.report._verdict import verdict


@pytest.fixture
def make(tmp_path, write_run):
    """Return runs whose accuracy goes in a straight line to a given end."""

    def build(ends, rollouts=1000, strategies=None):
        runs = []
        for strategy, values in ends.items():
            for seed, end in enumerate(values):
                run = load_run(write_run(tmp_path, strategy, seed, steps=2))
                x = np.array([0, rollouts // 2, rollouts])
                runs.append(
                    dataclasses.replace(
                        run,
                        eval_rollouts=x,
                        eval_tokens=5 * x,
                        eval_seconds=x / 10.0,
                        eval_step=np.array([0, 1, 2]),
                        accuracy=np.array([0.2, (0.2 + end) / 2, end]),
                    )
                )
        return runs

    return build


def test_a_clear_winner_is_named_with_its_interval(make):
    runs = make({"uniform": [0.40, 0.41, 0.42, 0.41], "vip": [0.50, 0.52, 0.51, 0.51]})
    outcome = verdict(analyse(runs))
    assert outcome.winner == "vip"
    assert outcome.headline == "vip won: the interval of the difference excludes zero."
    # Differences .10, .11, .09, .10: mean .10, s = .0081650, t(.975, 3) = 3.182446, half width .012992.
    assert "vip solved 51.0 % of the test problems and uniform 41.0 %: 10.0 points" in outcome.sentences[0]
    assert (
        "95 % interval of the difference, paired over 4 seeds, is +8.7 to +11.3 points"
        in outcome.sentences[0]
    )
    assert "It excludes zero" in outcome.sentences[0]
    assert outcome.sentences[1].startswith("vip reached uniform's final 41.0 % after")


def test_rollouts_to_the_reference_by_hand(make):
    findings = analyse(make({"uniform": [0.4, 0.4], "vip": [0.6, 1.0]}))
    # From .2 in a straight line to .6 and 1 at 1000: .4 is reached at 500 and 250.
    np.testing.assert_allclose(findings.find("vip").reach.costs, [500, 250])
    np.testing.assert_allclose(findings.find("uniform").reach.costs, [1000, 1000])


def test_an_interval_over_zero_names_nobody(make):
    outcome = verdict(analyse(make({"uniform": [0.40, 0.45, 0.38], "vip": [0.44, 0.40, 0.46]})))
    assert outcome.winner is None
    assert outcome.headline == "vip ended highest, but these runs do not allow naming a winner."
    assert "It includes zero, so the difference may be luck." in outcome.sentences[0]


def test_one_seed_names_nobody(make):
    outcome = verdict(analyse(make({"uniform": [0.3], "vip": [0.9]})))
    assert outcome.winner is None
    assert outcome.headline == "One seed each: no winner can be named."
    assert "no winner can be named" in outcome.sentences[0]
    assert "interval of" not in outcome.sentences[0]


def test_copied_runs_name_nobody(make):
    outcome = verdict(analyse(make({"uniform": [0.3, 0.3, 0.3], "vip": [0.4, 0.4, 0.4]})))
    assert outcome.winner is None
    assert "not independent runs" in outcome.sentences[0]


def test_strategies_that_decided_alike_are_said_to_have(make):
    outcome = verdict(analyse(make({"uniform": [0.3, 0.5, 0.4], "vip": [0.3, 0.5, 0.4]})))
    assert outcome.winner is None
    assert "the very same accuracy" in outcome.sentences[0]


def test_intervals_stay_where_accuracies_can_lie(make):
    final = analyse(make({"uniform": [0.3, 0.9]})).find("uniform").final
    assert (final.mean, final.low, final.high) == (pytest.approx(0.6), 0.0, 1.0)


def test_the_reference_can_win(make):
    outcome = verdict(analyse(make({"uniform": [0.50, 0.52, 0.51], "vip": [0.40, 0.41, 0.42]})))
    assert outcome.winner == "uniform"
    assert "vip did not reach uniform's final 51.0 % with any seed." in outcome.sentences


def test_some_seeds_short_of_the_target_are_said_to_be_censored(make):
    outcome = verdict(analyse(make({"uniform": [0.40, 0.42, 0.41], "vip": [0.5, 0.3, 0.5]})))
    assert "vip reached uniform's final 41.0 % with 2 of 3 seeds" in outcome.sentences[1]
    assert "at least" in outcome.sentences[1]


def test_three_strategies_widen_the_interval(make):
    ends = {"uniform": [0.40, 0.41, 0.42], "vip": [0.50, 0.52, 0.51], "sara": [0.51, 0.50, 0.52]}
    findings = analyse(make(ends))
    outcome = verdict(findings)
    assert len(findings.pairwise) == 3
    assert findings.pairwise_level == pytest.approx(1 - 0.05 / 3)
    assert outcome.winner is None
    assert outcome.headline == "sara and vip beat uniform; the best of all cannot be named."
    assert "98.3 % interval" in outcome.sentences[0]
    assert "widened to allow for 3 comparisons" in outcome.sentences[0]


def test_a_winner_is_falsely_named_at_most_as_often_as_promised(make):
    draws, runs, wrong = np.random.default_rng(6), 400, 0
    base = make({name: [0.5] * 4 for name in ("dynamo", "uniform", "vip")})
    for _ in range(runs):
        noisy = [dataclasses.replace(r, accuracy=r.accuracy + draws.normal(0, 0.02, 3)) for r in base]
        bare = [dataclasses.replace(r, groups=dataclasses.replace(r.groups, **EMPTY)) for r in noisy]
        wrong += verdict(analyse(bare)).winner is not None
    assert wrong / runs <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / runs)


EMPTY = {
    **{name: np.zeros(0, dtype=np.int64) for name in ("step", "rollouts", "successes", "trials")},
    **{name: np.zeros(0) for name in ("predicted", "uncertainty")},
    **dict.fromkeys(("prompt_id", "outcome", "reason"), ()),
}


def test_everything_is_compared_where_the_shortest_run_ends(make):
    runs = make({"uniform": [0.4, 0.4], "vip": [0.6, 0.8]})
    short = dataclasses.replace(runs[0], eval_rollouts=np.array([0, 250, 500]))
    findings = analyse([short, *runs[1:]])
    assert findings.common["rollouts"] == 500
    np.testing.assert_allclose(list(findings.find("vip").at_common["rollouts"].values()), [0.4, 0.5])
    assert any("uniform, seed 0 ends" in note for note in findings.notes)


def test_tokens_that_turn_the_direction_are_said(make):
    runs = make({"uniform": [0.40, 0.41], "vip": [0.50, 0.52]})
    long = [
        dataclasses.replace(r, eval_tokens=r.eval_tokens * (10 if r.strategy == "vip" else 1)) for r in runs
    ]
    outcome = verdict(analyse(long))
    assert (
        "At equal tokens the sign of the difference changes: vip differs from uniform by -"
        in outcome.sentences[-1]
    )


def test_without_evaluations_nothing_is_claimed(tmp_path, write_run):
    runs = [load_run(write_run(tmp_path, name, 0, steps=2, evals=False)) for name in ("uniform", "vip")]
    outcome = verdict(analyse(runs))
    assert outcome.winner is None
    assert outcome.headline == "No winner can be named: nothing was evaluated."


def test_only_the_first_evaluation_is_no_budget_to_compare_at(tmp_path, write_run):
    runs = [load_run(write_run(tmp_path, name, 0, steps=2)) for name in ("uniform", "vip")]
    first = {name: getattr(runs[0], name)[:1] for name in ("accuracy", *EVALS)}
    outcome = verdict(analyse([dataclasses.replace(runs[0], **first), runs[1]]))
    assert outcome.headline == "No winner can be named yet."


EVALS = ("eval_step", "eval_rollouts", "eval_tokens", "eval_seconds")


def test_without_the_reference_others_are_still_compared(make):
    outcome = verdict(analyse(make({"dynamo": [0.3, 0.31, 0.32], "vip": [0.5, 0.52, 0.51]})))
    assert outcome.winner == "vip"
    assert "The reference 'uniform' is not among the runs." in outcome.sentences


def test_without_the_reference_and_without_a_winner_nobody_is_named(make):
    outcome = verdict(analyse(make({"dynamo": [0.40, 0.45, 0.38], "vip": [0.44, 0.40, 0.46]})))
    assert (outcome.winner, outcome.headline) == (None, "No winner can be named.")


def test_one_strategy_has_nobody_to_be_compared_with(make):
    outcome = verdict(analyse(make({"vip": [0.5, 0.6]})))
    assert outcome.winner is None
    assert "55.0 %" in outcome.sentences[0]


def test_fates_balance_with_what_was_requested(tmp_path, write_run):
    runs = [load_run(write_run(tmp_path, "sara", seed, steps=4)) for seed in (0, 1)]
    found = analyse(runs).find("sara")
    assert sum(rollouts for rollouts, _ in found.fates.values()) == found.rollouts
    assert found.fates["abandoned"][0] > 0
    held = [dataclasses.replace(r, rollouts=r.rollouts + 5) for r in runs]
    assert analyse(held).find("sara").fates["unsettled"] == (10, 0)
    over = [dataclasses.replace(r, rollouts=r.rollouts - 5) for r in runs]
    assert any("the account does not balance" in note for note in analyse(over).notes)


def test_runs_that_cannot_be_compared_are_refused(tmp_path, write_run):
    one = load_run(write_run(tmp_path, "uniform", 0, steps=1))
    with pytest.raises(ArgumentError, match="runs must share one task, got 'other', 'rules/hard'"):
        analyse([one, dataclasses.replace(one, task="other", seed=1)])
    with pytest.raises(ArgumentError, match="got uniform, seed 0 twice"):
        analyse([one, one])
    with pytest.raises(ArgumentError, match="at least one run"):
        analyse([])


def test_summary_is_strict_json(make):
    got = summary(make({"uniform": [0.4], "vip": [0.3]}))
    text = json.dumps(got, allow_nan=False)
    assert json.loads(text) == got
    vip = got["strategies"]["vip"]
    assert vip["final_accuracy"] == {"mean": 0.3, "low": None, "high": None, "seeds": 1}
    assert vip["rollouts_to_target"]["by_seed"] == [None]
    assert vip["against_reference"]["rollouts"]["mean"] == pytest.approx(-0.1)
    assert got["winner"] is None


def of_one_training(runs, strategy, baselines):
    config = {"strategy": {"name": strategy}, "baselines": list(baselines)}
    return [dataclasses.replace(run, config=config) for run in runs]


def test_the_headline_is_about_the_strategy_against_its_first_baseline(make):
    ends = {"uniform": [0.40, 0.41, 0.42], "vip": [0.50, 0.52, 0.51], "sara": [0.43, 0.40, 0.44]}
    outcome = verdict(analyse(of_one_training(make(ends), "sara", ["uniform", "vip"])))
    assert outcome.headline == "sara ended higher than uniform, but these runs do not allow naming a winner."
    assert "sara solved 42.3 % of the test problems and uniform 41.0 %: 1.3 points" in outcome.sentences[0]
    assert any(sentence.startswith("vip reached uniform's final") for sentence in outcome.sentences)


def test_another_first_baseline_is_the_reference(make):
    ends = {"uniform": [0.50, 0.49, 0.53], "vip": [0.50, 0.52, 0.51], "sara": [0.43, 0.44, 0.45]}
    findings = analyse(of_one_training(make(ends), "sara", ["vip", "uniform"]))
    outcome = verdict(findings)
    assert (findings.main, findings.reference) == ("sara", "vip")
    assert outcome.headline == "vip beats sara: the interval of the difference excludes zero."
    assert (
        "sara solved 44.0 % of the test problems and vip 51.0 %: 7.0 points between them"
        in outcome.sentences[0]
    )
    assert "seeds, widened to allow for 3 comparisons, is -" in outcome.sentences[0]


def test_another_strategy_that_beats_all_is_named_beside_the_headline(make):
    ends = {
        "uniform": [0.400, 0.401, 0.402],
        "vip": [0.600, 0.602, 0.603],
        "sara": [0.500, 0.504, 0.499],
    }
    outcome = verdict(analyse(of_one_training(make(ends), "sara", ["uniform", "vip"])))
    assert outcome.winner == "vip"
    assert outcome.headline == "sara beats uniform: the interval of the difference excludes zero."
    assert (
        "vip ended above every other strategy, and the intervals of the differences exclude zero."
        in outcome.sentences
    )


def test_settings_that_name_no_baseline_among_the_runs_put_nobody_to_the_test(make):
    ends = {"uniform": [0.40, 0.41, 0.42], "vip": [0.50, 0.52, 0.51]}
    findings = analyse(of_one_training(make(ends), "vip", []))
    assert (findings.main, findings.reference) == (None, "uniform")


def test_where_nothing_is_solved_that_is_what_is_said(make):
    runs = [
        dataclasses.replace(run, accuracy=np.zeros(3))
        for run in make({"uniform": [0, 0, 0], "vip": [0, 0, 0]})
    ]
    outcome = verdict(analyse(runs))
    assert outcome.winner is None
    assert outcome.headline == "No winner can be named: no strategy solved any test problem."
    assert len(outcome.sentences) == 1
    assert "reached" not in outcome.sentences[0]
    assert summary(runs)["strategies"]["vip"]["rollouts_to_target"] is None


def test_a_target_below_the_start_is_not_said_to_be_reached(make):
    falling = {"uniform": [0.10, 0.12, 0.11], "vip": [0.30, 0.31, 0.33]}  # all start at .2
    outcome = verdict(analyse(make(falling)))
    assert "vip was above uniform's final 11.0 % from the start" in outcome.sentences[1]
    assert not any("after 0 rollouts" in sentence for sentence in outcome.sentences)
