"""The contract of `neyman.rules.Select`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from neyman.beliefs import Belief, Counts
from neyman.randomness import PromptId, keyed_rng
from neyman.rules import Select, StepView
from neyman.step.pool import Pool
from neyman.testing._contract import Suite, declared, during, expect, expect_same

_SEE = "Select rules"


class SelectSuite(Suite):
    """Everything that a step relies on in a selection rule. Subclass it, define ``make``, run pytest.

    Hooks:
        make: returns the rule. Required.
        belief: returns a fresh belief for the rule to look at; default `neyman.beliefs.Counts` with a uniform
            prior that forgets nothing, the belief under which a rule without exploration starves prompts first.

    Attributes:
        brought: prompts that the host brings per step, default 4.
        pool_size: prompts in all, default 16.
        retest_within: steps within which a prompt that looked settled is picked again, default 64.
        settled_trials: rollouts, all solved or all failed, that make it look settled, default 32.
        absorbing: why such a prompt may be left for longer; None demands that it is not.
        by_place: why the order of the candidates matters; None demands that only ties follow it.
        by_name: why the names of prompts matter, e.g. draws keyed by prompt; None demands that they do not.
        picks_fewer: why fewer prompts than wanted may be picked where more are offered; None demands that as
            many are picked as there are.
        examples, seed: see `Suite`.

    Guarantee: passing means the checks hold on the inputs tried, which are the same at each run.
    """

    __test__ = False

    brought: int = 4
    pool_size: int = 16
    retest_within: int = 64
    settled_trials: int = 32
    absorbing: str | None = None
    by_place: str | None = None
    by_name: str | None = None
    picks_fewer: str | None = None

    def make(self) -> Select:
        """Return the rule."""
        rule: Select = super().make()
        return rule

    def belief(self) -> Belief:
        """Return a fresh belief for the rule to look at."""
        return Counts(prior=(1.0, 1.0), discount=1.0, fade=1.0)

    def view(
        self, candidates: Sequence[PromptId], fresh: Sequence[PromptId], belief: Belief, step: int = 0
    ) -> StepView:
        """Return a step as a rule sees it, with no prompt overdue."""
        return StepView(
            step=step,
            candidates=tuple(candidates),
            fresh=lambda count: list(fresh[: max(count, 0)]),
            browse=lambda count: list(fresh[: max(count, 0)]),
            overdue=lambda passes, count=None: [],  # noqa: ARG005 (the view's signature)
            group_size=8,
            belief=belief,
            rng=lambda *keys: keyed_rng(self.seed, step, *keys),
        )

    def informed(self, ids: Sequence[PromptId], key: int = 0) -> Belief:
        """Return a belief with other evidence for each of up to 32 prompts: no two means or spreads tie."""
        belief = self.belief()
        successes = self.rng(key).permutation(32)[
            : len(ids)
        ]  # of 64, so that all means lie on one side of 1/2
        belief.update(list(ids), successes, [64] * len(ids))
        return belief

    def test_picks_are_distinct_and_among_those_offered(self) -> None:
        """Up to ``count`` prompts, each once, of the candidates and the pool."""

        @self.randomly()
        @given(
            brought=st.integers(1, 10),
            fresh=st.integers(0, 10),
            count=st.integers(1, 16),
            key=st.integers(0, 9),
        )
        def hold(brought: int, fresh: int, count: int, key: int) -> None:
            ids = [f"q{k}" for k in range(brought + fresh)]
            view = self.view(ids[:brought], ids[brought:], self.informed(ids, key))
            picked = self.make().pick(view, count)
            is_legal = len(set(picked)) == len(picked) <= count and set(picked) <= set(ids)
            claim = "pick must return up to count distinct prompts, of those offered"
            expect(
                is_legal,
                claim,
                see=_SEE,
                candidates=ids[:brought],
                fresh=ids[brought:],
                count=count,
                picked=picked,
            )

        hold()

    def test_as_many_are_picked_as_there_are(self) -> None:
        """Fewer than wanted means that no more exist: the step takes it for the end of the pool."""
        demand = "pick must return count prompts, or all that are offered"
        with declared("picks_fewer", self.picks_fewer, demand, see="Empty pools"):
            ids = [f"q{k}" for k in range(10)]
            for brought, count in ((10, 4), (10, 10), (10, 14), (3, 6), (0, 5), (3, 14)):
                picked = self.make().pick(self.view(ids[:brought], ids[brought:], self.informed(ids)), count)
                given_ = {"candidates": brought, "fresh": 10 - brought, "count": count, "picked": picked}
                expect(len(picked) == min(count, 10), demand, see="Empty pools", **given_)

    def test_nothing_offered_or_wanted_gives_nothing(self) -> None:
        """No candidates and no pool, or no prompt wanted."""
        for ids, count in (([], 4), (["a", "b"], 0), ([], 0)):
            with during("pick with nothing offered, or nothing wanted", see="Empty pools"):
                picked = self.make().pick(self.view(ids, [], self.informed(ids)), count)
            claim = "with nothing offered or wanted, pick must return an empty list"
            expect(len(picked) == 0, claim, see="Empty pools", candidates=ids, count=count, picked=picked)

    def test_saturated_pools_are_picked_from_all_the_same(self) -> None:
        """When every prompt looks solved, or none ever is, a step still gets its prompts."""
        ids = [f"q{k}" for k in range(8)]
        for successes in (0, 1000):
            belief = self.belief()
            belief.update(ids, [successes] * 8, [1000] * 8)
            history = f"{successes} of 1000 for every prompt"
            with during(f"pick from a saturated pool ({history})", see="Saturated pools"):
                picked = self.make().pick(self.view(ids, [], belief), 3)
            claim = "a saturated pool must be picked from all the same"
            expect(
                len(set(picked)) > 0 and set(picked) <= set(ids),
                claim,
                see="Saturated pools",
                history=history,
            )

    def test_the_same_view_gives_the_same_picks(self) -> None:
        """Randomness comes from the view, keyed by seed and step."""
        ids = [f"q{k}" for k in range(12)]
        picks = [self.make().pick(self.view(ids[:6], ids[6:], self.informed(ids)), 4) for _ in range(3)]
        claim = "the same view must give the same picks: draw only from view.rng"
        for again in picks[1:]:
            expect_same(picks[0], again, claim, see="Determinism")

    def test_picking_changes_nothing(self) -> None:
        """The belief is read, never changed."""
        ids = [f"q{k}" for k in range(12)]
        belief, rule = self.informed(ids), self.make()
        before, first = belief.state_dict(), rule.pick(self.view(ids[:6], ids[6:], belief), 4)
        claim = "pick must not change the belief"
        expect_same(before, belief.state_dict(), claim, see="Determinism")
        again = rule.pick(self.view(ids[:6], ids[6:], belief), 4)
        expect_same(first, again, "pick must not remember earlier calls", see="Determinism")

    def test_the_names_of_prompts_do_not_matter(self) -> None:
        """Other names in the same places, with the same evidence, give the same places."""
        demand = "renaming the candidates must rename the picks"
        with declared("by_name", self.by_name, demand, see="Permutations"):
            for key in range(5):
                places = []
                names: tuple[list[PromptId], ...] = ([f"q{k}" for k in range(10)], list(range(10, 0, -1)))
                for ids in names:
                    picked = self.make().pick(self.view(ids, [], self.informed(ids, key)), 4)
                    places.append([ids.index(i) for i in picked])
                expect_same(places[0], places[1], demand, see="Permutations", key=key)

    def test_the_order_of_the_candidates_does_not_matter(self) -> None:
        """A rule that ranks by evidence picks the same prompts, however they come; only ties follow the order."""
        demand = "permuting the candidates must not change which are picked"
        with declared("by_place", self.by_place, demand, see="Permutations"):
            for key in range(5):
                ids = [f"q{k}" for k in range(10)]
                mixed = [ids[k] for k in self.rng(key, 2).permutation(10)]
                one, other = (
                    set(self.make().pick(self.view(order, [], self.informed(ids, key)), 4))
                    for order in (ids, mixed)
                )
                expect_same(one, other, demand, see="Permutations", candidates=ids, permuted=mixed)

    def test_no_state_is_absorbing(self) -> None:
        """A prompt that looked solved, or hopeless, is picked again within ``retest_within`` steps."""
        demand = f"every prompt must be picked again within retest_within = {self.retest_within} steps"
        with declared("absorbing", self.absorbing, demand, see="No absorbing state"):
            for successes in (self.settled_trials, 0):
                expect(
                    self._is_picked_again(successes),
                    f"a prompt that looked settled was never picked again: {demand}",
                    see="No absorbing state",
                    history=f"{successes} of {self.settled_trials}, then not seen",
                    others=f"{self.pool_size - 1} prompts of success rate 1/2",
                )

    def _is_picked_again(self, successes: int) -> bool:
        """Return whether prompt 0 is picked in a pool where all others are worth more."""
        belief, rule, pool = self.belief(), self.make(), Pool(range(self.pool_size), seed=self.seed)
        belief.update([0], [successes], [self.settled_trials])
        for step in range(self.retest_within):
            offered: list[PromptId] = [
                (step * self.brought + k + 1) % self.pool_size for k in range(self.brought)
            ]
            passes = step * self.brought / self.pool_size
            picked = rule.pick(self._view_of(pool, offered, belief, step, passes), self.brought)
            if 0 in picked:
                return True
            belief.update(picked, [4] * len(picked), [8] * len(picked))
            belief.advance()
            pool.open(picked, passes)
        return False

    def _view_of(
        self, pool: Pool, offered: list[PromptId], belief: Belief, step: int, passes: float
    ) -> StepView:
        """Return a step with a pool behind it, as the controller shows it."""
        taken = set(offered)
        return replace(
            self.view(offered, [], belief, step),
            fresh=lambda count: pool.peek(count, taken),
            browse=lambda count: pool.browse(count, taken, keyed_rng(self.seed, step, "browse")),
            overdue=lambda wait, most=None: pool.overdue(passes - wait, set(), most),
        )
