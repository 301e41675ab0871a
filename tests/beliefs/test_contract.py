"""The contract of the protocol, for every belief."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neyman.beliefs import (
    Belief,
    BinomialResidual,
    Counts,
    CountsWithGP,
    PublishedGP,
    beta_parameters,
    default,
)
from neyman.errors import ArgumentError, StateError

POOL = ["a", "b", 1, "1", 2, "c", "d", -7]
FEATURES = np.random.default_rng(3).normal(size=(len(POOL), 5)).astype(np.float32)

KINDS = {
    "counts": Counts,
    "counts, fixed prior": lambda: Counts(prior=(1.0, 1.0), discount=1.0, fade=1.0),
    "counts with gp": CountsWithGP,
    "residual": BinomialResidual,
    "residual, 3 landmarks": lambda: BinomialResidual(landmarks=3),
    "residual, no landmarks": lambda: BinomialResidual(landmarks=0),
    "published": PublishedGP,
    "published, low rank": lambda: PublishedGP(dense_limit=2, landmarks=4),
    "published, prior variance": lambda: PublishedGP(variance="prior"),
}
LEARN_VARIANCE = [name for name in KINDS if not name.startswith("published")]


@pytest.fixture(params=KINDS)
def make(request):
    return KINDS[request.param]


def registered(make):
    belief = make()
    belief.register(POOL, FEATURES)
    return belief


def run(belief, seed, steps):
    """Drive a belief through a few steps and return all it says on the way."""
    rng = np.random.default_rng(seed)
    said = []
    for _ in range(steps):
        ids = [POOL[k] for k in rng.choice(len(POOL), 4, replace=False)]
        n = rng.integers(0, 9, 4)
        belief.update(ids, rng.binomial(n, 0.4), n)
        said += [
            *belief.predict([*POOL, "unseen"]),
            belief.sample(POOL, rng),
            belief.mixed_probability(POOL, 8),
        ]
        belief.advance(int(rng.integers(0, 4)))
    return np.concatenate(said)


def test_every_belief_satisfies_the_protocol(make):
    assert isinstance(make(), Belief)


def test_an_empty_request_gives_empty_arrays(make):
    belief = registered(make)
    belief.update([], [], [])
    mean, variance = belief.predict([])
    assert (len(mean), len(variance)) == (0, 0)
    assert len(belief.mixed_probability([], 8)) == 0
    assert len(belief.sample([], np.random.default_rng(0))) == 0


def test_predictions_are_float64_rates_with_possible_variances(make):
    belief = registered(make)
    run(belief, 0, 6)
    ids = [*POOL, "never registered", 99]
    mean, variance = belief.predict(ids)
    assert (np.float64, np.float64) == (mean.dtype, variance.dtype)
    assert np.all((mean > 0) & (mean < 1))
    assert np.all((variance >= 0) & (variance <= mean * (1 - mean) + 1e-12))
    np.testing.assert_allclose(belief.expected_variance(ids), mean * (1 - mean) - variance, atol=1e-12)


def test_mixed_probability_of_two_is_twice_the_expected_variance(make):
    # 1 - p^2 - (1-p)^2 = 2 p (1-p), whatever the distribution of p.
    belief = registered(make)
    run(belief, 1, 6)
    np.testing.assert_allclose(
        belief.mixed_probability([*POOL, "z"], 2), 2 * belief.expected_variance([*POOL, "z"]), atol=1e-6
    )


def test_mixed_probability_agrees_with_the_beliefs_own_draws(make):
    belief = registered(make)
    run(belief, 2, 4)
    ids = [POOL[0]] * 40_000
    p = belief.sample(ids, np.random.default_rng(5))
    draws = 1 - p**8 - (1 - p) ** 8
    error = 4 * draws.std() / np.sqrt(len(draws)) + 1e-9
    assert abs(draws.mean() - belief.mixed_probability([POOL[0]], 8)[0]) < error
    assert abs(p.mean() - belief.predict([POOL[0]])[0][0]) < 4 * p.std() / np.sqrt(len(p)) + 1e-9


def test_group_sizes_may_differ_by_prompt(make):
    belief = registered(make)
    run(belief, 3, 3)
    both = belief.mixed_probability(POOL[:2], [4, 16])
    assert both[0] == pytest.approx(belief.mixed_probability(POOL[:2], 4)[0], abs=1e-12)
    assert both[1] == pytest.approx(belief.mixed_probability(POOL[:2], 16)[1], abs=1e-12)


def test_saved_loaded_and_continued_equals_never_stopped_bit_for_bit(make):
    straight = registered(make)
    run(straight, 4, 5)
    saved = json.loads(json.dumps(straight.state_dict(), allow_nan=False))
    other = registered(make)
    run(other, 77, 3)  # whatever it held is replaced
    other.load_state_dict(saved)
    np.testing.assert_array_equal(run(straight, 5, 6), run(other, 5, 6))
    assert straight.state_dict() == other.state_dict()


def test_saving_changes_nothing_and_reading_changes_nothing(make):
    quiet, watched = registered(make), registered(make)
    for seed in range(3):
        run(quiet, seed, 1)
        run(watched, seed, 1)
        watched.predict(POOL)
        watched.mixed_probability(POOL, 4)
        watched.state_dict()
    assert quiet.state_dict() == watched.state_dict()


def test_string_and_integer_ids_stay_two_prompts_after_json(make):
    belief = registered(make)
    belief.update([1, "1"], [8, 0], [8, 8])
    other = registered(make)
    other.load_state_dict(json.loads(json.dumps(belief.state_dict())))
    mean = other.predict([1, "1"])[0]
    assert mean[0] > 0.6
    assert mean[1] < 0.4


def test_zero_trials_are_ignored(make):
    touched, untouched = registered(make), registered(make)
    for belief in (touched, untouched):
        belief.update(["a"], [3], [8])
        belief.advance()
    touched.update(["a", "b"], [0, 0], [0, 0])
    assert touched.state_dict() == untouched.state_dict()


def test_an_id_given_twice_counts_as_its_sum(make):
    twice, once = registered(make), registered(make)
    twice.update(["a", "b", "a"], [1, 2, 3], [4, 8, 4])
    once.update(["a", "b"], [4, 2], [8, 8])
    assert once.state_dict() == twice.state_dict()


@pytest.mark.parametrize("kind", ["counts", "counts, fixed prior", "published", "published, low rank"])
def test_portions_within_a_step_add_up(kind):
    portions, whole = registered(KINDS[kind]), registered(KINDS[kind])
    for belief in (portions, whole):
        belief.update(["a", "b"], [2, 5], [8, 8])
        belief.advance()
    for _ in range(4):
        portions.update(["a"], [1], [2])
    whole.update(["a"], [4], [8])
    np.testing.assert_allclose(portions.predict(["a"])[0], whole.predict(["a"])[0], rtol=1e-9)


@pytest.mark.parametrize("kind", ["counts with gp", "residual"])
def test_portions_within_a_step_nearly_add_up_where_the_likelihood_is_approximated(kind):
    portions, whole = registered(KINDS[kind]), registered(KINDS[kind])
    for _ in range(4):
        portions.update(["a"], [1], [2])
    whole.update(["a"], [4], [8])
    np.testing.assert_allclose(portions.predict(POOL)[0], whole.predict(POOL)[0], atol=0.01)


@pytest.mark.parametrize("kind", [name for name in LEARN_VARIANCE if name != "counts, fixed prior"])
def test_time_widens_what_is_thought_of_a_prompt_not_observed(kind):
    belief = registered(KINDS[kind])
    belief.update(POOL, [2] * len(POOL), [8] * len(POOL))
    before = belief.predict(["a"])[1][0]
    after = []
    for _ in range(3):
        belief.advance(20)
        belief.update(["b"], [2], [8])
        after.append(belief.predict(["a"])[1][0])
    assert before < after[0] < after[1] < after[2]


@pytest.mark.parametrize("successes", [0, 8], ids=["all fail", "all pass"])
def test_uniform_batches_stay_finite_and_move_the_right_way(make, successes):
    belief = registered(make)
    for _ in range(60):
        belief.update(POOL, [successes] * len(POOL), [8] * len(POOL))
        belief.advance()
    mean, variance = belief.predict(POOL)
    assert np.all(np.isfinite(mean) & np.isfinite(variance))
    assert np.all((mean > 0.9) if successes else (mean < 0.1))
    assert np.all(np.isfinite(belief.mixed_probability([*POOL, "new"], 64)))


@pytest.mark.parametrize("successes", [0, 1, 500_000, 1_000_000])
@pytest.mark.parametrize("kind", KINDS)
def test_a_million_trials_stay_finite_and_are_believed(kind, successes):
    belief = registered(KINDS[kind])
    belief.update(["a"], [successes], [1_000_000])
    mean, variance = belief.predict(["a", "b"])
    a, b = beta_parameters(belief, ["a", "b"])
    assert np.all(np.isfinite([mean, variance, a, b]))
    # The published process clips to [.05, .95], and may spread that.
    assert abs(mean[0] - successes / 1e6) < (0.08 if kind.startswith("published") else 1e-5)


def test_means_follow_evidence(make):
    # More successes of as many trials never lower a mean.
    means = []
    for successes in range(9):
        belief = registered(make)
        belief.update(["b"], [3], [8])
        belief.advance()
        belief.update(["a"], [successes], [8])
        means.append(belief.predict(["a"])[0][0])
    assert sorted(means) == means
    assert means[0] < means[-1]


@pytest.mark.parametrize(
    ("ids", "successes", "trials", "word"),
    [
        (["a"], [3], [2], "successes must be <= trials"),
        (["a"], [-1], [2], "successes"),
        (["a"], [1.5], [2], "whole numbers"),
        (["a"], [np.nan], [2], "whole numbers"),
        (["a", "b"], [1], [2], "one entry per id"),
        (["a"], [1, 1], [2], "one entry per prompt"),
        ("ab", [1, 1], [2, 2], "sequence"),
        ([1.5], [1], [2], "strings or integers"),
        ([True], [1], [2], "strings or integers"),
        ([None], [1], [2], "strings or integers"),
    ],
)
def test_bad_updates_are_refused_and_change_nothing(make, ids, successes, trials, word):
    belief = registered(make)
    before = belief.state_dict()
    with pytest.raises(ArgumentError, match=word):
        belief.update(ids, successes, trials)
    assert before == belief.state_dict()


@pytest.mark.parametrize("steps", [-1, 1.5, "2", None])
def test_time_goes_forward_in_whole_steps(make, steps):
    with pytest.raises(ArgumentError, match="steps"):
        make().advance(steps)


@pytest.mark.parametrize("size", [0, -1, 2.5, [4, 4, 4]])
def test_bad_group_sizes_are_refused(make, size):
    with pytest.raises(ArgumentError, match="group_size"):
        registered(make).mixed_probability(["a", "b"], size)


def damage(state, how):
    state = json.loads(json.dumps(state))
    column = "seen"
    if how == "kind":
        state["kind"] = "other"
    elif how == "version":
        state["version"] = 99
    elif how == "missing":
        del state["clock"]
    elif how == "unknown":
        state["surplus"] = 1
    elif how == "config":
        key = next(iter(state["config"]))
        state["config"][key] = 0.123
    elif how == "clock":
        state["clock"] = -3
    elif how == "ids twice":
        state["ids"][0] = state["ids"][1]
    elif how == "id type":
        state["ids"][0] = 1.5
    elif how == "truncated":
        state[column]["data"] = state[column]["data"][:-8]
    elif how == "not base64":
        state[column]["data"] = "%%%" + state[column]["data"][3:]
    elif how == "shape":
        state[column]["shape"] = [1]
    elif how == "dtype":
        state[column]["dtype"] = "<f2"
    elif how == "no array":
        state[column] = [1, 2]
    return state


@pytest.mark.parametrize(
    ("how", "word"),
    [
        ("kind", "kind 'other'"),
        ("version", "version 99"),
        ("missing", "missing \\['clock'\\]"),
        ("unknown", "unknown \\['surplus'\\]"),
        ("config", "0.123"),
        ("clock", "clock"),
        ("ids twice", "twice"),
        ("id type", "strings and integers"),
        ("truncated", "seen"),
        ("not base64", "seen"),
        ("shape", "seen"),
        ("dtype", "<f2"),
        ("no array", "seen"),
    ],
)
def test_a_state_that_does_not_fit_is_refused_by_name_and_changes_nothing(make, how, word):
    belief = registered(make)
    run(belief, 6, 4)
    before = belief.state_dict()
    with pytest.raises(StateError, match=word):
        belief.load_state_dict(damage(before, how))
    assert before == belief.state_dict()


@pytest.mark.parametrize("state", [None, [], {}, "text"])
def test_what_is_no_state_is_refused(make, state):
    with pytest.raises(StateError):
        make().load_state_dict(state)


def test_states_of_other_beliefs_are_refused():
    with pytest.raises(StateError, match="of kind 'counts', this one is 'binomial_residual'"):
        BinomialResidual().load_state_dict(Counts().state_dict())


FEATURED = ["counts with gp", "residual", "residual, 3 landmarks", "published", "published, low rank"]


@pytest.mark.parametrize("kind", FEATURED)
def test_a_state_with_other_features_is_refused(kind):
    belief = registered(KINDS[kind])
    run(belief, 7, 3)
    other = KINDS[kind]()
    with pytest.raises(StateError, match="register the same prompts"):
        other.load_state_dict(belief.state_dict())
    changed = FEATURES.copy()
    changed[:, 0] += 1.0
    other.register(POOL, changed)
    with pytest.raises(StateError, match="other features"):
        other.load_state_dict(belief.state_dict())


@pytest.mark.parametrize("kind", FEATURED)
def test_features_are_checked_and_kept(kind):
    belief = registered(KINDS[kind])
    belief.register(POOL, FEATURES)  # the same again is no news
    with pytest.raises(ArgumentError, match="'a' differ"):
        belief.register(["a"], FEATURES[1:2])
    with pytest.raises(ArgumentError, match="shape \\(2, F\\)"):
        belief.register(["x", "y"], FEATURES[:1])
    with pytest.raises(ArgumentError, match="5 columns"):
        belief.register(["x"], [[1.0]])
    with pytest.raises(ArgumentError, match="row 0"):
        belief.register(["x"], [[np.nan] * 5])


@pytest.mark.parametrize("kind", FEATURED)
def test_features_may_come_late(kind):
    # Evidence that came before the features is not lost, and from then on tells about neighbours.
    belief = KINDS[kind]()
    belief.update(["a"], [0], [8])
    assert belief.predict(["a"])[0][0] < 0.4
    belief.register(["a", "near", "far"], [[0.0, 0.0], [0.01, 0.0], [9.0, 9.0]])
    own = belief.predict(["a"])[0][0]
    belief.advance()
    belief.update(["a"], [0], [8])
    mean = belief.predict(["a", "near", "far"])[0]
    assert own < 0.4
    assert mean[0] < 0.4
    assert mean[1] <= mean[2]
    again = KINDS[kind]()
    again.register(["a", "near", "far"], [[0.0, 0.0], [0.01, 0.0], [9.0, 9.0]])
    again.load_state_dict(json.loads(json.dumps(belief.state_dict())))
    np.testing.assert_array_equal(mean, again.predict(["a", "near", "far"])[0])


@pytest.mark.parametrize("kind", ["counts with gp", "residual"])
def test_late_features_give_what_early_ones_would_have(kind):
    early, late = registered(KINDS[kind]), KINDS[kind]()
    for belief in (early, late):
        belief.update(["a", "b"], [0, 7], [8, 8])
    late.register(POOL, FEATURES)
    # The pseudo-observations differ by the prior they were made under, no more.
    np.testing.assert_allclose(early.predict(POOL)[0], late.predict(POOL)[0], atol=0.06)


@pytest.mark.parametrize("kind", ["counts with gp", "residual"])
def test_features_registered_between_save_and_load_are_taken_in(kind):
    belief = KINDS[kind]()
    belief.update(["a", "b"], [0, 7], [8, 8])
    saved = belief.state_dict()
    other = registered(KINDS[kind])
    other.load_state_dict(saved)
    belief.register(POOL, FEATURES)
    np.testing.assert_allclose(belief.predict(POOL)[0], other.predict(POOL)[0], rtol=1e-12)


@given(
    visits=st.lists(
        st.lists(st.tuples(st.sampled_from(POOL), st.integers(0, 40), st.integers(0, 40)), max_size=6),
        max_size=8,
    ),
    kind=st.sampled_from(sorted(KINDS)),
)
@settings(max_examples=60, deadline=None)
def test_whatever_is_observed_predictions_are_legal(visits, kind):
    belief = registered(KINDS[kind])
    for visit in visits:
        belief.update([v[0] for v in visit], [min(v[1:]) for v in visit], [max(v[1:]) for v in visit])
        belief.advance()
    mean, variance = belief.predict([*POOL, "new"])
    mixed = belief.mixed_probability([*POOL, "new"], 8)
    assert np.all((mean > 0) & (mean < 1) & (variance >= 0) & (mixed >= 0) & (mixed <= 1))
    assert np.all(variance <= mean * (1 - mean) * (1 + 1e-9))


def test_the_default_is_the_binomial_residual_with_the_pool_registered():
    belief = default(POOL, FEATURES)
    belief.update(["a"], [8], [8])
    assert isinstance(belief, BinomialResidual)
    assert len(set(belief.predict(["b", "c", "d"])[0].tolist())) > 1
    with pytest.raises(ArgumentError, match="features must have shape \\(0, F\\)"):
        default(features=FEATURES)
