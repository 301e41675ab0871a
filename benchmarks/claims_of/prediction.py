"""VIP: predicted success rates, and the cost of deciding."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from claims_of.claim import (
    CONDITION,
    FALSE,
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
from neyman import beliefs

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
    """Quote the log-loss of beliefs on the real trace."""
    found = pending()
    table = json.loads((RESULTS / "beliefs.json").read_text())["beliefs"]
    gaps = {}
    for name in ("published GP (median bandwidth, eps .05)", "published GP (bandwidth .4)",
                 "ridge regression (penalty 1)", "ridge regression (penalty 30)", "counts with GP prior",
                 "default (that, slow and fast drift averaged)"):  # fmt: skip
        for key, words in (("first_minus_counts", "first pass"), ("later_minus_counts", "later passes")):
            gap = table[name][key]
            gaps[name, words] = gap["mean"]
            # half-widths are of 95 % intervals over five orders: Student's t with 4 degrees of freedom
            found.add(
                f"{name}, {words}: log-loss minus that of counts", gap["mean"], gap["half_width"] / 2.776
            )
    process, ridge = "published GP (bandwidth .4)", "ridge regression (penalty 30)"
    good = (
        gaps[process, "later passes"] > 0.0 > gaps["counts with GP prior", "first pass"]
        and gaps[ridge, "first pass"]
        < gaps[process, "first pass"]
        < gaps["ridge regression (penalty 1)", "first pass"]
        and gaps[process, "later passes"] < gaps[ridge, "later passes"]
    )
    return found.settle(
        good,
        CONDITION,
        "Embeddings help on prompts never seen. Once a prompt was seen, the recursion without noise loses to plain "
        "counts per prompt, with either bandwidth; with the median one it loses on the first pass too. Ridge "
        "regression on the same embeddings: on prompts never seen it beats the published process with its penalty "
        "chosen in hindsight, and loses with the preset's; on later passes it is far worse than both, because it "
        "knows a prompt only by its embedding. A process as the prior of counts is as good as the better of these on "
        "both.",
    )


def worlds(
    run: Run, prompts: int = 320, steps: int = 30, size: int = 32
) -> tuple[np.ndarray, np.ndarray, list[Any]]:
    """Draw features, rates that follow them up to an offset per prompt, and the visits.

    Visits draw ``size`` prompts a step from three quarters of the prompts; the others are never observed.
    """
    x = run.rng.standard_normal((prompts, 16))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    squared = np.square(x[:, None] - x[None]).sum(axis=-1)
    length = 0.5 * np.median(np.sqrt(squared[np.triu_indices(prompts, 1)]))
    kernel = np.exp(-squared / (2.0 * length**2)) + 1e-8 * np.eye(prompts)
    logits = 2.0 * np.linalg.cholesky(kernel) @ run.rng.standard_normal(prompts)
    rates = 1.0 / (1.0 + np.exp(-logits - 0.5 * run.rng.standard_normal(prompts)))
    pool = prompts * 3 // 4
    visits = [np.sort(run.rng.choice(pool, size, replace=False)) for _ in range(steps)]
    return x, rates, [(ids.tolist(), run.rng.binomial(8, rates[ids]), np.full(size, 8)) for ids in visits]


def noiseless(run: Run) -> Finding:
    """Compare the published process's settings with beliefs that model the noise of counts."""
    published = {
        "eps .05": {"eps": 0.05},
        "eps .001": {"eps": 1e-3},
        "the code's eps 1e-6": {"eps": 1e-6},
        "eps .05, bandwidth .4": {"eps": 0.05, "bandwidth": 0.4},
    }
    made: dict[str, Callable[[], Any]] = {
        f"published GP, {name}": partial(beliefs.PublishedGP, **options)
        for name, options in published.items()
    }
    made |= {
        "ridge regression, penalty 30": partial(beliefs.Ridge, penalty=30.0),
        "counts per prompt": partial(beliefs.Counts, fade=1.0),
        "counts with GP prior": beliefs.CountsWithGP,
        "binomial residual": beliefs.BinomialResidual,
    }
    errors: dict[str, list[tuple[float, float]]] = {name: [] for name in made}
    for _ in range(run.size(10)):
        x, rates, visits = worlds(run)
        ids, unseen = list(range(len(rates))), slice(len(rates) * 3 // 4, None)
        for name, build in made.items():
            belief = build()
            belief.register(ids, x)
            for visit in visits:
                belief.update(*visit)
                belief.advance()
            off = np.abs(belief.predict(ids)[0] - rates)
            errors[name].append((float(off.mean()), float(off[unseen].mean())))
    found, means = pending(), {}
    for name, pairs in errors.items():
        for column, words in enumerate(("all prompts", "never observed")):
            value = mean_error([pair[column] for pair in pairs])
            means[name, column] = value[0]
            found.add(f"{name}: mean absolute error, {words}", *value)
    mended = [means["counts with GP prior", column] for column in (0, 1)]
    best = [min(means[f"published GP, {name}", column] for name in published) for column in (0, 1)]
    return found.settle(
        best[0] > max(means[name, 0] for name in ("counts per prompt", "binomial residual"))
        and best[0] > mended[0]
        and best[1] > mended[1],
        FALSE,
        "Simulated: 320 prompts, a logit that is a process over the features plus an offset per prompt, 30 steps of "
        "32 prompts x 8, a quarter never observed. Treating s/n as the rate, clipped at eps, spreads the noise of 8 "
        "outcomes over all prompts, and more so for a smaller eps. With the process as the prior of counts, the error "
        "is below that of any published setting for prompts seen and unseen; over all prompts even counts alone are "
        "closer.",
    )


def overhead(_: Run) -> Finding:
    """Quote the cost of the controller."""
    timed = json.loads((RESULTS / "overhead.json").read_text())
    load = json.loads((RESULTS / "load.json").read_text())["cases"]["vip"]["17000"]
    found = Finding(
        UNTESTED,
        "The share depends on the model. The figures are milliseconds of the controller for 4,096 rollouts, and step "
        "times for a policy of .1M parameters, a worst case.",
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
          "beliefs.", VIP, predictor, "python benchmarks/beliefs.py --data DIR", quotes=True),
    Claim("gp-without-noise", "The published recursion, which treats each empirical rate as the true one, predicts "
          "success rates well.", VIP, noiseless),
    Claim("vip-overhead", "Predicting and allocating cost about 1 % of a step.", VIP, overhead,
          "python benchmarks/overhead.py", quotes=True),
]  # fmt: skip
