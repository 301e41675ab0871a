"""The contract of `neyman.rules.Allocate`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from neyman._checks import IntP
from neyman.beliefs import Belief, Counts, beta_parameters
from neyman.errors import ArgumentError
from neyman.rules import Allocate, Evidence
from neyman.testing._contract import Suite, declared, during, expect, expect_same, refused

#: Successes and trials of one prompt.
History = tuple[int, int]
_HISTORIES = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), min_size=1, max_size=6)
_ONE_WITH_SIGNAL: list[History] = [(0, 30), (15, 30), (30, 30)]  # where bounds are reached first
_BUDGETS = 80  # budgets tried one after the other
_SPAN = 40  # rollouts per prompt above the lower bound that are tried where no upper bound is stated


class AllocateSuite(Suite):
    """Everything that a step relies on in an allocation rule. Subclass it, define ``make``, run pytest.

    Hooks:
        make: returns the rule. Required.
        belief: returns a fresh belief for rules that ask more of it than a Beta; default
            `neyman.beliefs.Counts` with a uniform prior that forgets nothing.

    Attributes:
        bounds: (fewest, most) rollouts of a prompt; None as most is no bound. A budget outside their sums must
            be refused.
        order_slack: rollouts by which a prompt's count may follow its place; 0, the default, demands that
            permuting prompts permutes counts wherever their evidence differs. What does not divide evenly among
            equal prompts goes by place: rules that see all prompts as equal state 1.
        loses_with_budget: why a prompt may lose rollouts when the budget grows; None demands that none does.
        unequal: why prompts with equal evidence may get counts that differ by more than 1; None demands that
            they do not.
        examples, seed: see `Suite`.

    Guarantee: passing means the checks hold on the inputs tried, which are the same at each run.
    """

    __test__ = False

    bounds: tuple[int, int | None] = (0, None)
    order_slack: int = 0
    loses_with_budget: str | None = None
    unequal: str | None = None

    def make(self) -> Allocate:
        """Return the rule."""
        rule: Allocate = super().make()
        return rule

    def belief(self) -> Belief:
        """Return a fresh belief."""
        return Counts(prior=(1.0, 1.0), discount=1.0, fade=1.0)

    def evidence(self, histories: Sequence[History], issued: Sequence[int] | None = None) -> Evidence:
        """Return the evidence of prompts with these successes and trials."""
        ids, belief = [f"q{k}" for k in range(len(histories))], self.belief()
        belief.update(ids, [s for s, _ in histories], [n for _, n in histories])
        a, b = beta_parameters(belief, ids)
        asked = np.zeros(len(ids), dtype=np.int64) if issued is None else np.array(issued, dtype=np.int64)
        return Evidence(ids=ids, belief=belief, a=a, b=b, issued=asked)

    def limits(self, prompts: int) -> tuple[int, int]:
        """Return the least and the most that the bounds allow for so many prompts."""
        low, high = self.bounds
        return prompts * low, prompts * (low + _SPAN if high is None else high)

    def case(self, raw: Sequence[History], share: float, *, issued: bool = False) -> tuple[Evidence, int]:
        """Return evidence and a budget within the bounds, ``share`` of the way from the least to the most."""
        histories = [(min(pair), max(pair)) for pair in raw]
        low, high = self.bounds
        floor = [min(max(low, 2) + k % 3, high or low + _SPAN) for k in range(len(raw))] if issued else None
        least, most = self.limits(len(raw))
        least = sum(floor) if floor else least
        return self.evidence(histories, floor), least + round(share * (most - least))

    def counts(self, evidence: Evidence, budget: int) -> IntP:
        """Return the rule's counts."""
        with during(f"counts of {len(evidence.issued)} prompts and a budget of {budget}", see="Exact budget"):
            return self.make().counts(evidence, budget)

    def test_the_budget_is_spent_exactly(self) -> None:
        """Whole counts, one per prompt, that sum to the budget."""

        @self.randomly()
        @given(raw=_HISTORIES, share=st.floats(0.0, 1.0))
        def hold(raw: list[History], share: float) -> None:
            evidence, budget = self.case(raw, share)
            counts = self.counts(evidence, budget)
            given_ = {"a": evidence.a, "b": evidence.b, "budget": budget, "counts": counts}
            is_fit = counts.dtype == np.int64 and counts.shape == evidence.issued.shape
            expect(
                is_fit,
                "counts must be int64, one per prompt",
                see="Exact budget",
                dtype=counts.dtype,
                **given_,
            )
            claim = f"counts must sum to the budget, they sum to {counts.sum()}"
            expect(int(counts.sum()) == budget, claim, see="Exact budget", **given_)

        hold()

    def test_counts_lie_within_the_bounds(self) -> None:
        """No prompt gets fewer than ``bounds[0]`` or more than ``bounds[1]``."""

        @self.randomly()
        @given(raw=_HISTORIES, share=st.floats(0.0, 1.0))
        @example(raw=_ONE_WITH_SIGNAL, share=0.5)
        @example(raw=_ONE_WITH_SIGNAL, share=0.9)
        def hold(raw: list[History], share: float) -> None:
            evidence, budget = self.case(raw, share)
            counts = self.counts(evidence, budget)
            low, high = self.bounds[0], budget if self.bounds[1] is None else self.bounds[1]
            claim = f"every count must lie in [{low}, {high}] (bounds = {self.bounds})"
            legal = (counts >= low) & (counts <= high)
            expect(legal.all(), claim, see="Bounds", a=evidence.a, b=evidence.b, budget=budget, counts=counts)

        hold()

    def test_counts_never_fall_below_what_was_asked_for(self) -> None:
        """Rollouts that are out cannot be taken back: counted again after a probe, each prompt keeps its own."""

        @self.randomly()
        @given(raw=_HISTORIES, share=st.floats(0.0, 1.0))
        def hold(raw: list[History], share: float) -> None:
            evidence, budget = self.case(raw, share, issued=True)
            counts = self.counts(evidence, budget)
            given_ = {"issued": evidence.issued, "budget": budget, "counts": counts}
            claim = "counts must be at least evidence.issued, and sum to the budget"
            kept = (counts >= evidence.issued).all() and int(counts.sum()) == budget
            expect(kept, claim, see="Probes", a=evidence.a, b=evidence.b, **given_)

        hold()

    def test_a_budget_outside_the_bounds_is_refused(self) -> None:
        """Too little or too much for the bounds is an error before the first rollout, not a wrong count."""
        for prompts in (1, 3):
            least, most = self.limits(prompts)
            budgets = ([least - 1] if least else []) + ([most + 1] if self.bounds[1] is not None else [])
            for budget in budgets:
                evidence = self.evidence([(k, 8) for k in range(prompts)])
                claim = f"counts of {prompts} prompts within bounds = {self.bounds} and a budget of {budget}"
                refused(partial(self.make().counts, evidence, budget), ArgumentError, claim, see="Bounds")

    def test_the_same_evidence_gives_the_same_counts(self) -> None:
        """No hidden state, no randomness of its own."""
        evidence, budget = self.case([(k, 20 - k) for k in range(6)], 0.41)
        rule = self.make()
        one, again, fresh = (
            rule.counts(evidence, budget),
            rule.counts(evidence, budget),
            self.counts(evidence, budget),
        )
        claim = "the same evidence must give the same counts"
        expect_same(one, again, claim, see="Determinism", budget=budget)
        expect_same(one, fresh, claim, see="Determinism", budget=budget)

    def test_counting_changes_nothing(self) -> None:
        """The evidence and the belief are read, never written."""
        evidence, budget = self.case([(k, 20 - k) for k in range(6)], 0.4, issued=True)
        arrays = [evidence.a, evidence.b, evidence.issued]
        before, state = [array.copy() for array in arrays], evidence.belief.state_dict()
        self.counts(evidence, budget)
        for name, old, new in zip(("a", "b", "issued"), before, arrays, strict=True):
            expect_same(old, new, f"counts must not write into evidence.{name}", see="Determinism")
        expect_same(
            state, evidence.belief.state_dict(), "counts must not change the belief", see="Determinism"
        )

    def test_permuting_the_prompts_permutes_the_counts(self) -> None:
        """To ``order_slack``, where the evidence differs."""

        @self.randomly()
        @given(
            raw=st.lists(st.integers(0, 12), min_size=2, max_size=6, unique=True),
            share=st.floats(0.0, 1.0),
            key=st.integers(0, 99),
        )
        def hold(raw: list[int], share: float, key: int) -> None:
            # Unlike trials with under half of them solved: no two prompts have the same mean or spread.
            histories = [(k, 3 * k + 2) for k in raw]
            order = self.rng(key).permutation(len(raw))
            evidence, budget = self.case(histories, share)
            mixed, _ = self.case([histories[k] for k in order], share)
            counts, permuted = self.counts(evidence, budget)[order], self.counts(mixed, budget)
            claim = f"permuting prompts must permute their counts (order_slack = {self.order_slack})"
            is_same = (np.abs(counts - permuted) <= self.order_slack).all()
            given_ = {"a": mixed.a, "b": mixed.b, "budget": budget}
            expect(is_same, claim, see="Permutations", expected=counts, got=permuted, **given_)

        hold()

    def test_more_budget_never_gives_a_prompt_fewer_rollouts(self) -> None:
        """One budget after the other: no prompt loses a rollout."""
        demand = "a larger budget must never give a prompt fewer rollouts"
        with declared("loses_with_budget", self.loses_with_budget, demand, see="More budget"):
            for key in range(4):
                rng, prompts = self.rng(key), 3 + key
                trials = rng.integers(0, 30, prompts)
                solved = rng.binomial(trials, 0.4)
                evidence = self.evidence(list(zip(solved.tolist(), trials.tolist(), strict=True)))
                least, most = self.limits(prompts)
                before = self.counts(evidence, least)
                for budget in range(least + 1, min(most, least + _BUDGETS) + 1):
                    counts = self.counts(evidence, budget)
                    known = {"a": evidence.a, "b": evidence.b, "budget": budget}
                    kept = (counts >= before).all()
                    expect(kept, demand, see="More budget", before=before, counts=counts, **known)
                    before = counts

    def test_no_prompts_get_no_rollouts(self) -> None:
        """An empty step."""
        with during("counts of no prompts", see="Empty pools"):
            counts = self.make().counts(self.evidence([]), 0)
        is_empty = counts.dtype == np.int64 and counts.shape == (0,)
        expect(is_empty, "no prompts must get an empty int64 array", see="Empty pools", got=counts)

    def test_saturated_and_equal_prompts_share_equally(self) -> None:
        """Prompts with equal evidence get equal counts, but for a remainder; signal or none."""
        demand = "prompts with equal evidence must get counts that differ by at most 1"
        with declared("unequal", self.unequal, demand, see="Saturated pools"):
            for history in ((0, 1000), (1000, 1000), (5, 10)):
                for share in (0.0, 0.3, 1.0):
                    evidence, budget = self.case([history] * 5, share)
                    counts = self.counts(evidence, budget)
                    given_ = {
                        "history_of_each": f"{history[0]} of {history[1]}",
                        "budget": budget,
                        "counts": counts,
                    }
                    is_even = counts.max() - counts.min() <= 1 and int(counts.sum()) == budget
                    expect(is_even, demand, see="Saturated pools", **given_)

    def test_group_sizes_and_probes_are_whole_and_within_the_bounds(self) -> None:
        """The size of a complete group, and of the first portion of every prompt."""
        rule = self.make()
        high = self.bounds[1]
        for average in (1, 4, 16, 1000):
            size = rule.group_size(average)
            legal = size == int(size) and size >= max(1, self.bounds[0]) and (high is None or size <= high)
            claim = f"group_size must be whole and within bounds = {self.bounds}"
            expect(legal, claim, see="Bounds", average=average, group_size=size)
        probe = rule.probe
        legal = probe == int(probe) and probe >= 0 and (high is None or probe <= high)
        expect(legal, "probe must be a whole number from 0 to the upper bound", see="Probes", probe=probe)
