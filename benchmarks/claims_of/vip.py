"""VIP: gradient variance, allocation, prediction."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path

import numpy as np

import neyman
from claims_of import training
from claims_of.claim import (
    CONDITION,
    FALSE,
    HOLDS,
    OURS,
    TOLERATED,
    VIP,
    Claim,
    Finding,
    Run,
    mean_error,
    pending,
    tested,
)
from neyman.formulas import inverse_accuracy, inverse_variance, mixed_probability, relaxed_counts

RESULTS = Path(__file__).resolve().parents[1] / "results"


def gradients(
    run: Run, draws: int, p: float, n: int, estimator: str, *, correlation: float = 0.0, ddof: int = 0
):
    """Draw one prompt's group gradients G = (1/n) sum A_j Z_j, with corr(R, Z) linear in the outcome."""
    success = run.rng.random((draws, n)) < p
    reward = np.where(success, 1.0, -1.0)
    standard = (success - p) / np.sqrt(p * (1.0 - p))
    noise = run.rng.standard_normal((draws, n))
    score = correlation * standard + np.sqrt(1.0 - correlation**2) * noise
    advantage = reward - reward.mean(axis=1, keepdims=True)
    if estimator == "rloo":
        advantage *= n / (n - 1)
    if estimator == "grpo":
        deviation = reward.std(axis=1, ddof=ddof, keepdims=True)
        advantage = np.divide(advantage, deviation, out=np.zeros_like(advantage), where=deviation > 0.0)
    return (advantage * score).mean(axis=1)


def variance(sample: np.ndarray) -> tuple[float, float]:
    """Return the variance and its standard error."""
    return mean_error((sample - sample.mean()) ** 2)


def formulas(run: Run) -> Finding:
    """Simulate the gradient of one prompt."""
    found = pending()
    for estimator, p, n in product(("rloo", "dr_grpo", "grpo"), (0.1, 0.3, 0.5), (3, 8)):
        value = variance(gradients(run, run.size(100_000, 200), p, n, estimator))
        found.add(f"{estimator}, p = {p}, n = {n}", *value, float(neyman.gradient_variance(p, n, estimator)))
    return found.settle(
        found.off() < TOLERATED,
        CONDITION,
        "Exact where the score is independent of the reward; for other cases see independent-scores.",
    )


def independence(run: Run) -> Finding:
    """Correlate the score with the reward, and quote the lab's real gradients."""
    found = pending()
    for p, n in ((0.1, 4), (0.2, 4), (0.2, 8), (0.2, 16), (0.5, 4)):
        value, error = variance(gradients(run, run.size(200_000, 200), p, n, "dr_grpo", correlation=0.5))
        formula = float(neyman.gradient_variance(p, n, "dr_grpo"))
        found.add(
            f"true variance over the formula, corr(R, Z) = .5, p = {p}, n = {n}",
            value / formula,
            error / formula,
        )
    for row in json.loads((RESULTS / "gradient_variance.json").read_text())["rows"]:
        what = f"lab, {row['regime']}, n = {row['group_size']}: variance under VIP's counts over uniform's"
        found.add(what, row["measured"], row["error"], row["predicted"])
    lab = [row for row in found.figures if row[3] is not None]
    below = all(row[1] < 1.0 for row in lab)
    short = any(row[1] - row[3] > 2.0 * row[2] for row in lab)
    return found.settle(
        found.figures[0][1] > 1.5 and below and short,
        FALSE,
        "If they were independent, the expected gradient would be zero. Rewards that correlate with the score change "
        "the variance, most for hard prompts. On real gradients of the lab the formula's counts lower the variance "
        "in every regime, in the U-shaped one by clearly less than predicted.",
    )


