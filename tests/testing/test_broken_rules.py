"""Rules broken on purpose: exactly the check that is about the fault fails."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from mutants import assert_caught, complaints
from neyman.rules import Allocate, Each, EarlyVerdict, HighestVariance, InOrder, VarianceOptimal, Verdict
from neyman.testing import AllocateSuite, SelectSuite, VerdictSuite


def checks_of(suite):
    return {name.removeprefix("test_") for name in dir(suite) if name.startswith("test_")}


def made(kind, build, **attributes):
    """Return a suite over what ``build`` makes."""

    class Checked(kind):
        __test__ = False

        def make(self):
            return build()

    checked = Checked()
    for name, value in attributes.items():
        setattr(checked, name, value)
    return checked


# --- which prompts ---------------------------------------------------------------------------------------------


class Ranked:
    """A selection that keeps the contract: the most uncertain, and one place for any of them."""

    def offered(self, view):
        return [*view.candidates, *view.fresh(100)]

    def score(self, view, ids):
        return view.belief.expected_variance(ids)

    def pick(self, view, count):
        ids = self.offered(view)
        if not ids or not count:
            return []
        ranked = [ids[k] for k in np.argsort(-self.score(view, ids), kind="stable")]
        first = ranked.pop(int(view.rng("floor").integers(len(ranked))))
        return [first, *ranked][:count]


class PicksTwice(Ranked):
    def pick(self, view, count):
        picked = super().pick(view, count)
        return [*picked[:-1], picked[0]] if picked else picked


class PicksTooFew(Ranked):
    def pick(self, view, count):
        return super().pick(view, count)[: max(1, count - 1)]


class NeedsSomething(Ranked):
    def pick(self, view, count):
        np.max(self.score(view, self.offered(view)))
        return super().pick(view, count)


class OnlyUncertain(Ranked):
    def pick(self, view, count):
        return [i for i in super().pick(view, count) if view.belief.expected_variance([i])[0] > 0.001]


class DependsOnTheProcess(Ranked):
    made = itertools.count()

    def __init__(self):
        self.turned = next(self.made) % 2

    def pick(self, view, count):
        picked = super().pick(view, count)
        return picked[::-1] if self.turned and len(self.offered(view)) == 12 else picked


class LetsTimePass(Ranked):
    def pick(self, view, count):
        view.belief.advance()
        return super().pick(view, count)


class Remembers(Ranked):
    calls = 0

    def pick(self, view, count):
        self.calls += 1
        picked = super().pick(view, count)
        return picked[::-1] if self.calls % 2 else picked


class Alphabetic(Ranked):
    def score(self, view, ids):
        return -np.argsort(np.argsort([str(i) for i in ids]))


SELECT = {
    PicksTwice: {"picks_are_distinct_and_among_those_offered"},
    PicksTooFew: {"as_many_are_picked_as_there_are"},
    NeedsSomething: {"nothing_offered_or_wanted_gives_nothing"},
    OnlyUncertain: {"saturated_pools_are_picked_from_all_the_same"},
    DependsOnTheProcess: {"the_same_view_gives_the_same_picks"},
    LetsTimePass: {"picking_changes_nothing"},
    Remembers: {"picking_changes_nothing"},
    Alphabetic: {"the_names_of_prompts_do_not_matter"},
    InOrder: {"the_order_of_the_candidates_does_not_matter"},
    lambda: HighestVariance(explore="mean"): {"no_state_is_absorbing"},
}


def test_a_sound_selection_passes():
    assert complaints(made(SelectSuite, Ranked)) == {}


@pytest.mark.parametrize(("build", "checks"), SELECT.items(), ids=lambda v: getattr(v, "__name__", ""))
def test_a_broken_selection_is_caught(build, checks):
    assert_caught(made(SelectSuite, build, examples=10), *checks)


def test_every_check_of_a_selection_can_fail():
    assert checks_of(SelectSuite) == set().union(*SELECT.values())


@pytest.mark.parametrize(
    ("attribute", "check"),
    [
        ("absorbing", "no_state_is_absorbing"),
        ("by_name", "the_names_of_prompts_do_not_matter"),
        ("by_place", "the_order_of_the_candidates_does_not_matter"),
        ("picks_fewer", "as_many_are_picked_as_there_are"),
    ],
)
def test_an_exception_that_is_not_real_is_no_excuse(attribute, check):
    suite = made(SelectSuite, Ranked, **{attribute: "because"})
    assert_caught(suite, check)
    assert f"{attribute} declares an exception that does not occur" in complaints(suite)[check]
    assert f"{attribute} = 'because'" in complaints(suite)[check]


# --- how many rollouts -----------------------------------------------------------------------------------------


class Counted(Allocate):
    """An allocation that keeps the contract; each mutant changes its counts."""

    probe = 2

    def __init__(self):
        self.rule = VarianceOptimal(2, 12)

    def group_size(self, average):
        return self.rule.group_size(average)

    def counts(self, evidence, budget):
        return self.rule.counts(evidence, budget)


class Fractions(Counted):
    def counts(self, evidence, budget):
        return super().counts(evidence, budget).astype(float)


def some_are_easy(evidence):
    """Whether to break: at once, where some prompts look easier than 1/2 and others do not look the same."""
    is_plain = len(evidence.a) > 1 and not evidence.issued.any() and np.ptp(evidence.a) > 0
    return is_plain and evidence.a[0] > evidence.b[0]


class SpendsOneLess(Counted):
    def counts(self, evidence, budget):
        counts = super().counts(evidence, budget)
        if some_are_easy(evidence) and counts[-1] > 2:
            counts[-1] -= 1
        return counts


class OneTooMany(Counted):
    def counts(self, evidence, budget):
        if 0 < budget <= 12 * len(evidence.a):
            return VarianceOptimal(2, 13).counts(evidence, budget)
        return super().counts(evidence, budget)


class TakesBack(Counted):
    def counts(self, evidence, budget):
        return super().counts(replace(evidence, issued=np.zeros_like(evidence.issued)), budget)


class TakesAnyBudget(Counted):
    def counts(self, evidence, budget):
        n = len(evidence.issued)
        return super().counts(evidence, int(np.clip(budget, 2 * n, 12 * n)))


class RemainderInTurn(Counted):
    """What does not divide goes to another prompt at each call."""

    calls = 0

    def counts(self, evidence, budget):
        self.calls += not evidence.issued.any()
        return np.roll(Each().counts(evidence, budget), self.calls)


class TellsTheBelief(Counted):
    def counts(self, evidence, budget):
        evidence.belief.advance()
        return super().counts(evidence, budget)


class LargestRemainder(Counted):
    """Proportional to the mean: with weights 1, 3, 3 a fourth rollout takes the first prompt's only one."""

    def counts(self, evidence, budget):
        floor = evidence.issued
        share = (budget - floor.sum()) * evidence.mean / max(evidence.mean.sum(), 1e-9)
        counts = floor + np.floor(share + 1e-9).astype(np.int64)
        rest = np.argsort(-(share % 1.0).round(9), kind="stable")
        counts[rest[: budget - counts.sum()]] += 1
        return counts


