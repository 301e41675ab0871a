"""Measure gradient variance under VIP's counts over uniform ones, at the lab's starting policies: RLOO, 32 prompts x 4.

At a frozen policy there is no training, and so no luck of training. ``python benchmarks/gradient_variance.py --out
FILE`` takes about two minutes of one core once the policies exist.
"""

from __future__ import annotations

import argparse
import json
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from neyman import Budget, Controller
from neyman.lab import REGIMES, Experiment, OracleBelief, Policy, build_strategy, starting_policy
from neyman.lab.experiment import play, policy_gradient
from neyman.lab.oracle import ExactRates
from neyman.lab.policy import one_thread
from neyman.lab.task import Prompts, draw_prompts
from neyman.randomness import keyed_rng

FloatP, IntP = NDArray[np.float64], NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class VarianceRatio:
    """Gradient variance under VIP's counts over that under uniform ones.

    Attributes:
        measured: the ratio.
        error: its Monte Carlo standard error.
        predicted: by the formula, from the same prompts and counts.
        uniform: E ||g - E g||^2 under uniform counts, summed over the batches of prompts.
        bias: largest |z| over both strategies and all batches of (mean gradient - exact gradient) along the
            exact gradient: an estimate that is unbiased has it below 4 or so.
    """

    measured: float
    error: float
    predicted: float
    uniform: float
    bias: float


def variance_ratio(
    policy: Policy,
    prompts: Prompts,
    *,
    experiment: Experiment,
    strategy: str = "vip-oracle",
    batches: int = 4,
    replicates: int = 60,
    seed: int = 0,
) -> VarianceRatio:
    """Measure E ||g - E g||^2 of the policy gradient under a strategy and under uniform counts, at the same prompts.

    The expectation of RLOO's gradient is known exactly, (1/B) sum_q grad p_q, because a prompt has one right
    answer: so each replicate is one unbiased measurement, and none is spent on the mean.

    Args:
        policy: stays as it is; its gradients are overwritten.
        prompts: the pool.
        experiment: its prompts, group size and estimator; RLOO alone has the expectation above.
        strategy: of fixed spend, with exact rates: "vip-oracle".
        batches: of prompts, at least 1.
        replicates: of each batch, at least 2.
        seed: keys prompts and sampling.

    Guarantee: unbiased per strategy; the ratio's error is by the delta method over replicates. It measures one
    gradient, not an optimiser's use of many.

    Cost: about 15 ms of one core a replicate and strategy.
    """
    names = (strategy, "uniform")
    variance, error2, formula, bias = (
        dict.fromkeys(names, 0.0),
        dict.fromkeys(names, 0.0),
        dict.fromkeys(names, 0.0),
        0.0,
    )
    with one_thread():
        for batch in range(batches):
            ids = keyed_rng(seed, "variance", batch).choice(len(prompts), experiment.prompts, replace=False)
            exact = exact_gradient(policy, prompts, ids)
            spread = policy.success_rates(prompts.tokens[ids], prompts.answers[ids])
            spread = spread * (1.0 - spread)
            for name in names:
                gradients, counts = _replicate(
                    policy, prompts, ids, experiment, name, replicates, seed + batch
                )
                squares = np.square(gradients - exact).sum(axis=1)
                along = (gradients - exact) @ exact / max(float(np.linalg.norm(exact)), 1e-30)
                z = along.mean() / max(float(along.std(ddof=1)) / math.sqrt(replicates), 1e-30)
                bias = max(bias, abs(float(z)))
                variance[name] += float(squares.mean())
                error2[name] += float(squares.var(ddof=1)) / replicates
                formula[name] += float((spread / (counts - 1.0)).sum())
    ratio = variance[strategy] / variance["uniform"]
    relative = sum(error2[name] / variance[name] ** 2 for name in names)
    return VarianceRatio(
        measured=ratio,
        error=ratio * math.sqrt(relative),
        predicted=formula[strategy] / formula["uniform"],
        uniform=variance["uniform"],
        bias=bias,
    )


def exact_gradient(policy: Policy, prompts: Prompts, ids: IntP) -> FloatP:
    """Return the exact expectation of `policy_gradient` under RLOO: -(1/B) sum_q grad p_q / tokens, flat."""
    policy.zero_grad()
    at = torch.from_numpy(ids)
    answers = prompts.answers[at]
    tokens = torch.cat([prompts.tokens[at], answers[:, :-1]], dim=1)
    hidden, _ = policy.read(tokens, keep=answers.shape[1])
    log_p = policy.head(hidden).log_softmax(-1).gather(-1, answers.unsqueeze(-1)).sum((1, 2))
    torch.autograd.backward(-log_p.exp().mean() / answers.shape[1])
    return _flat(policy)


def _replicate(
    policy: Policy,
    prompts: Prompts,
    ids: IntP,
    experiment: Experiment,
    name: str,
    replicates: int,
    seed: int,
) -> tuple[FloatP, IntP]:
    """Return the gradients of one batch of prompts, [replicates, parameters], and the counts in its order."""
    rates = ExactRates(policy, prompts)
    strategy = build_strategy(
        name, {}, estimator="rloo", group_size=experiment.group_size, oracle=OracleBelief(rates)
    )
    budget = Budget(rollouts=experiment.prompts * experiment.group_size)
    controller = Controller(strategy, budget, seed=seed)
    gradients, counts = [], np.zeros(len(ids), dtype=np.int64)
    for _ in range(replicates):
        controller.begin(ids.tolist())
        answers: dict[int, tuple[int, torch.Tensor]] = {}
        while not controller.is_done:
            played = play(policy, prompts, controller.ask(), experiment)
            answers |= played.answers
            controller.tell(played.outcomes)
        batch = controller.finish()
        counts = np.bincount(batch.groups, minlength=len(ids))
        policy.zero_grad()
        policy_gradient(policy, prompts, batch, answers)
        gradients.append(_flat(policy))
    return np.array(gradients), counts


def _flat(policy: Policy) -> FloatP:
    parts = [p.grad.flatten() for p in policy.parameters() if p.grad is not None]
    flat: FloatP = torch.cat(parts).double().numpy()
    return flat


def main() -> None:
    """Measure every regime and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--replicates", type=int, default=60)
    parser.add_argument("--batches", type=int, default=4)
    parser.add_argument("--group-sizes", type=int, nargs="+", default=[4])
    arguments = parser.parse_args()
    rows = []
    for regime in REGIMES:
        prompts, _ = draw_prompts(1024, 1)
        for size in arguments.group_sizes:
            experiment = Experiment(regime=regime, group_size=size)
            found = variance_ratio(
                starting_policy(experiment.warm_start),
                prompts,
                experiment=experiment,
                batches=arguments.batches,
                replicates=arguments.replicates,
            )
            rows.append(
                {
                    "regime": regime,
                    "group_size": size,
                    "measured": found.measured,
                    "error": found.error,
                    "predicted": found.predicted,
                    "bias_z": found.bias,
                }
            )
            print(
                f"{regime} n={size}: {found.measured:.3f} +- {found.error:.3f}, predicted {found.predicted:.3f}, "
                f"bias |z| <= {found.bias:.1f}",
                flush=True,
            )
    if arguments.out is not None:
        arguments.out.write_text(json.dumps({"rows": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
