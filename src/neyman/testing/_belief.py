"""The contract of `neyman.beliefs.Belief`."""

from __future__ import annotations

from neyman.testing._belief_evidence import BeliefEvidence
from neyman.testing._belief_reads import BeliefReads
from neyman.testing._belief_states import BeliefStates


class BeliefSuite(BeliefReads, BeliefEvidence, BeliefStates):
    """Everything that a strategy relies on in a belief. Subclass it, define ``make``, run pytest.

    Hooks:
        make: returns a fresh belief, with the same settings at each call. Required.
        strangers: returns beliefs whose saved states must be refused; none by default.

    Attributes:
        ids: prompts of the tests, strings and integers mixed; at least four.
        feature_columns: width of the features that are registered; 0 registers none.
        convinced: mean that 60 visits of 8 in 8 must pass (and 1 minus it for 0 in 8), default .9.
        trust: largest error of a mean after a million trials, default 1e-4.
        portion_tolerance: how far four updates of 2 within a step may be from one of 8, default 1e-9; approximate
            likelihoods state theirs.
        order_tolerance: how far the order of prompts in an update may move a mean, default 1e-9.
        relearn_within: visits after which a prompt that changed must be thought to have changed, default 64.
        absorbing: why a prompt that changed need not be noticed; None demands that it is.
        never_forgets: why time need not widen the variance; None demands that it does.
        examples, seed: see `Suite`.

    Guarantee: passing means the checks hold on the inputs tried, which are the same at each run.

    Cost: below a second for beliefs that answer in a millisecond.
    """

    __test__ = False