def shrinkage(run: Run) -> Finding:
    """Compare the advantages row by row."""
    found = pending()
    sizes = run.rng.integers(2, 12, run.size(500))
    groups = np.repeat(np.arange(len(sizes)), sizes)
    rewards = run.rng.random(len(groups))
    plain, others = (neyman.group_advantages(rewards, groups, e) for e in ("dr_grpo", "rloo"))
    gap = float(np.abs(plain - others * ((sizes - 1) / sizes)[groups]).max())
    found.add(f"largest |A_DrGRPO - (n-1)/n A_RLOO| over {len(groups):,} rows", gap, None, 0.0)
    for n in (1, 2, 3, 4):
        found.add(
            f"Dr. GRPO variance / (4 p (1-p)) at n = {n}", float(neyman.gradient_variance(0.5, n, "dr_grpo"))
        )
    return found.settle(
        gap < 1e-12,
        HOLDS,
        "So the signal-to-noise ratio of a prompt is the same under both; the lower variance of small groups is "
        "shrinkage. n = 1 has zero variance because it carries no gradient: bounds below 3 (RLOO: 2) are refused.",
    )


def sample_deviation(run: Run) -> Finding:
    """Simulate GRPO with the sample deviation."""
    found = pending()
    for n in (2, 4, 8, 16):
        value = variance(gradients(run, run.size(100_000, 400), 0.05, n, "grpo", ddof=1))
        found.add(
            f"p = .05, n = {n}, sample deviation", *value, float(mixed_probability(0.05, n) * (n - 1) / n**2)
        )
    expected = [row[3] for row in found.figures]
    return found.settle(
        found.off() < TOLERATED and expected[1] > expected[0],
        HOLDS,
        "For hard prompts mix_n(p) (n-1)/n^2 first rises with n, so allocating by it would starve them; neyman "
        "allocates by the population form, as its documentation states.",
    )


def cost(weights: np.ndarray, n: np.ndarray, estimator: str) -> float:
    """Return sum a f(n)."""
    return float((weights / (n - 1) if estimator == "rloo" else weights * (n - 1) / n**2).sum())


def rounding(run: Run) -> Finding:
    """Compare published and exact counts on three built cases and on ordinary batches."""
    found = pending()
    cases = [
        ("Dr. GRPO, 31.0 and ten of 3.9", "dr_grpo", 70, 3, np.array([31.0**3 / 29.0, *[3.9**3 / 1.9] * 10])),
        ("RLOO, 31.0 and ten of 3.9", "rloo", 70, 2, np.array([900.0, *[8.41] * 10])),
        ("RLOO, 29.0 and 23 of 2.826", "rloo", 94, 2, np.array([28.0**2, *[1.826087**2] * 23])),
    ]
    gaps = []
    for name, estimator, budget, lower, a in cases:
        counts = [
            neyman.allocate(None, budget, lower, 64, estimator, spread=a, variant=v)
            for v in ("exact", "published")
        ]
        best, rounded = (cost(a, n, estimator) for n in counts)
        gaps.append(rounded / best - 1.0)
        found.add(f"{name}: excess of the published rounding", gaps[-1])
    worse, trials = 0, run.size(200)
    for _, estimator in product(range(trials), ("rloo", "dr_grpo")):
        p = run.rng.beta(0.6, 0.6, 32)
        a = p * (1.0 - p)
        best, rounded = (
            cost(a, neyman.allocate(p, 256, 3, 32, estimator, variant=v), estimator)
            for v in ("exact", "published")
        )
        worse += rounded > best * (1 + 1e-9)
    found.add(
        f"of 2 x {trials} ordinary batches (32 prompts x 8, Beta(.6, .6)), those where it is worse", worse
    )
    return found.settle(
        min(gaps) > 1e-5, FALSE, 'Optimal on ordinary batches, not always; `variant="exact"` is the default.'
    )


def exact(run: Run) -> Finding:
    """Compare with an enumeration of all counts."""
    found = pending()
    worst, below = 0.0, 0
    trials = run.size(150)
    for _ in range(trials):
        p, budget = run.rng.random(4), int(run.rng.integers(12, 33))
        for estimator in ("rloo", "dr_grpo"):
            a = p * (1 - p)
            grid = np.array([g for g in product(range(3, 9), repeat=4) if sum(g) == budget])
            every = (a / (grid - 1) if estimator == "rloo" else a * (grid - 1) / grid**2).sum(axis=1)
            counts = neyman.allocate(p, budget, 3, 8, estimator)
            worst = max(worst, cost(a, counts, estimator) / every.min() - 1.0)
            low, high = np.full(4, 3), np.full(4, 8)
            below += cost(a, relaxed_counts(a, budget, low, high, estimator), estimator) <= every.min() + 1e-9
    found.add(f"largest excess over enumeration, 2 x {trials} instances of 4 prompts", worst, None, 0.0)
    found.add("share of them where the relaxation is a lower bound", below / (2 * trials), None, 1.0)
    good = worst < 1e-9 and below == 2 * trials
    return found.settle(
        good, HOLDS, "The variance is discretely convex from the smallest legal group size on."
    )


