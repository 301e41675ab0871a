"""VIP: what is believed of success rates, and what deciding costs."""

from __future__ import annotations

import json
from pathlib import Path

from claims_of.claim import (
    CONDITION,
    HOLDS,
    OURS,
    TOLERATED,
    UNTESTED,
    VIP,
    Claim,
    Finding,
    Run,
    mean_error,
    pending,
)

RESULTS = Path(__file__).resolve().parents[1] / "results"


def posterior(run: Run) -> Finding:
    """Average p(1-p) over a posterior."""
    found = pending()
    for a, b in ((1.0, 1.0), (0.5, 2.0)):
        p = run.rng.beta(a, b, run.size(200_000, 400))
        m, v = a / (a + b), a * b / ((a + b) ** 2 * (a + b + 1))
        found.add(
            f"Beta({a:g}, {b:g}): E[p(1-p)] against m(1-m) - Var(p)",
            *mean_error(p * (1 - p)),
            m * (1 - m) - v,
        )
        found.add(f"Beta({a:g}, {b:g}): the plug-in m(1-m) over it", m * (1 - m) / (m * (1 - m) - v))
    return found.settle(found.off() < TOLERATED, HOLDS, "The plug-in is too large where a rate is uncertain.")


def predictor(_: Run) -> Finding:
    """Quote how beliefs predict the real trace."""
    found = pending()
    table = json.loads((RESULTS / "beliefs.json").read_text())["beliefs"]
    gaps = {}
    for name in ("published GP (median bandwidth, eps .05)", "published GP (bandwidth .4)", "counts with GP prior",
                 "default (that, slow and fast drift averaged)"):  # fmt: skip
        for key, words in (("first_minus_counts", "first pass"), ("later_minus_counts", "later passes")):
            gap = table[name][key]
            gaps[name, key] = gap["mean"]
            # half-widths are of 95 % intervals over five orders: Student's t with 4 degrees of freedom
            found.add(
                f"{name}, {words}: log-loss minus that of counts", gap["mean"], gap["half_width"] / 2.776
            )
    good = (
        gaps["published GP (bandwidth .4)", "later_minus_counts"]
        > 0
        > gaps["counts with GP prior", "first_minus_counts"]
    )
    return found.settle(
        good,
        CONDITION,
        "Embeddings help where a prompt was never seen. Once it was, the recursion without noise loses to plain counts "
        "per prompt, with either bandwidth; with the median one it loses on the first pass too. Ridge "
        "regression is not among the "
        "beliefs compared.",
    )


def overhead(_: Run) -> Finding:
    """Quote what the controller costs."""
    timed = json.loads((RESULTS / "overhead.json").read_text())
    load = json.loads((RESULTS / "load.json").read_text())["cases"]["vip"]["17000"]
    found = Finding(
        UNTESTED,
        "The share depends on the model: these are milliseconds of the controller for 4,096 rollouts, and step times "
        "for a policy of .1M parameters, a worst case.",
    )
    found.add(
        "begin + ask + tell + finish, pool of 17,000, ms",
        load["milliseconds"]["all"]["median"],
    )
    found.add("step time under `vip` over the stock trainer's", timed["step_time_ratio"]["vip"])
    return found


CLAIMS = [
    Claim("posterior-spread", "An uncertain rate's expected variance is m(1-m) - Var(p).", OURS, posterior),
    Claim("gp-predictor", "A Gaussian process over prompt embeddings predicts success rates better than simpler "
          "beliefs.", VIP, predictor, "python benchmarks/beliefs.py --data DIR"),
    Claim("vip-overhead", "Predicting and allocating cost about 1 % of a step.", VIP, overhead,
          "python benchmarks/overhead.py"),
]  # fmt: skip
