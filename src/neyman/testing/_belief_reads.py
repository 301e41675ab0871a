"""Checks of predictions, chances of mixed groups, and draws."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from neyman.beliefs import Belief
from neyman.testing._belief_hooks import BeliefHooks
from neyman.testing._contract import expect, expect_same


class BeliefReads(BeliefHooks):
    """Checks of the numbers that a belief returns."""

    __test__ = False

    def test_satisfies_the_protocol(self) -> None:
        """It has every method of `neyman.beliefs.Belief`."""
        missing = [
            name for name in vars(Belief) if not name.startswith("_") and not hasattr(self.make(), name)
        ]
        expect(
            not missing,
            "a belief must have every method of neyman.beliefs.Belief",
            see="Beliefs",
            missing=missing,
        )

    def test_an_empty_request_gives_empty_arrays(self) -> None:
        """No prompts in, no numbers out."""
        belief = self.ready()
        belief.update([], [], [])
        found = [
            *belief.predict([]),
            belief.expected_variance([]),
            belief.mixed_probability([], 8),
            belief.sample([], self.rng(0)),
        ]
        lengths = [len(array) for array in found]
        expect(
            not any(lengths),
            "a request for no prompts must give empty arrays",
            see="Predictions",
            lengths=lengths,
        )

    def test_whatever_was_observed_predictions_are_possible_rates(self) -> None:
        """Means in (0, 1), variances that a rate can have, E[p(1-p)] = m(1-m) - Var(p), chances in [0, 1]."""
        one_visit = st.lists(
            st.tuples(st.sampled_from(self.ids), st.integers(0, 40), st.integers(0, 40)), max_size=6
        )

        @self.randomly()
        @given(visits=st.lists(one_visit, max_size=8))
        def hold(visits: list[list[tuple[str | int, int, int]]]) -> None:
            belief = self.ready()
            for visit in visits:
                belief.update([v[0] for v in visit], [min(v[1:]) for v in visit], [max(v[1:]) for v in visit])
                belief.advance()
            self._expect_possible(belief, visits=visits)

        hold()

    def _expect_possible(self, belief: Belief, **given_: object) -> None:
        ids = [*self.ids, "never registered", 99]
        mean, variance = belief.predict(ids)
        mixed = belief.mixed_probability(ids, 8)
        spread = mean * (1.0 - mean)
        for name, array in (("mean", mean), ("variance", variance), ("mixed_probability", mixed)):
            is_fit = array.dtype == np.float64 and array.shape == (len(ids),)
            expect(
                is_fit,
                f"{name} must be float64 with one entry per id",
                see="Predictions",
                got=array,
                **given_,
            )
        legal = (mean > 0.0) & (mean < 1.0)
        expect(
            legal.all(), "every mean must lie inside (0, 1)", see="Predictions", mean=mean, ids=ids, **given_
        )
        legal = (variance >= 0.0) & (variance <= spread * (1.0 + 1e-9) + 1e-12)
        claim = "every variance must lie in [0, m(1-m)], the most a rate can have"
        expect(legal.all(), claim, see="Predictions", mean=mean, variance=variance, **given_)
        gap = np.abs(belief.expected_variance(ids) - (spread - variance))
        claim = "expected_variance must be m(1-m) - Var(p)"
        expect(
            (gap < 1e-9).all(), claim, see="Predictions", off_by=gap, mean=mean, variance=variance, **given_
        )
        legal = (mixed >= 0.0) & (mixed <= 1.0)
        expect(legal.all(), "mixed_probability must lie in [0, 1]", see="Mixed groups", got=mixed, **given_)

    def test_every_entry_stands_for_its_own_id(self) -> None:
        """In another order of the request, a belief predicts the same for each prompt."""
        belief = self.ready()
        self.drive(belief, 11, 4)
        ids = [*self.ids, "unseen"]
        order = self.rng(12).permutation(len(ids))
        shuffled = [ids[k] for k in order]
        for name in ("predict", "expected_variance"):
            straight, mixed = (
                np.atleast_2d(getattr(belief, name)(ids)),
                np.atleast_2d(getattr(belief, name)(shuffled)),
            )
            expect(
                np.allclose(straight[:, order], mixed, rtol=1e-9, atol=1e-12),
                f"{name} must give each id its own entry, in the order of the request",
                see="Predictions",
                ids=shuffled,
                expected=straight[:, order],
                got=mixed,
            )

    def test_mixed_probability_of_two_is_twice_the_expected_variance(self) -> None:
        """Whatever the distribution of p, 1 - p^2 - (1-p)^2 = 2 p (1-p)."""
        belief = self.ready()
        self.drive(belief, 1, 6)
        ids = [*self.ids, "z"]
        mixed, spread = belief.mixed_probability(ids, 2), belief.expected_variance(ids)
        claim = "the chance that a group of 2 is mixed must be 2 E[p(1-p)]"
        expect(
            np.allclose(mixed, 2 * spread, atol=1e-6),
            claim,
            see="Mixed groups",
            got=mixed,
            expected=2 * spread,
        )

    def test_group_sizes_may_differ_by_prompt(self) -> None:
        """One size, or one per prompt."""
        belief = self.ready()
        self.drive(belief, 3, 3)
        ids = list(self.ids[:2])
        both = belief.mixed_probability(ids, [4, 16])
        expected = [belief.mixed_probability(ids, size)[place] for place, size in enumerate([4, 16])]
        claim = "mixed_probability must take one group size per prompt"
        expect(
            np.allclose(both, expected, atol=1e-12), claim, see="Mixed groups", got=both, expected=expected
        )

    def test_draws_agree_with_the_predictions(self) -> None:
        """The belief's own draws have its mean, its variance and its chance of a mixed group."""
        belief = self.ready()
        self.drive(belief, 2, 4)
        prompt = self.ids[0]
        p = belief.sample([prompt] * 40_000, self.rng(5))
        mean, variance = (float(array[0]) for array in belief.predict([prompt]))
        for name, draws, found in (
            ("predict's mean", p, mean),
            ("predict's variance", (p - mean) ** 2, variance),
            ("mixed_probability", 1 - p**8 - (1 - p) ** 8, float(belief.mixed_probability([prompt], 8)[0])),
        ):
            # Five standard errors; a point mass has none.
            slack = 5 * float(draws.std()) / np.sqrt(len(draws)) + 1e-9
            expect(
                abs(float(draws.mean()) - found) < slack,
                f"sample must draw from the predicted distribution: 40,000 draws disagree with {name}",
                see="Draws",
                drawn=float(draws.mean()),
                found=found,
                five_standard_errors=slack,
            )

    def test_draws_follow_the_generator(self) -> None:
        """The same generator gives the same draws, bit for bit, inside [0, 1]."""
        belief = self.ready()
        self.drive(belief, 6, 3)
        draws, again = (belief.sample(list(self.ids), self.rng(7)) for _ in range(2))
        expect_same(draws, again, "sample must take its randomness from the generator alone", see="Draws")
        legal = (draws >= 0.0) & (draws <= 1.0)
        expect(legal.all(), "draws must be rates in [0, 1]", see="Draws", got=draws)

    def test_reading_changes_nothing(self) -> None:
        """Asking or saving leaves a belief as it was."""
        quiet, watched = self.ready(), self.ready()
        for key in range(3):
            self.drive(quiet, key, 1)
            self.drive(watched, key, 1)
            watched.predict(list(self.ids))
            watched.expected_variance(list(self.ids))
            watched.mixed_probability(["stranger"], 4)
            watched.sample(["stranger"], self.rng(0))
            watched.state_dict()
        expect_same(
            quiet.state_dict(),
            watched.state_dict(),
            "predict, expected_variance, mixed_probability, sample and state_dict must change nothing",
            see="Predictions",
        )