def heuristics(run: Run) -> Finding:
    """Compare the heuristics' variance with uniform's."""
    rules = {
        "exact minimum": lambda p: neyman.allocate(p, 256, 2, 32),
        "standard deviation": lambda p: neyman.water_level(np.sqrt(p * (1.0 - p)), 256, 2, 32),
        "inverse accuracy": lambda p: inverse_accuracy(p, 256, 2, 32),
        "inverse variance": lambda p: inverse_variance(p, 256, 2, 32),
    }
    found, ratios = pending(), {name: [] for name in rules}
    for _ in range(run.size(100)):
        p = run.rng.beta(0.5, 0.5, 32)
        uniform = neyman.gradient_variance(p, 8).sum()
        for name, rule in rules.items():
            ratios[name].append(float(neyman.gradient_variance(p, rule(p)).sum() / uniform))
    for name, values in ratios.items():
        found.add(f"{name}: sum of RLOO variances over uniform's, rates known", *mean_error(values))
    best, _, accuracy, spread = (row[1] for row in found.figures)
    return found.settle(
        best < 1.0 < min(accuracy, spread),
        HOLDS,
        "True of the variance (32 prompts x 8, Beta(.5, .5), bounds 2 and 32): both heuristics are above uniform. "
        "The accuracy after training that the paper compares is another claim (vip-accuracy).",
    )


CLAIMS = [
    Claim("variance-formulas", "One prompt's gradient variance is 4 p(1-p) times 1/(n-1) (RLOO) or (n-1)/n^2 "
          "(Dr. GRPO); with the population deviation it is mix_n(p)/n (GRPO, derived here).", VIP, formulas,
          "pytest tests/formulas/test_variance.py"),
    Claim("independent-scores", "Rewards may be taken as independent of the projected scores.", VIP, independence,
          "python benchmarks/gradient_variance.py"),
    Claim("dr-grpo-is-shrunk-rloo", "Dr. GRPO's gradient is (n-1)/n times RLOO's, for every draw.", OURS, shrinkage,
          "pytest tests/formulas/test_advantage.py::test_scaled_by_n_over_n_minus_one_rloo_is_dr_grpo"),
    Claim("grpo-sample-deviation", "With the sample deviation, as in trainers, GRPO's variance is "
          "mix_n(p) (n-1)/n^2.", OURS, sample_deviation),
    Claim("published-rounding", "Rounding the relaxed counts down and adding units one by one gives the best whole "
          "counts.", VIP, rounding, "pytest tests/formulas/test_relaxation.py"),
    Claim("exact-allocation", "Giving one unit at a time to the largest gain, from the lower bounds, is optimal.", OURS,
          exact, "pytest tests/formulas/test_allocation.py"),
    Claim("prompt-weights", "Scaling advantages by (C/B)/n_q gives every prompt the mean of its own group, "
          "under the host's loss.", OURS,
          tested("The tests assert it on exact gradients for TRL's loss types. Under token means it holds up to one "
                 "scalar per batch: token sums, not means, are averaged unless `equal_tokens` is set."),
          "pytest tests/formulas/test_weights.py tests/trl/test_prompt_weights.py"),
    Claim("vip-heuristics", "Inverse accuracy and inverse variance are worse rules than least variance.", VIP,
          heuristics,
          "pytest tests/formulas/test_water.py::test_baselines_lean_the_way_their_names_say"),
    Claim("vip-weaker-policies", "Weaker policies gain more.", VIP,
          training.weaker,
          "neyman compare --strategies uniform,vip --regimes hard,ushape,easy --seeds 5 --out DIR", quotes=True),
    Claim("vip-accuracy", "Lower gradient variance gives higher accuracy at the same rollouts.", VIP,
          training.accuracy,
          "neyman compare --strategies uniform,vip,inverse-accuracy,inverse-variance --regimes hard,ushape,easy "
          "--seeds 5 --out DIR", quotes=True),
]  # fmt: skip
