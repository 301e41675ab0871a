"""SARA: verdicts on prefixes."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import neyman
from claims_of.claim import (
    CONDITION,
    FALSE,
    HOLDS,
    SARA,
    TOLERATED,
    UNTESTED,
    Claim,
    Finding,
    Run,
    mean_error,
    pending,
    ratio_error,
    tested,
    untested,
)
from neyman.formulas import expected_rollouts, signal_kept, yield_condition

K, N, TAU = 8, 4, 0.45
KEPT = {0.05: 0.58, 0.1: 0.65, 0.2: 0.76, 0.3: 0.84, 0.5: 0.90}


def groups(run: Run, p: np.ndarray, k: int, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the successes among the first n rollouts and among all k, for one group per rate."""
    first = run.rng.binomial(n, p)
    return first, first + run.rng.binomial(k - n, p)


def pure(successes: np.ndarray, n: int) -> np.ndarray:
    """Return a mask of the groups whose n rollouts have equal outcomes."""
    return (successes == 0) | (successes == n)


def chance(run: Run) -> Finding:
    """Complete pure prefixes by simulation."""
    found = pending()
    for a, b in ((1.0, 1.0), (0.5, 2.0)):
        first, all_ = groups(run, run.rng.beta(a, b, run.size(300_000, 500)), K, N)
        for s in (0, N):
            formula = float(neyman.effective_probability(s, N, K, (a, b)))
            value = mean_error(~pure(all_[first == s], K))
            found.add(f"Beta({a:g}, {b:g}), {s} of {N}: chance to be mixed by {K}", *value, formula)
    return found.settle(
        found.off() < TOLERATED,
        HOLDS,
        "The uniform prior gives (k-n)/(k+1); other priors a product (derived here).",
    )


def misses(run: Run) -> Finding:
    """Count abandoned groups that would have become mixed, under three true distributions."""
    found = pending()
    rates = []
    for a in (1.0, 2.0, 0.5):
        first, all_ = groups(run, run.rng.beta(a, a, run.size(300_000, 500)), K, N)
        rates.append(mean_error(~pure(all_[pure(first, N)], K)))
        found.add(f"truth Beta({a:g}, {a:g}): P(mixed by 8 given abandoned at 4)", *rates[-1],
                  float(neyman.effective_probability(0, N, K, (a, a))))  # fmt: skip
    p = np.linspace(0.0, 1.0, 2001)
    given = 1.0 - (p**K + (1.0 - p) ** K) / (p**N + (1.0 - p) ** N)
    found.add(f"worst single rate, p = {p[given.argmax()]:g}", float(given.max()), None, 1.0 - 0.5 ** (K - N))
    good = found.off() < TOLERATED and rates[0][0] < TAU + 4 * rates[0][1] and rates[1][0] > TAU
    return found.settle(
        good,
        CONDITION,
        f"True on average under the assumed prior (uniform, threshold {TAU}), pooled over both directions unless the "
        "prior is symmetric. There is no such bound under another true distribution, nor for a single prompt. neyman "
        "calibrates the prior, and measures the realised rate without a further rollout.",
    )


def rollouts(run: Run) -> Finding:
    """Count the rollouts of probed prompts."""
    found = pending()
    for a, k, n in ((1.0, 8, 4), (0.3, 8, 3), (1.0, 16, 9)):
        first = run.rng.binomial(n, run.rng.beta(a, a, run.size(200_000, 500)))
        spent = np.where(pure(first, n), n, k)
        found.add(f"Beta({a:g}, {a:g}), k = {k}, abandoned at {n}", *mean_error(spent),
                  float(expected_rollouts(k, n, prior=(a, a))))  # fmt: skip
    return found.settle(
        found.off() < TOLERATED, HOLDS, "The mean is k - (k-n) E[p^n + (1-p)^n], less than k."
    )


def savings(_: Run) -> Finding:
    """Compare group sizes at a fixed threshold and at a fixed probe."""
    found = pending()
    fixed_threshold, fixed_probe = [], []
    for k in (4, 8, 16, 32):
        n, _wins = neyman.abandon_index(k, TAU)
        fixed_threshold.append(1.0 - float(expected_rollouts(k, n, prior=(1.0, 1.0))) / k)
        fixed_probe.append(1.0 - float(expected_rollouts(k, 2, prior=(1.0, 1.0))) / k)
        found.add(
            f"k = {k}, threshold {TAU} (probe {n}): relative saving per probed prompt", fixed_threshold[-1]
        )
    for k, saving in zip((4, 8, 16, 32), fixed_probe, strict=True):
        found.add(f"k = {k}, probe 2: the same", saving)
    saturated = []
    for k in (4, 8, 16, 32):
        saturated.append(k - float(expected_rollouts(k, neyman.abandon_index(k, TAU), success_rate=0.01)))
        found.add(f"k = {k}, threshold {TAU}, p = .01: rollouts saved per probed prompt", saturated[-1])
    good = bool(
        np.all(np.diff(saturated) > 0)
        and np.all(np.diff(fixed_threshold) < 0)
        and np.all(np.diff(fixed_probe) > 0)
    )
    return found.settle(
        good,
        CONDITION,
        "True at a fixed probe, and of the rollouts saved on saturated prompts; at a fixed threshold the relative "
        "saving falls (uniform prior).",
    )