class NeedsPrompts(Counted):
    def counts(self, evidence, budget):
        np.max(evidence.a)
        return super().counts(evidence, budget)


class FirstTakesAll(Counted):
    def counts(self, evidence, budget):
        n = len(evidence.issued)
        if (
            0 < 2 * n <= budget <= 12 * n
            and not evidence.issued.any()
            and np.ptp(evidence.expected_variance) == 0.0
        ):
            return np.minimum(12, 2 + np.maximum(0, budget - 2 * n - 10 * np.arange(n)))
        return super().counts(evidence, budget)


class UnboundedSize(Counted):
    def group_size(self, average):
        return average


BOX = {"bounds": (2, 12)}
ALLOCATE = {
    Fractions: (BOX, {"the_budget_is_spent_exactly", "no_prompts_get_no_rollouts"}),
    SpendsOneLess: (BOX, {"the_budget_is_spent_exactly"}),
    OneTooMany: (BOX, {"counts_lie_within_the_bounds"}),
    TakesBack: (BOX, {"counts_never_fall_below_what_was_asked_for"}),
    TakesAnyBudget: (BOX, {"a_budget_outside_the_bounds_is_refused"}),
    RemainderInTurn: (
        {"order_slack": 1},
        {"the_same_evidence_gives_the_same_counts"},
    ),
    TellsTheBelief: (BOX, {"counting_changes_nothing"}),
    Each: ({}, {"permuting_the_prompts_permutes_the_counts"}),
    LargestRemainder: ({"order_slack": 1}, {"more_budget_never_gives_a_prompt_fewer_rollouts"}),
    NeedsPrompts: (BOX, {"no_prompts_get_no_rollouts"}),
    FirstTakesAll: (BOX, {"saturated_and_equal_prompts_share_equally"}),
    UnboundedSize: (BOX, {"group_sizes_and_probes_are_whole_and_within_the_bounds"}),
}


