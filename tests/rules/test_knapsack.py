"""Knapsack-RL: a batch worked out by hand, an exhaustive search, and the faults of the ports."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from neyman import beliefs, preset
from neyman.beliefs import Counts
from neyman.errors import InfeasibleError
from neyman.rules import Evidence, Knapsack


def evidence(table, belief=None):
    """Return the evidence of prompts with (successes, trials) at their last visit; no trials is never seen."""
    ids = [f"q{k}" for k in range(len(table))]
    belief = belief or Counts(discount=0.0, fade=1.0)
    belief.update(ids, [s for s, _ in table], [n for _, n in table])
    a, b = beliefs.beta_parameters(belief, ids)
    return Evidence(ids=ids, belief=belief, a=a, b=b, issued=np.zeros(len(ids), dtype=np.int64))


def test_a_batch_of_all_classes_worked_out_by_hand():
    known = evidence([(4, 8), (2, 8), (0, 8), (8, 8), (0, 0)])
    # Never seen: 40 // 5 = 8. p = 1/2 needs 4, p = 1/4 needs 9 (log .1 / log .75 = 8.004): 13 in all, by the gains
    # .125 / 2^n and .140625 (.25^n .75 + .75^n .25) 5 and 8. The never solved get the other 15.
    assert Knapsack().counts(known, 40).tolist() == [5, 8, 17, 2, 8]


def test_the_expectation_as_cost():
    known = evidence([(4, 8), (1, 8), (0, 8)])
    # 1 / (1/4) - 1 = 3 and 1 / (7/64) - 1 = 8.14: 12 in all. Of the 8 beyond 2 each, p = 1/2 gains .0313, .0156, .0078
    # and p = 1/8 .0105, .0082, .0070, .0061, .0054, before the next .0039 and .0047.
    assert Knapsack(cost="expectation").counts(known, 24).tolist() == [5, 7, 12]


def test_it_finds_what_an_exhaustive_search_finds():
    rng = np.random.default_rng(1)
    for _ in range(30):
        p = rng.uniform(0.05, 0.95, 4)
        belief = Counts(prior=(1.0, 1.0), discount=1.0, fade=1.0)
        known = evidence([(round(1e4 * q), 10_000) for q in p], belief)
        p, budget = np.round(1e4 * p) / 1e4, int(rng.integers(8, 33))
        counts = Knapsack(2, 8).counts(known, budget) if budget <= 32 else None

        def value(n, p=p):
            return float(((1 - p**n - (1 - p) ** n) * p * (1 - p) ** 2).sum())

        options = (np.array(n) for n in itertools.product(range(2, 9), repeat=4) if sum(n) == budget)
        assert value(counts) == pytest.approx(max(map(value, options)), abs=1e-12)


def test_only_the_last_visit_counts():
    strategy = preset("knapsack")
    belief = strategy.belief
    for s in (0, 4):
        belief.update(["q0", "q1"], [s, 0], [8, 8])
        belief.advance()
    assert belief.evidence(["q0", "q1"])[0].tolist() == [4.0, 0.0]
    assert belief.evidence(["q0", "q1"])[1].tolist() == [8.0, 8.0]


def test_without_an_upper_bound_the_budget_is_the_bound():
    """One port compares its cost with None and crashes."""
    assert Knapsack(upper=None).counts(evidence([(0, 8), (8, 8)]), 300).tolist() == [298, 2]


def test_when_all_prompts_have_both_outcomes_they_share_what_none_of_them_needs():
    """The same port divides the rest by the number of the other prompts: none."""
    assert Knapsack().counts(evidence([(4, 8)] * 4), 64).tolist() == [16] * 4


def test_the_bounds_hold_when_what_is_left_has_to_go_somewhere():
    """The other port repairs sums after the fact, and leaves the bounds."""
    counts = Knapsack(2, 12).counts(evidence([(4, 8), (0, 8), (8, 8), (0, 0)]), 46)
    assert counts.sum() == 46
    assert counts.max() <= 12
    with pytest.raises(InfeasibleError):
        Knapsack(2, 12).counts(evidence([(4, 8)] * 3), 40)


def test_saturated_batches_are_even():
    for history in ((0, 8), (8, 8), (0, 0)):
        assert Knapsack().counts(evidence([history] * 4), 32).tolist() == [8] * 4


def test_beliefs_without_counts_are_read_by_their_means():
    counts = Knapsack().counts(evidence([(1, 8), (4, 8), (7, 8)], beliefs.BinomialResidual()), 24)
    assert counts.sum() == 24
    assert counts[0] > counts[1], "the harder of two with signal is worth more"
