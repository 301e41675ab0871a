"""Checks of how a belief learns, and of the effect of time on it."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from neyman.beliefs import beta_parameters
from neyman.errors import ArgumentError
from neyman.testing._belief_hooks import BeliefHooks
from neyman.testing._contract import declared, expect, expect_same, refused

#: Updates that no belief may take in: ids, successes, trials.
_BAD_UPDATES: tuple[tuple[Any, Any, Any], ...] = (
    (["a"], [3], [2]),
    (["a"], [-1], [2]),
    (["a"], [1.5], [2]),
    (["a"], [np.nan], [2]),
    (["a", "b"], [1], [2]),
    (["a"], [1, 1], [2]),
    ("ab", [1, 1], [2, 2]),
    ([1.5], [1], [2]),
    ([True], [1], [2]),
    ([None], [1], [2]),
)


class BeliefEvidence(BeliefHooks):
    """Checks of how a belief learns."""

    __test__ = False

    def test_zero_trials_are_ignored(self) -> None:
        """A prompt whose results are all missing teaches nothing."""
        touched, untouched = self.ready(), self.ready()
        first, second = self.ids[:2]
        for belief in (touched, untouched):
            belief.update([first], [3], [8])
            belief.advance()
        touched.update([first, second], [0, 0], [0, 0])
        claim = "an update with zero trials must change nothing: missing results are no failures"
        expect_same(touched.state_dict(), untouched.state_dict(), claim, see="Evidence")

    def test_an_id_given_twice_counts_as_its_sum(self) -> None:
        """Twice 3 of 4 is 6 of 8."""
        twice, once = self.ready(), self.ready()
        first, second = self.ids[:2]
        twice.update([first, second, first], [1, 2, 3], [4, 8, 4])
        once.update([first, second], [4, 2], [8, 8])
        claim = "an id given twice in one update must count as its sum"
        expect_same(self.drive(twice, 10, 2), self.drive(once, 10, 2), claim, see="Evidence")

    def test_the_order_inside_an_update_does_not_matter(self) -> None:
        """Verdicts come in any order; the belief is the same to ``order_tolerance``."""
        straight, mixed = self.ready(), self.ready()
        ids, rng = list(self.ids), self.rng(8)
        for _ in range(3):
            trials = rng.integers(0, 9, len(ids))
            successes, order = rng.binomial(trials, 0.4), rng.permutation(len(ids))
            straight.update(ids, successes, trials)
            mixed.update([ids[k] for k in order], successes[order], trials[order])
            straight.advance()
            mixed.advance()
        one, other = straight.predict(ids)[0], mixed.predict(ids)[0]
        claim = (
            f"the order of prompts in an update must not matter (order_tolerance {self.order_tolerance:g})"
        )
        expect(
            np.allclose(one, other, rtol=0, atol=self.order_tolerance),
            claim,
            see="Order",
            one=one,
            other=other,
        )

    def test_portions_within_a_step_add_up(self) -> None:
        """Rounds between two calls of ``advance`` are one visit, to ``portion_tolerance``."""
        portions, whole = self.ready(), self.ready()
        first, second = self.ids[:2]
        for belief in (portions, whole):
            belief.update([first, second], [2, 5], [8, 8])
            belief.advance()
        for _ in range(4):
            portions.update([first], [1], [2])
        whole.update([first], [4], [8])
        one, other = portions.predict(list(self.ids))[0], whole.predict(list(self.ids))[0]
        claim = f"4 updates of 1 in 2 within a step must count as 4 in 8 (portion_tolerance {self.portion_tolerance:g})"
        expect(
            np.allclose(one, other, rtol=0, atol=self.portion_tolerance),
            claim,
            see="Evidence",
            one=one,
            other=other,
        )

    def test_means_follow_evidence(self) -> None:
        """More successes of as many trials never lower a mean."""
        means, (first, second) = [], self.ids[:2]
        for successes in range(9):
            belief = self.ready()
            belief.update([second], [3], [8])
            belief.advance()
            belief.update([first], [successes], [8])
            means.append(float(belief.predict([first])[0][0]))
        claim = (
            "more successes of as many trials must never lower the mean, and 8 of 8 must raise it over 0 of 8"
        )
        expect(
            sorted(means) == means and means[0] < means[-1],
            claim,
            see="Evidence",
            means_of_0_to_8_successes=means,
        )

    def test_a_million_trials_are_believed(self) -> None:
        """Large counts stay finite, and the mean comes within ``trust`` of the rate."""
        first, second = self.ids[:2]
        for successes in (0, 1, 500_000, 1_000_000):
            belief = self.ready()
            belief.update([first], [successes], [1_000_000])
            found = [*belief.predict([first, second]), *beta_parameters(belief, [first, second])]
            given = {"successes": successes, "trials": 1_000_000}
            expect(
                np.isfinite(found).all(), "predictions must stay finite", see="Evidence", got=found, **given
            )
            error = abs(float(found[0][0]) - successes / 1e6)
            claim = f"after a million trials the mean must be within trust = {self.trust:g} of the rate"
            expect(error <= self.trust, claim, see="Evidence", mean=float(found[0][0]), **given)

    def test_saturated_pools_stay_finite_and_are_believed(self) -> None:
        """When everything is solved, or nothing is, means pass ``convinced`` and no number breaks."""
        ids = list(self.ids)
        for successes in (0, 8):
            belief = self.ready()
            for _ in range(60):
                belief.update(ids, [successes] * len(ids), [8] * len(ids))
                belief.advance()
            mean, variance = belief.predict(ids)
            far = belief.mixed_probability([*ids, "new"], 64)
            given = {"each_of_60_visits": f"{successes} of 8 for every prompt"}
            finite = np.isfinite(mean).all() and np.isfinite(variance).all() and np.isfinite(far).all()
            expect(
                finite,
                "a saturated pool must leave predictions finite",
                see="Saturated pools",
                mean=mean,
                **given,
            )
            is_sure = (mean > self.convinced) if successes else (mean < 1.0 - self.convinced)
            claim = f"60 uniform visits must convince a belief (convinced = {self.convinced:g})"
            expect(is_sure.all(), claim, see="Saturated pools", mean=mean, **given)

    def test_no_state_is_absorbing(self) -> None:
        """A prompt that was always solved, or never, is thought to have changed once its results have."""
        demand = f"within relearn_within = {self.relearn_within} visits the mean must cross 1/2"
        with declared("absorbing", self.absorbing, demand, see="No absorbing state"):
            for before, after in ((8, 0), (0, 8)):
                belief, first = self.ready(), self.ids[0]
                for _ in range(16):
                    belief.update([first], [before], [8])
                    belief.advance()
                means: list[float] = []
                while len(means) < self.relearn_within and not (means and (means[-1] < 0.5) == (after == 0)):
                    belief.update([first], [after], [8])
                    belief.advance()
                    means.append(float(belief.predict([first])[0][0]))
                expect(
                    (means[-1] < 0.5) == (after == 0),
                    f"a prompt that changed must be thought to have changed: {demand}",
                    see="No absorbing state",
                    history=f"16 visits of {before} of 8, then {len(means)} of {after} of 8",
                    last_mean=means[-1],
                )

    def test_time_widens_what_is_thought_of_a_prompt_not_observed(self) -> None:
        """The policy moves, so evidence of long ago is less sure."""
        demand = "without new results the variance must grow as steps pass"
        with declared("never_forgets", self.never_forgets, demand, see="Time"):
            belief, (first, second) = self.ready(), self.ids[:2]
            belief.update(list(self.ids), [2] * len(self.ids), [8] * len(self.ids))
            variances = [float(belief.predict([first])[1][0])]
            for _ in range(3):
                belief.advance(20)
                belief.update([second], [2], [8])
                variances.append(float(belief.predict([first])[1][0]))
            grows = all(a < b for a, b in pairwise(variances))
            expect(grows, demand, see="Time", variance_every_20_steps=variances)

    def test_time_goes_forward_in_whole_steps(self) -> None:
        """Negative, fractional and missing numbers of steps are refused."""
        belief: Any = self.ready()
        for steps in (-1, 1.5, "2", None):
            refused(partial(belief.advance, steps), ArgumentError, "advance", see="Bad input", steps=steps)

    def test_bad_updates_are_refused_and_change_nothing(self) -> None:
        """Impossible counts and ids raise an error that names them, before anything is taken in."""
        belief: Any = self.ready()
        before = belief.state_dict()
        for ids, successes, trials in _BAD_UPDATES:
            given = {"ids": ids, "successes": successes, "trials": trials}
            call = partial(belief.update, **given)
            found = refused(call, ArgumentError, "an impossible update", see="Bad input", **given)
            named = any(word in found for word in given)
            claim = "the error must name the argument that is wrong"
            expect(named, claim, see="Bad input", found=found, **given)
            claim = "a refused update must change nothing"
            expect_same(before, belief.state_dict(), claim, see="Bad input", **given)

    def test_bad_group_sizes_are_refused(self) -> None:
        """Sizes below 1, fractions, and another number of sizes than prompts are refused."""
        belief: Any = self.ready()
        for size in (0, -1, 2.5, [4, 4, 4]):
            call = partial(belief.mixed_probability, list(self.ids[:2]), size)
            refused(call, ArgumentError, "mixed_probability of two prompts", see="Bad input", group_size=size)
