"""The advice of a replay, in one sentence."""

import pytest

from neyman.report._replay_advice import advice, saving


def difficulty(*, holds, saves=0.1):
    share = {"mean": 0.36, "low": None, "high": None}
    return {
        "never": share,
        "always": {**share, "mean": 0.22},
        "yield_holds": holds,
        "ways": {"sara": {"saving": {"mean": saves, "low": saves - 0.02, "high": saves + 0.02}}},
    }


def runs(sara, sampling):
    return {
        "sara": {seed: {"waste_factor_full": value} for seed, value in enumerate(sara)},
        "dynamic-sampling": {seed: {"waste_factor_full": value} for seed, value in enumerate(sampling)},
    }


def test_the_saving_is_paired_by_seed():
    # Each seed saves exactly a tenth, whatever the seeds have in common.
    measured = saving(runs([1.8, 3.6, 2.7], [2.0, 4.0, 3.0]))
    assert measured.mean == pytest.approx(0.1)
    assert not measured.is_known  # no spread at all: the seeds are copies as far as the saving goes
    assert saving({"sara": {0: {"waste_factor_full": 1.0}}}) is None


AGAINST = "rollouts against dynamic sampling"


@pytest.mark.parametrize(
    ("sara", "sampling", "holds", "said"),
    [
        ((1.38, 1.40, 1.36), (2.0,) * 3, True, f"save 31 % ± 2 % of {AGAINST}; the yield condition holds."),
        ((2.2, 2.24, 2.16), (2.0,) * 3, False, f"cost 10 % ± 5 % more {AGAINST}; the yield condition fails."),
        (
            (1.8, 2.2, 2.0),
            (2.0, 2.0, 2.1),
            True,
            "not distinguishable from no saving; the yield condition holds.",
        ),
        ((1.5,), (2.0,), True, f"would save 25 % of {AGAINST}; the yield condition holds."),
    ],
)
def test_the_advice_is_one_sentence_with_its_condition(sara, sampling, holds, said):
    sentence = advice(runs(sara, sampling), difficulty(holds=holds), group_size=8)
    assert sentence.startswith(
        "36 % of your groups of 8 are never solved and 22 % always solved: early verdicts would"
    )
    assert sentence.endswith(said)
    assert sentence.count(".") == 1


def test_without_a_replay_of_both_it_says_what_the_counts_let_one_expect():
    sentence = advice({}, difficulty(holds=True), group_size=8)
    assert (
        "would save 10 % ± 2 % of rollouts against dynamic sampling, as expected from the counts" in sentence
    )
    assert "cannot" not in sentence
    dead = difficulty(holds=False)
    dead["ways"]["sara"]["saving"] = {"mean": None, "low": None, "high": None}
    assert "would find no effective group" in advice({}, dead, group_size=8)
    assert "No visit holds 64 rollouts" in advice({}, None, group_size=64)
    assert "the yield condition is unknown" in advice(runs([1.5, 1.6], [2.0, 2.0]), None, group_size=64)