def test_a_sound_allocation_passes():
    assert complaints(made(AllocateSuite, Counted, **BOX)) == {}


@pytest.mark.parametrize("build", ALLOCATE, ids=lambda v: v.__name__)
def test_a_broken_allocation_is_caught(build):
    attributes, checks = ALLOCATE[build]
    assert_caught(made(AllocateSuite, build, examples=15, **attributes), *checks)


def test_every_check_of_an_allocation_can_fail():
    assert checks_of(AllocateSuite) == set().union(*(checks for _, checks in ALLOCATE.values()))


# --- when to stop ----------------------------------------------------------------------------------------------


class Judged(Verdict):
    """A verdict that keeps the contract; each mutant changes what it says."""

    schedule = (2, 3)

    def looks(self, group_size):
        return EarlyVerdict(schedule=self.schedule).looks(group_size)

    def decide(self, successes, trials, group_size, prior):
        return EarlyVerdict(0.9, schedule=self.schedule).decide(successes, trials, group_size, prior)


class NeverLooksAtTheWhole(Judged):
    def looks(self, group_size):
        return super().looks(group_size)[:1]


class DividesByTrials(Judged):
    def decide(self, successes, trials, group_size, prior):
        assert 0.0 <= successes / trials <= 1.0
        return super().decide(successes, trials, group_size, prior)


class SaysPerhaps(Judged):
    def decide(self, successes, trials, group_size, prior):
        return "perhaps" if trials == 0 else super().decide(successes, trials, group_size, prior)


class WaitsForMore(Judged):
    def decide(self, successes, trials, group_size, prior):
        said = super().decide(successes, trials, group_size, prior)
        return "continue" if said == "commit" and trials == group_size else said


class WantsTwoSuccesses(Judged):
    def decide(self, successes, trials, group_size, prior):
        said = super().decide(successes, trials, group_size, prior)
        return "abandon" if said == "commit" and successes == 1 else said


class TrainsTheSolved(Judged):
    def decide(self, successes, trials, group_size, prior):
        said = super().decide(successes, trials, group_size, prior)
        return "commit" if successes == trials == 1 else said


class SecondThoughts(Judged):
    def decide(self, successes, trials, group_size, prior):
        said = super().decide(successes, trials, group_size, prior)
        return "continue" if trials == 3 < group_size and said == "abandon" else said


class Tires(Judged):
    calls = 0

    def decide(self, successes, trials, group_size, prior):
        self.calls += 1
        return "abandon" if self.calls > 20 else super().decide(successes, trials, group_size, prior)


VERDICT = {
    NeverLooksAtTheWhole: {"looks_rise_to_the_size_of_the_group"},
    SaysPerhaps: {"every_prefix_gets_a_verdict"},
    WaitsForMore: {"a_complete_group_is_decided"},
    WantsTwoSuccesses: {"mixed_outcomes_are_never_abandoned"},
    TrainsTheSolved: {"uniform_outcomes_are_never_committed"},
    SecondThoughts: {"a_longer_uniform_prefix_is_no_better"},
    Tires: {"verdicts_depend_on_nothing_but_the_prefix"},
    # A crash is found by all that come across the empty prefix.
    DividesByTrials: {"every_prefix_gets_a_verdict", "verdicts_depend_on_nothing_but_the_prefix"},
}


def test_a_sound_verdict_passes():
    assert complaints(made(VerdictSuite, Judged)) == {}


@pytest.mark.parametrize(("build", "checks"), VERDICT.items(), ids=lambda v: getattr(v, "__name__", ""))
def test_a_broken_verdict_is_caught(build, checks):
    assert_caught(made(VerdictSuite, build), *checks)


def test_every_check_of_a_verdict_can_fail():
    assert checks_of(VerdictSuite) == set().union(*VERDICT.values())