def more_groups(run: Run) -> Finding:
    """Count effective groups per rollout, with verdicts and without."""
    found = pending()
    verdicts = {}
    settings = [("uniform prior", None, 1.0), ("every prompt p = .1", 0.1, None), ("every prompt p = .5", 0.5, None),
                ("Beta(.5, .5)", None, 0.5), ("Beta(.3, .3)", None, 0.3)]  # fmt: skip
    for name, rate, a in settings:
        size = run.size(300_000, 500)
        p = np.full(size, rate) if rate is not None else run.rng.beta(a, a, size)
        first, all_ = groups(run, p, K, N)
        probed, full = ~pure(first, N), ~pure(all_, K)
        cost = np.where(probed, K, N)
        value, error = ratio_error(probed, cost)
        base, base_error = mean_error(full / K)
        check = (
            yield_condition(K, N, success_rate=[rate])
            if rate is not None
            else yield_condition(K, N, prior=(a, a))
        )
        # Both come from the same draws and are positively correlated: adding variances errs on the safe side.
        found.add(f"{name}: effective groups per rollout, verdicts over full groups", value / base,
                  value / base * np.hypot(error / value, base_error / base), check.relative_yield)  # fmt: skip
        verdicts[name] = check.holds
    low, high = 0.5, 1.0
    for _ in range(40):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if yield_condition(K, N, prior=(middle, middle)).holds else (low, middle)
    found.add("largest a with more groups under Beta(a, a)", low)
    every = any(yield_condition(K, N, success_rate=[p]).holds for p in np.linspace(0.001, 0.999, 999))
    found.add("rates of 999 for which a pool of one rate gains", float(every))
    good = (
        found.off() < TOLERATED and list(verdicts.values()) == [False, False, False, True, True] and not every
    )
    return found.settle(
        good,
        CONDITION,
        "True exactly if odds(f')/odds(f) >= n/k, with f the share of groups mixed by k and f' by n: false under "
        "SARA's own uniform prior and for any pool of one rate, true of U-shaped difficulty. neyman warns where it "
        "fails.",
    )


def kept(run: Run) -> Finding:
    """Sum s (k-s) over the groups that survive."""
    found = pending()
    for p in KEPT:
        first, all_ = groups(run, np.full(run.size(200_000, 500), p), K, N)
        signal = all_ * (K - all_)
        value = ratio_error(signal * ~pure(first, N), signal)
        found.add(f"p = {p}: share of E[s (k-s)] kept", *value, float(signal_kept(p, K, N)))
    return found.settle(
        found.off() < TOLERATED and found.figures[0][1] < 0.8,
        FALSE,
        "Abandoned groups would have carried signal, most of it for hard and for easy prompts. Dynamic sampling "
        "keeps a share of 1.",
    )


def real_pool(run: Run) -> Finding:
    """Plan on recorded pass counts."""
    from neyman.replay import CountDifficulty, plan, read_logs

    path = Path(run.data or "") / "deepscaler_pass_counts.parquet"
    if run.data is None or not path.exists():
        return Finding(UNTESTED, "Give --data DIR with pass counts.")
    found = pending()
    trace, _, _ = read_logs([path])
    sizes = (4, 8, 16, 32)
    plans = {k: plan(CountDifficulty(trace.successes, trace.trials), k, threshold=TAU) for k in sizes}
    for k, one in plans.items():
        for way, words in (("sara", f"given up at {one.ways['sara'].probe} (threshold {TAU})"),
                           ("best probe", f"given up at {one.ways['best probe'].probe} (best)"),
                           ("perfect choice", "ceiling, every group mixed")):  # fmt: skip
            saving = one.ways[way].saving
            # planned intervals are of 95 %, over prompts
            found.add(f"k = {k}, {words}: saving", saving.mean, (saving.high - saving.low) / 3.92)
    best = [one.ways["best probe"].saving.mean for one in plans.values()]
    ceilings = [one.ways["perfect choice"].saving.mean for one in plans.values()]
    return found.settle(
        best == sorted(best) and best[1] < 0.15 < best[3] < 0.22 and max(ceilings) < 0.67,
        CONDITION,
        "On the pass counts of DeepScaleR's prompts, a saving near 22 % takes groups of 32 and a short probe. 67 % is "
        "above the ceiling of k rollouts per effective group at any of these sizes: it needs a pool where at most a "
        "third of the groups are mixed. The difficulty of the papers' own pools is not known.",
    )


