"""Measure the effect of strategies on a prompt's expected gradient, by its success rate p.

    python benchmarks/gradient_bias.py --out gradient_bias.json

The real controller with scripted outcomes: Bernoulli rewards, fixed rates, RLOO, equal prompt weights.

Statistic: a prompt's part of the batch's gradient is sum_i a_i z_i over its rows, a_i the advantage times the weight
of row i and z_i its score. Decisions see rewards alone, so given all rewards z_i has mean g/p after a success and
-g/(1-p) after a failure, g = E[r z] being the prompt's gradient, and the expected part is
g sum_i a_i (r_i - p) / (p(1-p)). So for every policy and in every direction a strategy multiplies a prompt's expected
gradient by the number E[sum_i a_i (r_i - p)] / (p(1-p)), and this script measures that number. (Rewards other than 0
and 1, or decisions that see lengths, would need another statistic.)

- `ratio`: the 32 prompts are the whole pool and all are opened; a_i is scaled so that the ratio is 1.0
  where counts do not depend on outcomes. At the first step, and after `HISTORY` steps.
- `noise`: E[sum_i a_i^2] there, over that of `uniform`: the noise from scores that are independent between rollouts.
- `weight`: prompts are chosen from a larger pool; a_i as in the batch, summed over prompts of one rate, and
  scaled so that weights that do not depend on p are 1.0. `opened` and `rollouts`: the same for groups opened and for
  rollouts, relative to those of each prompt under `uniform`.

Errors are standard errors over seeds. Takes about four minutes of one core.
"""

from __future__ import annotations

import argparse
import json
import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import neyman

Floats = NDArray[np.float64]

RATES = (0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9, 0.95)
PROMPTS, SIZE = 32, 4  # brought by the host in a step; rollouts of each on average
HISTORY = 4
POOL, STEPS = 256, 16  # where prompts are chosen; the first half of the steps only trains the belief


@dataclass(frozen=True, kw_only=True)
class Case:
    """A strategy to measure.

    Attributes:
        preset: its name.
        options: options of the preset.
        closed: options that differ where all prompts are opened.
        size: rollouts of each prompt on average, where all prompts are opened.
        scaled: whether each group is multiplied by `probe_factors`.
    """

    preset: str
    options: dict[str, Any] = field(default_factory=dict)
    closed: dict[str, Any] = field(default_factory=dict)
    size: int = SIZE
    scaled: bool = False

    def controller(self, seed: int, *, pool: int | None) -> neyman.Controller:
        """Return the controller; without a pool it opens the prompts that the host brings."""
        options = self.options if pool else {**self.options, **self.closed}
        strategy = neyman.preset(self.preset, **options).with_options(estimator="rloo")
        fills = strategy.close == "fixed_train"
        rows = PROMPTS * (SIZE if pool else self.size)
        return neyman.Controller(
            strategy,
            # Without a pool the budget pays for all groups in full: no group waits for budget.
            neyman.Budget(rollouts=rows * (4 if fills and pool else 1)),
            train_rows=rows if fills else None,
            pool=range(pool) if pool else None,
            seed=seed,
            fill="none",
        )


CASES: dict[str, Case] = {
    "uniform": Case(preset="uniform"),
    "vip": Case(preset="vip", options={"lower": 2}),
    "vip, probe of 2": Case(preset="vip", options={"lower": 2, "probe": 2}),
    "sara": Case(preset="sara", options={"group_size": SIZE}),
    "neyman": Case(preset="neyman", closed={"prompts": 1.0}),
    "neyman, full groups": Case(preset="neyman", options={"group_size": SIZE}),
    "neyman, probes alone": Case(
        preset="neyman", options={"prompts": SIZE / 2}, closed={"prompts": 1.0}, size=2
    ),
    "neyman, scaled to its probes": Case(preset="neyman", closed={"prompts": 1.0}, scaled=True),
}


def probe_factors(batch: neyman.Batch, probe: int = 2) -> Floats:
    """Return the factor per row that gives each group the reward variance of its probe, in place of all its rows.

    With it the statistic of a group is its probe's variance, whose mean is p(1-p) whatever is decided afterwards:
    the ratio is exactly 1 for binary rewards, and the rows after the probe only smooth the direction.
    """
    factors = np.ones(len(batch))
    for group in np.unique(batch.groups):
        rows = np.flatnonzero(batch.groups == group)
        rewards = batch.rewards[rows]
        if (spread := rewards.var(ddof=1)) > 0:
            factors[rows] = rewards[:probe].var(ddof=1) / spread
    return factors


def play(
    controller: neyman.Controller, ids: list[int], rates: Floats, rng: np.random.Generator
) -> neyman.Batch:
    """Run a step and return its batch."""
    controller.begin(ids)
    while not controller.is_done:
        pairs = [(rollout, q.prompt_id) for q in controller.ask() for rollout in q.rollout_ids]
        controller.tell(
            neyman.Outcome(rollout_id=rollout, prompt_id=owner, reward=float(draw < rates[int(owner)]))
            for (rollout, owner), draw in zip(pairs, rng.random(len(pairs)).tolist(), strict=True)
        )
    return controller.finish()


