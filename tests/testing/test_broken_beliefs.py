"""Beliefs broken on purpose: exactly the check that is about the fault fails."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import numpy as np
import pytest

from mutants import assert_caught, complaints
from neyman.beliefs import Belief, Counts
from neyman.testing import BeliefSuite


class Sound(Counts):
    """A belief that keeps the contract; each mutant breaks one sentence of it."""

    def __init__(self, **options):
        super().__init__(**{"prior": (1.0, 1.0), "discount": 0.9, "fade": 0.99, **options})


class WithoutSample:
    def __init__(self):
        self._sound = Sound()

    def __getattr__(self, name):
        if name == "sample":
            raise AttributeError(name)
        return getattr(self._sound, name)


class AnswersNobody(Sound):
    def predict(self, ids):
        mean, variance = super().predict(ids)
        return (mean, variance) if len(ids) else (np.array([0.5]), np.array([0.1]))


class SinglePrecision(Sound):
    def predict(self, ids):
        mean, variance = super().predict(ids)
        return mean.astype(np.float32), variance


class CertainOfStrangers(Sound):
    def predict(self, ids):
        mean, variance = super().predict(ids)
        return np.where([i == 99 for i in ids], 1.0, mean), np.where([i == 99 for i in ids], 0.0, variance)


class OverconfidentVariance(Sound):
    def predict(self, ids):
        mean, variance = super().predict(ids)
        return mean, np.where([i == 99 for i in ids], -0.1, variance)


class OrderOfRegistration(Sound):
    known: tuple = ()

    def register(self, ids, features=None):
        self.known = tuple(ids)

    def predict(self, ids):
        place = {i: k for k, i in enumerate(self.known)}
        return super().predict(sorted(ids, key=lambda i: place.get(i, len(place))))


class PairsAreRare(Sound):
    def mixed_probability(self, ids, group_size):
        said = super().mixed_probability(ids, group_size)
        return said * 0.9 if np.all(np.equal(group_size, 2)) else said


class OneSizeForAll(Sound):
    def mixed_probability(self, ids, group_size):
        super().mixed_probability(ids, group_size)
        return super().mixed_probability(ids, np.max(group_size))


class SamplesTheMean(Sound):
    def sample(self, ids, rng):
        return super().predict(ids)[0]


class DrawsBelowZero(Sound):
    def sample(self, ids, rng):
        draws = super().sample(ids, rng)
        draws[:1] = -0.01
        return draws


class RemembersQuestions(Sound):
    def mixed_probability(self, ids, group_size):
        self._table.add(list(ids))
        return super().mixed_probability(ids, group_size)


class MissingIsFailure(Sound):
    def update(self, ids, successes, trials):
        if np.ndim(trials) == 1 and len(trials) == len(successes):
            trials = [1 if n == 0 else n for n in trials]
        super().update(ids, successes, trials)


class LastWins(Sound):
    def update(self, ids, successes, trials):
        if len(set(ids)) < len(ids):
            last = {i: (s, n) for i, s, n in zip(ids, successes, trials, strict=True)}
            ids, successes, trials = list(last), [s for s, _ in last.values()], [n for _, n in last.values()]
        super().update(ids, successes, trials)


class FirstPays(Sound):
    def update(self, ids, successes, trials):
        super().update(ids, successes, trials)
        if len(ids) > 4 and 0 < trials[0] < 8:
            super().update(ids[:1], [0], [1])


class DiscountsEveryPortion(Sound):
    def update(self, ids, successes, trials):
        super().update(ids, successes, trials)
        if np.sum(trials) > 0:
            self.advance()


class DislikesFive(Sound):
    def update(self, ids, successes, trials):
        if list(trials) == [8] and list(successes) == [5]:
            successes = [2]
        super().update(ids, successes, trials)


class SmallIntegers(Sound):
    def update(self, ids, successes, trials):
        if np.max(np.append(trials, 0)) > 1000:
            successes, trials = np.minimum(successes, 100), np.minimum(trials, 100)
        super().update(ids, successes, trials)


class Freezes(Sound):
    frozen: frozenset = frozenset()

    def update(self, ids, successes, trials):
        if set(ids) & self.frozen:
            return
        super().update(ids, successes, trials)
        mean, seen = self.predict(ids)[0], self.evidence(ids)[1]
        self.frozen |= {i for i, m, n in zip(ids, mean, seen, strict=True) if n > 50 and abs(m - 0.5) > 0.45}


class TimeRunsBothWays(Sound):
    def advance(self, steps=1):
        super().advance(abs(int(float(steps or 0))))


class TakesAnyCount(Sound):
    def update(self, ids, successes, trials):
        if list(successes) == [3] and list(trials) == [2]:
            successes = [2]
        super().update(ids, successes, trials)


class TakesAnySize(Sound):
    def mixed_probability(self, ids, group_size):
        return super().mixed_probability(ids, np.maximum(group_size, 1))


class DrawsItsOwnNoise(Sound):
    noise = itertools.count()
    calls = 0

    def update(self, ids, successes, trials):
        super().update(ids, successes, trials)
        self.calls += 1
        if self.calls > 5:
            self._table.column("successes")[:1] *= 1.0 - 1e-9 * next(self.noise)


class ForgetsTheClock(Sound):
    def load_state_dict(self, state):
        super().load_state_dict(state)
        self._clock = 0


class OneKindOfId(Sound):
    def _named(self, ids):
        return ids if isinstance(ids, str) else [str(i) if type(i) is int else i for i in ids]

    def update(self, ids, successes, trials):
        super().update(self._named(ids), successes, trials)

    def evidence(self, ids):
        return super().evidence(self._named(ids))


class LoadsWhatItKnows(Sound):
    def load_state_dict(self, state):
        if isinstance(state, Mapping):
            state = {key: value for key, value in state.items() if key != "surplus"}
        super().load_state_dict(state)


class SavesAnArray(Sound):
    def state_dict(self):
        return super().state_dict() | {"clock": np.int64(self._clock)}


MUTANTS = {
    AnswersNobody: {"an_empty_request_gives_empty_arrays"},
    SinglePrecision: {"whatever_was_observed_predictions_are_possible_rates"},
    CertainOfStrangers: {"whatever_was_observed_predictions_are_possible_rates"},
    OverconfidentVariance: {"whatever_was_observed_predictions_are_possible_rates"},
    OrderOfRegistration: {"every_entry_stands_for_its_own_id"},
    PairsAreRare: {"mixed_probability_of_two_is_twice_the_expected_variance"},
    OneSizeForAll: {"group_sizes_may_differ_by_prompt"},
    SamplesTheMean: {"draws_agree_with_the_predictions"},
    DrawsBelowZero: {"draws_follow_the_generator"},
    RemembersQuestions: {"reading_changes_nothing"},
    MissingIsFailure: {"zero_trials_are_ignored"},
    LastWins: {"an_id_given_twice_counts_as_its_sum"},
    FirstPays: {"the_order_inside_an_update_does_not_matter"},
    DiscountsEveryPortion: {"portions_within_a_step_add_up"},
    DislikesFive: {"means_follow_evidence"},
    SmallIntegers: {"a_million_trials_are_believed"},
    lambda: Sound(prior=(8.0, 8.0), discount=0.5): {"saturated_pools_stay_finite_and_are_believed"},
    Freezes: {"no_state_is_absorbing"},
    lambda: Sound(fade=1.0): {"time_widens_what_is_thought_of_a_prompt_not_observed"},
    TimeRunsBothWays: {"time_goes_forward_in_whole_steps"},
    TakesAnyCount: {"bad_updates_are_refused_and_change_nothing"},
    TakesAnySize: {"bad_group_sizes_are_refused"},
    DrawsItsOwnNoise: {
        "the_same_calls_give_the_same_numbers_bit_for_bit",
        "saved_loaded_and_continued_equals_never_stopped",
    },
    SavesAnArray: {
        "saved_loaded_and_continued_equals_never_stopped",
        "string_and_integer_ids_stay_two_prompts",
        "a_state_that_does_not_fit_is_refused_and_changes_nothing",
    },
    ForgetsTheClock: {"saved_loaded_and_continued_equals_never_stopped"},
    OneKindOfId: {"string_and_integer_ids_stay_two_prompts"},
    LoadsWhatItKnows: {"a_state_that_does_not_fit_is_refused_and_changes_nothing"},
}


def suite(build, **attributes):
    class Checked(BeliefSuite):
        __test__ = False
        examples = 8

        def make(self) -> Belief:
            return build()

    checked = Checked()
    for name, value in attributes.items():
        setattr(checked, name, value)
    return checked


def test_a_sound_belief_passes():
    assert complaints(suite(Sound)) == {}


@pytest.mark.parametrize(("build", "checks"), MUTANTS.items(), ids=lambda v: getattr(v, "__name__", ""))
def test_a_broken_belief_is_caught_by_the_check_for_its_fault(build, checks):
    assert_caught(suite(build), *checks)


def test_a_belief_that_lacks_a_method_is_told_which():
    said = complaints(suite(WithoutSample))["satisfies_the_protocol"]
    assert "missing = ['sample']" in said


def test_every_check_has_a_belief_that_fails_it():
    checks = {name.removeprefix("test_") for name in dir(BeliefSuite) if name.startswith("test_")}
    assert checks == set().union(*MUTANTS.values()) | {"satisfies_the_protocol"}
