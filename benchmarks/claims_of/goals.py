"""Variance and signal: one budget, two optima."""

from __future__ import annotations

import numpy as np

import neyman
from claims_of.claim import HOLDS, OURS, Claim, Finding, Run, pending
from neyman.formulas import mixed_probability

RATES = np.array([0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5])


def goals(_: Run) -> Finding:
    """Allocate one budget for three objectives."""
    found = pending()
    counts = {
        "Dr. GRPO variance": neyman.allocate(RATES, 128, 3, 64, "dr_grpo"),
        "RLOO variance": neyman.allocate(RATES, 128, 3, 64),
        "effective groups": neyman.allocate(
            value=lambda n: mixed_probability(RATES, n), budget=128, lower=3, upper=64
        ),
    }
    for name, n in counts.items():
        found.add(f"best counts for {name}, p = .01 to .5, C = 128", " ".join(map(str, n)))
    scores = []
    for name, n in counts.items():
        groups, variance = mixed_probability(RATES, n).sum(), neyman.gradient_variance(RATES, n).sum()
        scores.append((groups, variance))
        found.add(f"under the counts for {name}: expected effective groups of 8", float(groups))
        found.add(f"under the counts for {name}: sum of RLOO variances", float(variance))
    good = scores[2][0] > 1.05 * scores[1][0] and scores[1][1] < 0.95 * scores[2][1]
    return found.settle(good, HOLDS, "So the objective is an explicit choice, and comparisons report both.")


CLAIMS = [
    Claim("variance-or-signal", "Counts of least variance differ from counts of most effective groups.", OURS, goals,
          "pytest tests/formulas/test_allocation.py::test_minimum_variance_row"),
]  # fmt: skip
