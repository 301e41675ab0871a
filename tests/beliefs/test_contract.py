"""Every belief keeps the contract of the protocol."""

from __future__ import annotations

import pytest

from neyman import beliefs
from neyman.beliefs import Belief, Counts, PublishedGP
from neyman.testing import BeliefSuite
from strategies import BELIEFS, POOL

#: What a belief cannot keep, and why; a reason that does not hold fails.
_NEVER_UPDATED = {
    "trust": 0.08,  # rates are clipped to [.05, .95], and may be spread after that
    "never_forgets": "the published covariance is never updated",
}
_APPROXIMATE = {"portion_tolerance": 0.01}  # a likelihood approximated once per portion
_THREE_RATES = {
    "trust": 0.5,  # it knows three states and no rates: one success in a million is mixed
    "convinced": 0.7,  # of a state that has come back 60 times, it expects an end at each step
}
STATED: dict[str, dict[str, object]] = {
    "counts, fixed prior": {
        "never_forgets": "discount = fade = 1 is the posterior of a rate that never moves"
    },
    "average": _APPROXIMATE,
    "residual": _APPROXIMATE,
    "residual, 3 landmarks": _APPROXIMATE,
    "residual, no landmarks": _APPROXIMATE,
    "published": _NEVER_UPDATED,
    "published, low rank": _NEVER_UPDATED,
    "published, prior variance": _NEVER_UPDATED,
    "dynamics": _THREE_RATES,
    "dynamics, local": _THREE_RATES,
    "ridge": {
        "trust": 0.011,  # predictions are clipped to [.01, .99]
        "never_forgets": "a point prediction, as published, has no variance",
    },
}


class TestEveryBelief(BeliefSuite):
    ids = POOL
    trust = 1e-5

    @pytest.fixture(autouse=True, params=BELIEFS)
    def kind(self, request):
        self.build = BELIEFS[request.param]
        for name, value in STATED.get(request.param, {}).items():
            setattr(self, name, value)

    def make(self) -> Belief:
        return self.build()

    def strangers(self) -> list[Belief]:
        return [Counts(discount=0.123), PublishedGP(eps=0.123)]


def test_every_belief_of_the_package_is_in_the_suite():
    exported = {getattr(beliefs, name) for name in beliefs.__all__} - {Belief}
    kinds = {kind for kind in exported if isinstance(kind, type) and hasattr(kind, "predict")}
    assert kinds == {type(make()) for make in BELIEFS.values()}, "add it to BELIEFS in tests/strategies.py"
