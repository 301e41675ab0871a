"""Every rule keeps the contract of its kind."""

from __future__ import annotations

import pytest

from neyman import rules
from neyman.beliefs import Belief, Counts, StateDynamics, Streaks
from neyman.rules import (
    Allocate,
    ClosestTo,
    Each,
    EarlyVerdict,
    FullGroup,
    HighestVariance,
    InOrder,
    Inverse,
    Knapsack,
    LeastWaste,
    MarginalValue,
    MostMixed,
    Rest,
    Revisit,
    Screen,
    Select,
    SkipUniform,
    Until,
    VarianceOptimal,
    Verdict,
    WaterLevel,
    WorthVerdict,
)
from neyman.testing import AllocateSuite, SelectSuite, VerdictSuite

BY_DRAW = "one posterior draw per place: the candidates' order is the order of the draws"
BY_MEAN = "it ranks by what it thinks and never looks again at what it thinks uniform"
NO_FLOOR = "it explores in proportion to what is uncertain, without a floor"

BY_KEY = "draws, and ties, are keyed by prompt"
FIRST = "the first that are not passed over"

#: A rule, and what it cannot keep with the reason; a reason that does not hold fails.
SELECT = {
    "in order": (InOrder(), {"by_place": "the host's order is the rule"}),
    "highest variance": (HighestVariance(), {"by_place": BY_DRAW, "absorbing": NO_FLOOR}),
    "highest variance, mean": (
        HighestVariance(explore="mean"),
        {"absorbing": BY_MEAN},
    ),
    "closest": (ClosestTo(), {"by_place": BY_DRAW, "absorbing": NO_FLOOR}),
    "closest, mean": (ClosestTo(explore="mean"), {"absorbing": BY_MEAN}),
    "closest, band": (
        ClosestTo(band=(0.3, 0.7)),
        {"by_place": "what lies in the band comes in the candidates' order", "absorbing": NO_FLOOR},
    ),
    "most mixed": (MostMixed(), {"absorbing": BY_MEAN, "make_belief": StateDynamics, "by_name": BY_KEY}),
    "most mixed, entropy": (MostMixed(entropy=0.5), {"absorbing": BY_MEAN}),
    "skip": (SkipUniform(), {"by_place": FIRST, "by_name": BY_KEY}),
    "skip, streaks": (SkipUniform(), {"by_place": FIRST, "make_belief": Streaks}),
    "least waste": (LeastWaste(), {"absorbing": BY_MEAN}),
    "rest": (Rest(InOrder()), {"by_place": "the host's order is the rule"}),
    "rest, ranked": (
        Rest(HighestVariance(explore="mean"), solved=0.9, failed=-1.0),
        {"absorbing": BY_MEAN},
    ),
    "revisit": (Revisit(HighestVariance(explore="mean")), {}),
}
ROUNDS = "it rounds by the largest remainder"
ALLOCATE = {
    "each": (Each(), {"order_slack": 1}),  # what does not divide goes to the first
    "each, of a size": (Each(4), {"bounds": (4, 4)}),
    "variance": (VarianceOptimal(2, 12), {"bounds": (2, 12)}),
    "variance, dr_grpo": (VarianceOptimal(3, 12, estimator="dr_grpo"), {"bounds": (3, 12)}),
    "variance, grpo": (VarianceOptimal(3, 12, estimator="grpo", probe=3), {"bounds": (3, 12)}),
    "variance, published": (
        VarianceOptimal(2, 12, variant="published", plug_in=True),
        {"bounds": (2, 12)},
    ),
    # That it may leave prompts closed is its own idea: tests/rules/test_marginal.py.
    "marginal": (MarginalValue(upper=12, opens=False), {"bounds": (2, 12)}),
    "inverse accuracy": (Inverse("accuracy", 2, 12), {"bounds": (2, 12)}),
    "inverse variance": (
        Inverse("variance", 2, 12, probe=2),
        {"bounds": (2, 12)},
    ),
    "inverse variance, plug-in": (
        Inverse("variance", 2, 12, plug_in=True),
        {"bounds": (2, 12), "loses_with_budget": ROUNDS},
    ),
    "knapsack": (Knapsack(2, 12), {"bounds": (2, 12)}),
    "knapsack, no upper bound": (
        Knapsack(3, None, cost="expectation"),
        {"bounds": (3, None)},
    ),
    "water level": (WaterLevel(2, 12, probe=2), {"bounds": (2, 12)}),
    "water level, published": (
        WaterLevel(2, 12, variant="published"),
        {"bounds": (2, 12), "loses_with_budget": ROUNDS},
    ),
}
BAND = "pass rates outside the band are given up"
#: Those of the verdicts that cannot keep all, likewise.
STATED = {"screen, band": {"abandons_mixed": BAND}, "screen, narrow": {"abandons_mixed": BAND}}
VERDICT = {
    "early": EarlyVerdict(),
    "early, looks": EarlyVerdict(0.6, schedule=(2, 3, 5)),
    "early, never": EarlyVerdict(0.0),
    "early, at once": EarlyVerdict(1.0, min_probe=3, after_commit="stop", speculate=True),
    "full group": FullGroup(),
    "worth": WorthVerdict(),
    "screen": Screen(),
    "screen, band": Screen(None, lower=0.25, upper=0.25),
    "screen, narrow": Screen(2, lower=0.5, upper=0.5),
    "until one is right": Until(2),
    "until balanced": Until(3, right=2, wrong=2),
    "worth, dear": WorthVerdict(waste=6.0, schedule=(2, 3)),
}


def state(suite: object, rule: object, attributes: dict[str, object]) -> None:
    suite.rule = rule
    for name, value in attributes.items():
        setattr(suite, name, value)


class TestEverySelect(SelectSuite):
    @staticmethod
    def make_belief() -> Belief:
        return Counts(prior=(1.0, 1.0), discount=1.0, fade=1.0)

    @pytest.fixture(autouse=True, params=SELECT)
    def kind(self, request):
        state(self, *SELECT[request.param])

    def make(self) -> Select:
        return self.rule

    def belief(self) -> Belief:
        return self.make_belief()


class TestEveryAllocate(AllocateSuite):
    @pytest.fixture(autouse=True, params=ALLOCATE)
    def kind(self, request):
        state(self, *ALLOCATE[request.param])

    def make(self) -> Allocate:
        return self.rule


class TestEveryVerdict(VerdictSuite):
    @pytest.fixture(autouse=True, params=VERDICT)
    def kind(self, request):
        state(self, VERDICT[request.param], STATED.get(request.param, {}))

    def make(self) -> Verdict:
        return self.rule


def test_every_rule_of_the_package_is_in_a_suite():
    tried = [rule for rule, _ in (*SELECT.values(), *ALLOCATE.values())] + list(VERDICT.values())
    protocols = {Select, Allocate, Verdict}
    for name in rules.__all__:
        kind = getattr(rules, name)
        if kind not in protocols and any(hasattr(kind, method) for method in ("pick", "counts", "decide")):
            assert kind in {type(rule) for rule in tried}, name
