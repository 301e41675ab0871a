"""DPS's hidden Markov model: three steps worked out by hand, time without visits, and the faults of public code."""

import numpy as np
import pytest

from neyman.beliefs import StateDynamics
from neyman.errors import ArgumentError, StateError


def test_three_steps_worked_out_by_hand():
    belief = StateDynamics(decay=0.7)
    belief.update(["a"], [4], [8])
    assert belief.states(["a"]).tolist() == [[0.0, 1.0, 0.0]]
    belief.advance()
    # Where it came from is unknown, so a third of a count goes to each transition to mixed: column (1, 4/3, 1).
    np.testing.assert_allclose(belief.states(["a"]), [[0.3, 0.4, 0.3]])
    belief.update(["a"], [8], [8])
    belief.advance()
    # Counts 1 but for "to mixed" .7 * 4/3 + .3 = 1.2333 and "mixed to all right" 2; read the column of all right.
    np.testing.assert_allclose(belief.states(["a"]), [[0.309278, 0.381443, 0.309278]], atol=1e-6)
    belief.advance()
    # No visit: counts decay to 1.16333 and 1.7, and what was predicted moves on by them.
    np.testing.assert_allclose(belief.states(["a"]), [[0.2942737, 0.3423384, 0.3633876]], atol=2e-7)


def test_rates_follow_from_the_states():
    belief = StateDynamics(size=8)
    belief.update(["none", "some", "all"], [0, 1, 8], [8, 8, 8])
    mean, variance = belief.predict(["none", "some", "all"])
    np.testing.assert_allclose(mean, [0.1, 0.5, 0.9])
    np.testing.assert_allclose(variance, [0.1 * 0.9 / 11, 0.05, 0.1 * 0.9 / 11])
    # Beta(2, 2): 1 - 2 (2 3 4 5 / (4 5 6 7)) = 5/7 of groups of four are mixed.
    np.testing.assert_allclose(belief.mixed_probability(["some"], 4), [5 / 7])


def test_many_steps_at_once_are_many_steps():
    for decay, prior in ((0.7, "even"), (1.0, "progress"), (0.0, "stability"), (0.9, "local")):
        fast, slow = (StateDynamics(decay=decay, prior=prior) for _ in range(2))
        for belief in (fast, slow):
            belief.update(["a", "b"], [0, 3], [8, 8])
        fast.advance(40)
        for _ in range(40):
            slow.advance()
        np.testing.assert_allclose(fast.states(["a", "b", "c"]), slow.states(["a", "b", "c"]), atol=1e-12)
        assert np.isfinite(fast.states(["a"])).all()


def test_a_prompt_first_seen_late_has_moved_with_the_prior():
    early, late = (StateDynamics(prior="progress", decay=1.0) for _ in range(2))
    late.advance(5)
    assert late.states(["a"])[0, 2] > early.states(["a"])[0, 2], "progress: more is solved as steps pass"
    late.update(["a"], [4], [8])
    assert late.states(["a"]).tolist() == [[0.0, 1.0, 0.0]]


def test_a_transition_that_the_prior_rules_out_is_believed_when_it_happens():
    belief = StateDynamics(prior="local", decay=1.0)
    for s in (0, 8, 0, 8):
        belief.update(["a"], [s], [8])
        belief.advance()
    # From all right the prior has (0, 1, 1), and all wrong came after it once.
    np.testing.assert_allclose(belief.states(["a"]), np.full((1, 3), 1 / 3))


def test_prompts_nobody_visits_lose_what_was_known_of_them():
    """Public MoPPS decays on visits only; here, as in DPS, all known prompts drift to the prior."""
    belief = StateDynamics(decay=0.7)
    belief.update(["a"], [0], [8])
    belief.advance(60)
    np.testing.assert_allclose(belief.states(["a"]), np.full((1, 3), 1 / 3), atol=1e-6)


def test_a_million_visits_in_one_update_are_one_pass_over_arrays():
    """Public DPS loops over all prompts and looks each up in a list: minutes at this size."""
    belief = StateDynamics()
    ids = np.arange(100_000)
    belief.update(ids, ids % 9, np.full(len(ids), 8))
    belief.advance()
    np.testing.assert_allclose(belief.states([0, 99_999]).sum(axis=1), [1.0, 1.0])


def test_a_state_that_cannot_be_is_refused_and_not_printed():
    """Public DPS prints an error and goes on from the prior."""
    belief = StateDynamics()
    belief.update(["a"], [4], [8])
    state = belief.state_dict()
    for key in ("transitions", "states"):
        other = StateDynamics()
        with pytest.raises(StateError, match=key):
            other.load_state_dict({**state, key: state["seen"]})
        assert other.states(["a"]).tolist() == StateDynamics().states(["a"]).tolist()


@pytest.mark.parametrize(
    ("options", "word"), [({"decay": 1.1}, "decay"), ({"prior": "flat"}, "'even'"), ({"size": 0}, "size")]
)
def test_settings_out_of_range_are_refused_by_name(options, word):
    with pytest.raises(ArgumentError, match=word):
        StateDynamics(**options)
