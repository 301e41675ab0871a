"""The selections of DPS and GRESO, MoPPS's band, and VIP's inverse heuristics."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from neyman import beliefs, formulas
from neyman.beliefs import Counts, StateDynamics, Streaks
from neyman.errors import ArgumentError
from neyman.randomness import keyed_rng
from neyman.rules import ClosestTo, Evidence, Inverse, MostMixed, SkipUniform, StepView
from neyman.rules.forecast import group_states


def view(candidates, belief, *, fresh=(), seed=0, size=8):
    return StepView(
        step=0,
        candidates=tuple(candidates),
        fresh=lambda count: list(fresh)[: max(count, 0)],
        browse=lambda count: list(fresh)[: max(count, 0)],
        overdue=lambda passes, count=None: [],
        group_size=size,
        belief=belief,
        rng=lambda *keys: keyed_rng(seed, *keys),
    )


def told(belief, table, size=8):
    belief.update(list(table), list(table.values()), [size] * len(table))
    belief.advance()
    return belief


def test_the_most_mixed_come_first_whatever_their_order():
    belief = told(StateDynamics(), {"wrong": 0, "mixed": 3, "right": 8})
    for ids in (["wrong", "mixed", "right"], ["right", "mixed", "wrong"]):
        assert MostMixed().pick(view(ids, belief), 1) == ["mixed"]


def test_ties_go_by_key_so_no_place_is_favoured():
    """Public DPS sorts by score: among equal prompts, those at the front of the data win at every step."""
    ids, belief = [f"q{k}" for k in range(20)], StateDynamics()
    first = [MostMixed().pick(view(ids, belief, seed=seed), 5) for seed in range(200)]
    assert first[3] == MostMixed().pick(view(ids[::-1], belief, seed=3), 5), (
        "the order of the data is nothing"
    )
    shares = np.array([sum(prompt in picked for picked in first) for prompt in ids]) / 200
    assert shares.min() > 0.25 - 5 * np.sqrt(0.25 * 0.75 / 200)
    assert shares.max() < 0.25 + 5 * np.sqrt(0.25 * 0.75 / 200)


def test_the_entropy_favours_what_is_unsure():
    belief = StateDynamics(decay=1.0)
    for _ in range(6):
        told(belief, {"mixed": 3})
    ids = ["new", "mixed"]
    assert MostMixed().pick(view(ids, belief), 1) == ["mixed"]
    assert MostMixed(entropy=2.0).pick(view(ids, belief), 1) == ["new"]


def test_other_beliefs_give_the_chances_of_a_group_of_the_steps_size():
    belief = Counts(prior=(1.0, 1.0))
    states = group_states(belief, ["a"], 8)
    np.testing.assert_allclose(states, [[1 / 9, 7 / 9, 1 / 9]])  # a uniform prior: nine totals alike
    belief.update(["a"], [1], [4])
    np.testing.assert_allclose(group_states(belief, ["a"], 8).sum(), 1.0)
    np.testing.assert_allclose(group_states(belief, ["a"], 8)[0, 1], belief.mixed_probability(["a"], 8))


def test_prompts_are_passed_over_as_often_as_their_streaks_say():
    belief = Streaks(fade=1.0)
    told(belief, {"solved": 8, "failed": 0, "mixed": 4})
    ids = ["solved", "failed", "mixed", "spare one", "spare two"]
    taken = np.array(
        [
            [prompt in SkipUniform().pick(view(ids, belief, seed=seed), 3) for prompt in ids[:3]]
            for seed in range(400)
        ]
    )
    error = 5 * np.sqrt(0.25 / 400)
    np.testing.assert_allclose(taken.mean(axis=0), [0.5, 0.5, 1.0], atol=error)


def test_the_first_that_are_not_passed_over_are_taken_in_order():
    belief = Streaks()
    assert SkipUniform().pick(view("abc", belief, fresh="de"), 4) == ["a", "b", "c", "d"]


def test_a_prompt_is_tried_once_per_step_whatever_the_wave():
    belief = told(Streaks(fade=1.0), {"solved": 8})
    for seed in range(20):
        alone = SkipUniform().pick(view(["solved", "x"], belief, seed=seed), 1)
        again = SkipUniform().pick(view(["y", "solved", "x"], belief, seed=seed), 2)[1:]
        assert alone == again


def test_when_everything_is_passed_over_the_least_uniform_are_taken():
    belief = Streaks(fade=1.0, floor=1e-9, rate=1.0)  # so that the probability falls to .05 at once
    for _ in range(6):
        told(belief, {"long": 8})
    for _ in range(4):
        told(belief, {"short": 8})
    picked = SkipUniform().pick(view(["long", "short"], belief), 2)
    assert picked == ["short", "long"]


def test_in_the_band_the_candidates_keep_their_order_and_the_rest_is_topped_up_by_distance():
    belief = Counts(prior=(0.5, 0.5), discount=1.0, fade=1.0)
    belief.update(["easy", "in", "half", "hard", "near"], [38, 26, 20, 1, 11], [40] * 5)
    ids = ["easy", "in", "half", "hard", "near"]
    rule = ClosestTo(explore="mean", band=(0.3, 0.7))
    assert rule.pick(view(ids, belief), 4) == ["in", "half", "near", "easy"]
    assert ClosestTo(explore="mean").pick(view(ids, belief), 4) == ["half", "in", "near", "easy"]
    with pytest.raises(ArgumentError, match="band"):
        ClosestTo(band=(0.7, 0.3))


def test_inverse_heuristics_are_the_formulas_under_the_belief():
    belief = Counts(prior=(1.0, 1.0), discount=1.0, fade=1.0)
    belief.update(["a", "b", "c"], [8, 1, 0], [98, 8, 0])
    ids = ["a", "b", "c"]
    a, b = beliefs.beta_parameters(belief, ids)
    known = Evidence(ids=ids, belief=belief, a=a, b=b, issued=np.zeros(3, dtype=np.int64))
    p = np.array([0.09, 0.2, 0.5])
    by_accuracy = Inverse("accuracy", 2, 20).counts(known, 32)
    np.testing.assert_array_equal(by_accuracy, formulas.inverse_accuracy(p, 32, 2, 20))
    # 10, 4.76 and 1.96 by weight: the level 1.91 that spends 32 gives 19.1, 9.1 and 3.7.
    np.testing.assert_array_equal(by_accuracy, [19, 9, 4])
    plug_in = Inverse("variance", 2, 20, plug_in=True).counts(known, 32)
    np.testing.assert_array_equal(plug_in, formulas.inverse_variance(p, 32, 2, 20))
    posterior = Inverse("variance", 2, 20).counts(known, 32)
    assert posterior[2] > plug_in[2], "what is unsure of p has less expected variance than the plug-in says"
    again = Inverse("variance", 2, 20).counts(replace(known, issued=np.array([0, 0, 12])), 32)
    assert again.sum() == 32
    assert again[2] >= 12