def parts(batch: neyman.Batch, rates: Floats, *, scaled: bool) -> tuple[Floats, Floats]:
    """Return sum_i a_i (r_i - p) / (p(1-p)) and sum_i a_i^2 of every prompt; 0 for prompts that do not train."""
    owner = np.array(batch.prompt_ids, dtype=np.int64)
    factors = batch.advantages * batch.weights / max(len(batch), 1)
    if scaled:
        factors = factors * probe_factors(batch)
    centred = (batch.rewards - rates[owner]) / (rates[owner] * (1.0 - rates[owner]))
    sums = [np.bincount(owner, values, len(rates)) for values in (factors * centred, factors**2)]
    return sums[0], sums[1]


def opened_alike(case: Case, seed: int, *, history: int = HISTORY) -> Iterator[tuple[Floats, Floats]]:
    """Yield a prompt's gradient over its true one and its noise, by rate, at the first step and after ``history``."""
    rates = np.repeat(RATES, PROMPTS // len(RATES))
    controller, rng = case.controller(seed, pool=None), np.random.default_rng([seed, 1])
    for step in range(history + 1):
        batch = play(controller, list(range(PROMPTS)), rates, rng)
        if step in (0, history):
            groups = len(np.unique(batch.groups))  # the batch's gradient is the mean over them
            gradient, noise = parts(batch, rates, scaled=case.scaled)
            yield by_rate(gradient * groups), by_rate(noise * groups**2)


def chosen(case: Case, seed: int) -> dict[str, Floats]:
    """Return a prompt's weight in the batch, its openings and its rollouts, by rate, relative to uniform's."""
    rates = np.repeat(RATES, POOL // len(RATES))
    controller, rng = case.controller(seed, pool=POOL), np.random.default_rng([seed, 2])
    weight, opened, rollouts = np.zeros((3, POOL))
    order: list[int] = []
    for step in range(STEPS):
        order = order or rng.permutation(POOL).tolist()
        ids, order = order[:PROMPTS], order[PROMPTS:]
        batch = play(controller, ids, rates, rng)
        if step < STEPS // 2:
            continue
        weight += parts(batch, rates, scaled=case.scaled)[0]
        for report in controller.group_reports:
            opened[int(report.prompt_id)] += 1.0 / PROMPTS
            rollouts[int(report.prompt_id)] += report.rollouts / (PROMPTS * SIZE)
    scale = POOL / (STEPS - STEPS // 2)
    return {
        name: by_rate(scale * values)
        for name, values in (("weight", weight), ("opened", opened), ("rollouts", rollouts))
    }


def by_rate(values: Floats) -> Floats:
    """Return the mean over prompts of each rate."""
    return values.reshape(len(RATES), -1).mean(1)


def summary(runs: list[Floats]) -> dict[str, list[float]]:
    """Return mean and standard error over seeds, by rate."""
    array = np.stack(runs)
    return {
        "mean": array.mean(0).tolist(),
        "error": (array.std(0, ddof=1) / np.sqrt(len(array))).tolist(),
    }


def measure(case: Case, seeds: int, pool_seeds: int) -> dict[str, Any]:
    """Return every figure of a case; ``noise`` is not yet relative to uniform's."""
    first, later = zip(*(opened_alike(case, seed) for seed in range(seeds)), strict=True)
    pooled = [chosen(case, seed) for seed in range(pool_seeds)]
    return {
        "ratio": summary([ratio for ratio, _ in first]),
        "ratio_later": summary([ratio for ratio, _ in later]),
        "noise": np.mean([noise for _, noise in first], axis=0).tolist(),
        **{name: summary([run[name] for run in pooled]) for name in pooled[0]},
    }


def main() -> None:
    """Measure every case, print and write."""
    parser = argparse.ArgumentParser(description="Effect of strategies on a prompt's expected gradient.")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=800, help="where all prompts are opened")
    parser.add_argument("--pool-seeds", type=int, default=40, help="where prompts are chosen")
    options = parser.parse_args()
    # The logger warns of zero-variance groups; here many groups have zero variance by design.
    logging.getLogger("neyman").setLevel(logging.ERROR)
    cases = {}
    for name, case in CASES.items():
        cases[name] = found = measure(case, options.seeds, options.pool_seeds)
        for kind in ("ratio", "ratio_later", "weight", "opened", "rollouts"):
            means, errors = found[kind]["mean"], found[kind]["error"]
            print(
                f"{name}, {kind}:",
                *(f"{m:.2f}+-{e:.2f}" for m, e in zip(means, errors, strict=True)),
                flush=True,
            )
    uniform = np.array(cases["uniform"]["noise"])
    for found in cases.values():
        found["noise"] = (found["noise"] / uniform).tolist()
    result = {
        "command": "python benchmarks/gradient_bias.py --out gradient_bias.json",
        "rates": RATES,
        "prompts": PROMPTS,
        "size": SIZE,
        "history": HISTORY,
        "seeds": options.seeds,
        "pool": POOL,
        "pool_steps": [STEPS // 2 + 1, STEPS],
        "pool_seeds": options.pool_seeds,
        "cases": cases,
    }
    options.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
