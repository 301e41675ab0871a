"""GRESO's streaks: skips and adaptation worked out by hand, and the faults of the public code."""

import numpy as np
import pytest

from neyman.beliefs import Streaks
from neyman.errors import ArgumentError


def lead(belief, *visits):
    for ids, successes in visits:
        belief.update(ids, successes, [8] * len(ids))
        belief.advance()


def test_skips_and_adaptation_worked_out_by_hand():
    belief = Streaks(fade=1.0)
    lead(belief, (["a"], [8]))
    assert belief.keep_probabilities == (0.5, 0.5), "nothing has come back yet"
    np.testing.assert_allclose(belief.skip_probability(["a", "new"]), [0.5, 0.0])
    lead(belief, (["a"], [8]), (["a"], [8]))
    # Two steps in which all groups were all right, none all wrong.
    np.testing.assert_allclose(belief.keep_probabilities, (0.48, 0.52))
    np.testing.assert_allclose(belief.skip_probability(["a"]), [1 - 0.48**3])
    lead(belief, (["a"], [4]))
    assert belief.skip_probability(["a"]).tolist() == [0.0], "a mixed group ends the run"
    np.testing.assert_allclose(belief.keep_probabilities, (0.49, 0.53))


def test_the_targets_are_a_third_easy_and_two_thirds_hard():
    belief, ids = Streaks(target=0.3), [f"q{k}" for k in range(10)]
    lead(belief, (ids, [4] * 10), (ids, [8, 0, *[4] * 8]))
    np.testing.assert_allclose(belief.keep_probabilities, (0.49, 0.51))  # .1 >= .1 easy, .1 < .2 hard
    lead(belief, (ids, [0, 0, *[4] * 8]))
    np.testing.assert_allclose(belief.keep_probabilities, (0.50, 0.50))


def test_the_probabilities_and_the_chance_of_another_try_have_floors():
    belief = Streaks(fade=1.0, floor=0.02)
    lead(belief, *[(["a"], [0])] * 80)
    assert belief.keep_probabilities == (0.95, 0.05)
    np.testing.assert_allclose(belief.skip_probability(["a"]), [0.98])


def test_a_step_without_any_signal_divides_by_nothing():
    """Public GRESO raises ZeroDivisionError when a round holds uniform groups only."""
    belief = Streaks()
    lead(belief, *[(["a", "b"], [0, 8])] * 3)
    assert np.isfinite(belief.skip_probability(["a", "b"])).all()


def test_runs_are_judged_on_success_whatever_the_thresholds_of_a_reward():
    """The public code has .98 and .11 of a mean reward: one failure in a group of 64 is "all right" to it."""
    strict, loose = Streaks(fade=1.0), Streaks(fade=1.0, easy=0.98)
    for belief in (strict, loose):
        belief.update(["a"], [63], [64])
        belief.advance()
    assert strict.streaks(["a"])[0].tolist() == [0.0]
    assert loose.streaks(["a"])[0].tolist() == [1.0]


def test_a_run_fades_as_the_policy_moves():
    """In the public code a run of uniform groups counts in full for ever."""
    fading, published = Streaks(fade=0.5), Streaks(fade=1.0)
    for belief in (fading, published):
        lead(belief, (["a"], [0]), (["a"], [0]))
        belief.advance(2)
    assert published.streaks(["a"])[1].tolist() == [2.0]
    # 1 after the first step, .5 one step later; the visit makes it 1.5, and three steps pass: .1875.
    assert fading.streaks(["a"])[1].tolist() == [0.1875]


def test_a_visit_in_portions_is_judged_as_a_whole():
    belief = Streaks(fade=1.0)
    belief.update(["a"], [4], [4])
    belief.update(["a"], [0], [4])
    belief.advance()
    assert belief.skip_probability(["a"]).tolist() == [0.0]


def test_thresholds_that_overlap_are_refused():
    with pytest.raises(ArgumentError, match="hard must be below easy"):
        Streaks(easy=0.5, hard=0.5)