def energy(run: Run) -> Finding:
    """Compare the gradient's energy with its expectation."""
    found = pending()
    worst, k = 0.0, K
    for s in range(1, k):
        a = neyman.group_advantages([1.0] * s + [0.0] * (k - s), [0] * k, ddof=0, eps=0.0)
        worst = max(worst, abs(float((a**2).sum()) - k))
    found.add("largest |sum A^2 - k| over mixed groups of 8", worst, None, 0.0)
    draws = run.size(20_000, 200)
    for correlation in (0.0, 0.5):
        success = run.rng.random((draws, k)) < 0.3
        a = np.where(success, 1.0, -1.0)
        deviation = a.std(axis=1, keepdims=True)
        a = np.divide(
            a - a.mean(axis=1, keepdims=True), deviation, out=np.zeros_like(a), where=deviation > 0
        )[deviation[:, 0] > 0]
        outcome = ((success - 0.3) / np.sqrt(0.21))[deviation[:, 0] > 0]
        score = correlation * outcome + np.sqrt(1 - correlation**2) * run.rng.standard_normal(a.shape)
        gradient = (a * score).mean(axis=1)
        found.add(f"mixed groups, corr(R, Z) = {correlation}: E[G^2] (k = 8)", *mean_error(gradient**2))
        found.add("the same groups: E[G]", *mean_error(gradient), 0.0 if correlation == 0.0 else None)
    good = worst < 1e-9 and found.off() < TOLERATED and found.figures[1][1] > 0.05
    return found.settle(
        good,
        CONDITION,
        "True of the gradient's energy, noise included. But groups may be mixed while the expected gradient is zero "
        "(scores independent of the reward): the number of effective groups bounds no learning.",
    )


CLAIMS = [
    Claim("sara-chance", "A pure prefix of n becomes mixed by k with the Beta-binomial chance.", SARA, chance,
          "pytest tests/formulas/test_verdict.py"),
    Claim("sara-miss-rate", "At most tau of the abandoned groups would have become effective.", SARA, misses,
          "pytest tests/formulas/test_verdict.py::test_beta_2_2_truth_misses_with_618_at_045"),
    Claim("sara-rollouts", "A probed prompt costs fewer than k rollouts on average.", SARA, rollouts,
          "pytest tests/formulas/test_verdict.py::test_cost_and_signal_equal_an_enumeration_of_all_sequences"),
    Claim("sara-larger-groups", "Larger groups save more.", SARA, savings,
          "pytest tests/formulas/test_verdict.py"),
    Claim("sara-more-groups", "At equal budget there are more effective groups than under uniform allocation.", SARA,
          more_groups, "neyman plan --beta 1 1"),
    Claim("sara-signal", "No useful signal is thrown away.", SARA, kept,
          "pytest tests/formulas/test_verdict.py::test_signal_kept_at_eight_and_four"),
    Claim("sara-real-pool", "22 % fewer rollouts than dynamic sampling, 67 % with prompts ordered by a predictor.",
          SARA, real_pool, "neyman plan DIR/deepscaler_pass_counts.parquet"),
    Claim("sara-rounds", "Two to four rounds fill a step.", SARA,
          tested("The tests assert it for U-shaped prompts with over-provision, which neyman sets from the effective "
                 "rate."),
          "pytest tests/rules/test_audit.py::test_a_step_takes_two_to_four_rounds_on_u_shaped_prompts"),
    Claim("sara-gradient-norm", "The number of effective groups bounds the expected squared gradient norm from below.",
          SARA, energy),
    Claim("sara-tokens", "The saving in tokens is larger than in rollouts.", SARA,
          untested("Holds where failures are longer than successes, which depends on the model. The lab charges wrong "
                   "answers more tokens by a flag (`--failure-tokens`; 16 is four times a right answer) and reports "
                   "accuracy at equal rollouts and at equal tokens: the claim is that `sara` gains on "
                   "`dynamic-sampling` from the first to the second. No comparison in benchmarks/results has both "
                   "strategies with that flag. `neyman replay` answers it for a log that has token counts."),
          "neyman compare --strategies uniform,dynamic-sampling,sara --failure-tokens 16 --seeds 5 --out DIR"),
    Claim("sara-shift", "The share of effective groups stays near 1 while a predictor's falls when the policy "
          "shifts.", SARA,
          untested("`sara` trains mixed groups by construction, so the first half is true of any run. The second is "
                   "about the effective groups per step of strategies that predict (`dps`, `mopps`), with the weights "
                   "moved at random beside the training (`--drift`, in learning rates a step) and without. No "
                   "comparison in benchmarks/results has these with that flag."),
          "neyman compare --strategies uniform,sara,dps,mopps --drift 0.3 --seeds 5 --out DIR"),
    Claim("sara-estimators", "PPO, GRPO, RLOO and REINFORCE++ all gain.", SARA,
          untested("The lab's table is for RLOO. GRPO, Dr. GRPO and REINFORCE++ have a flag (`--estimator`), each a "
                   "comparison of its own that has to be run; the claim is that `sara` is ahead of `uniform` and "
                   "`dynamic-sampling` at equal rollouts under each. The lab has no critic, hence no PPO; verl has "
                   "one, and testing it would take a run on a verl cluster."),
          "neyman compare --strategies uniform,dynamic-sampling,sara --estimator grpo --seeds 5 --out DIR"),
]  # fmt: skip
