"""Figures of a comparison: strategies over seeds, each at its best setting, from the runs of ``neyman compare``."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from neyman._checks import FloatP, IntP
from neyman.errors import ArgumentError
from neyman.report._stats import (
    Interval,
    accuracy_curve,
    cost_at,
    isotonic,
    known,
    mean_interval,
    paired_difference,
    value_at,
)

Setting = tuple[float, int]  # learning rate, group size
Runs = Mapping[Setting, Mapping[int, Mapping[str, Any]]]
_POINTS = 33
_ALL_RESAMPLES, _RESAMPLES, _ALL_FLIPS = 5, 10_000, 14


@dataclass(frozen=True)
class Arm:
    """One strategy in one regime."""

    name: str
    settings: tuple[Setting, ...]  # that each seed is reported at, chosen without that seed
    runs: tuple[Mapping[str, Any], ...]  # of each seed
    curves: FloatP  # accuracy over the common grid of rollouts, [seeds, points]
    table: tuple[tuple[Setting, Interval], ...]  # every setting with its final accuracy over the seeds

    def over(self, cost: str) -> list[tuple[FloatP, FloatP]]:
        """Return each seed's (cost, accuracy)."""
        return [
            (np.asarray(run["curve"][cost], float), np.asarray(run["curve"]["accuracy"], float))
            for run in self.runs
        ]


@dataclass(frozen=True)
class Regime:
    """All strategies of one regime over the same seeds."""

    name: str
    seeds: tuple[int, ...]  # those that every strategy ran at every setting
    grid: FloatP  # rollouts at which curves are compared, [points]; the last is the budget
    tokens: float  # where accuracies at equal tokens are compared: the most that every reported run has spent
    arms: Mapping[str, Arm]  # by strategy, the reference first
    reference: str  # the strategy that others are measured by
    oracle: str | None  # the ceiling; None where it was not run


def read_regimes(runs: Sequence[Mapping[str, Any]], *, reference: str, oracle: str) -> list[Regime]:
    """Sort runs into regimes and strategies, and choose each strategy's setting.

    Each seed is reported at the learning rate and group size that were best on the *other* seeds, so that the
    choice does not flatter the figures; with a single seed there are no others, and it does.

    Raises:
        ArgumentError: no runs, no run of the reference, or no seed that all strategies ran.
    """
    sorted_runs: dict[str, dict[str, dict[Setting, dict[int, Mapping[str, Any]]]]] = {}
    for one in runs:
        e = one["experiment"]
        setting = (float(e["learning_rate"]), int(e["group_size"]))
        by_setting = sorted_runs.setdefault(e["regime"], {}).setdefault(e["strategy"], {})
        by_setting.setdefault(setting, {})[int(one["seed"])] = one
    if not sorted_runs:
        raise ArgumentError("there are no complete runs to compare; finish them with --resume")
    return [_regime(name, arms, reference, oracle) for name, arms in sorted_runs.items()]


def _regime(name: str, strategies: Mapping[str, Runs], reference: str, oracle: str) -> Regime:
    if reference not in strategies:
        raise ArgumentError(
            f"the reference {reference!r} has no run in regime {name!r}; there are {', '.join(strategies)}"
        )
    by_seed = [runs for settings in strategies.values() for runs in settings.values()]
    seeds = tuple(sorted(set.intersection(*map(set, by_seed))))
    if not seeds:
        raise ArgumentError(
            f"no seed was run by every strategy and setting of regime {name!r}; finish the grid"
        )
    budget = min(float(run["experiment"]["rollouts"]) for runs in by_seed for run in runs.values())
    grid = np.linspace(0.0, budget, _POINTS)
    order = sorted(strategies, key=lambda strategy: (strategy != reference, strategy == oracle))
    arms = {strategy: _arm(strategy, strategies[strategy], seeds, grid) for strategy in order}
    tokens = min(float(run["curve"]["tokens"][-1]) for arm in arms.values() for run in arm.runs)
    return Regime(name, seeds, grid, tokens, arms, reference, oracle if oracle in arms else None)


def _arm(name: str, runs: Runs, seeds: tuple[int, ...], grid: FloatP) -> Arm:
    settings = sorted(runs)
    recorded = [[runs[setting][seed]["curve"] for seed in seeds] for setting in settings]
    curves = np.array(
        [[np.interp(grid, curve["rollouts"], curve["accuracy"]) for curve in row] for row in recorded]
    )  # [settings, seeds, points]
    final = curves[:, :, -1]
    # The mean over the other seeds: a seed that chose its own setting would be reported at its luckiest.
    others = final if len(seeds) == 1 else (final.sum(axis=1, keepdims=True) - final) / (len(seeds) - 1)
    chosen = others.argmax(axis=0)
    return Arm(
        name=name,
        settings=tuple(settings[i] for i in chosen),
        runs=tuple(runs[settings[i]][seed] for i, seed in zip(chosen, seeds, strict=True)),
        curves=curves[chosen, np.arange(len(seeds))],
        table=tuple((setting, mean_interval(final[i])) for i, setting in enumerate(settings)),
    )


def resamples(seeds: int) -> FloatP:
    """Weights of seeds in bootstrap resamples, [resamples, seeds]; the first row is the sample itself."""
    if seeds <= _ALL_RESAMPLES:
        picks: IntP = np.array(list(itertools.product(range(seeds), repeat=seeds)), dtype=np.int64)
    else:
        picks = np.random.default_rng(0).integers(seeds, size=(_RESAMPLES, seeds))
    counts = (picks[:, :, None] == np.arange(seeds)).sum(axis=1)
    return np.concatenate([np.ones((1, seeds)), counts]) / seeds


def flip_test(differences: ArrayLike) -> float:
    """Two-sided p-value of paired differences, each of which could as well have the other sign.

    Guarantee: exact where differences are symmetric about 0 under the null; with n seeds it is at least 2^(1-n).

    >>> flip_test([1.0, 2.0, 1.5])
    0.25
    """
    d = np.asarray(differences, dtype=np.float64)
    if len(d) <= _ALL_FLIPS:
        signs: NDArray[Any] = np.array(list(itertools.product((1.0, -1.0), repeat=len(d))))
    else:
        signs = np.random.default_rng(0).choice((1.0, -1.0), size=(_RESAMPLES, len(d)))
    # Sums of the same numbers in another order differ by rounding, and must count as equal.
    return float((np.abs(signs @ d) >= abs(d.sum()) - 1e-12).mean())


def summarise_regime(regime: Regime) -> dict[str, Any]:
    """Return the figures of a regime, JSON-safe: unknown numbers are None."""
    weights = resamples(len(regime.seeds))
    curves = {name: isotonic(weights @ arm.curves) for name, arm in regime.arms.items()}
    final = {name: weights @ arm.curves[:, -1] for name, arm in regime.arms.items()}
    return {
        "reference": regime.reference,
        "oracle": regime.oracle,
        "seeds": list(regime.seeds),
        "compared_at": {"rollouts": regime.grid[-1], "tokens": regime.tokens},
        "strategies": {name: _figures(regime, name, curves, final) for name in regime.arms},
    }


def _figures(
    regime: Regime, name: str, curves: Mapping[str, FloatP], final: Mapping[str, FloatP]
) -> dict[str, Any]:
    arm, reference = regime.arms[name], regime.arms[regime.reference]
    budget = float(regime.grid[-1])
    costs = {other: cost_at(regime.grid, curves[name], final[other]) for other in regime.arms}
    own, theirs = (
        dict(zip(regime.seeds, one.curves[:, -1].tolist(), strict=True)) for one in (arm, reference)
    )
    at_tokens = _at_tokens(regime, arm)
    mean = accuracy_curve(arm.over("rollouts"))
    saved = captured = None
    if regime.oracle is not None:
        target = final[regime.reference]
        # A strategy that never gets there has needed the whole budget: no saving.
        ours, base, ceiling = (
            np.minimum(cost_at(regime.grid, curves[n], target), budget)
            for n in (name, regime.reference, regime.oracle)
        )
        saved = _share(base - ours, base - ceiling)
        captured = _share(final[name] - target, final[regime.oracle] - target)
    return {
        "final_accuracy": mean_interval(list(own.values())).within(0.0, 1.0).as_dict(),
        "final_accuracy_by_seed": {str(seed): value for seed, value in own.items()},
        "difference_to_reference": _paired(own, theirs),
        "accuracy_at_equal_tokens": mean_interval(list(at_tokens.values())).within(0.0, 1.0).as_dict(),
        "difference_at_equal_tokens": _paired(at_tokens, _at_tokens(regime, reference)),
        "rollouts_to_reference": _cost(costs[regime.reference], budget),
        "share_of_reference_rollouts": _cost(costs[regime.reference] / budget, 1.0),
        "rollouts_to": {other: _cost(cost, budget) for other, cost in costs.items()},
        "oracle_saving_captured": saved,
        "oracle_gain_captured": captured,
        "setting": _setting(Counter(arm.settings).most_common(1)[0][0]),
        "setting_by_seed": {str(s): _setting(x) for s, x in zip(regime.seeds, arm.settings, strict=True)},
        "settings": [{**_setting(s), "final_accuracy": i.as_dict()} for s, i in arm.table],
        "effective_groups_per_step": mean_interval(_per_run(arm, "effective_groups")).as_dict(),
        "gradient_norm": mean_interval(_per_run(arm, "gradient_norm")).as_dict(),
        "policy_entropy": mean_interval(_per_run(arm, "entropy")).as_dict(),
        "coverage": mean_interval([run["steps"]["coverage"][-1] for run in arm.runs]).as_dict(),
        "steps": mean_interval([float(len(run["steps"]["rows"])) for run in arm.runs]).as_dict(),
        "curve": {"rollouts": mean.x.tolist(), "accuracy": mean.mean.tolist()},
    }


def _per_run(arm: Arm, name: str) -> list[float]:
    return [float(np.mean(run["steps"][name])) for run in arm.runs]


def _at_tokens(regime: Regime, arm: Arm) -> dict[int, float]:
    values = [value_at(x, y, regime.tokens) for x, y in arm.over("tokens")]
    return dict(zip(regime.seeds, values, strict=True))


def _paired(ours: dict[int, float], reference: dict[int, float]) -> dict[str, Any]:
    paired = paired_difference(ours, reference, np.random.default_rng(0))
    assert paired is not None  # a regime's strategies share their seeds
    low, high = paired.bootstrap
    return {
        **paired.interval.as_dict(),
        "bootstrap_low": known(low),
        "bootstrap_high": known(high),
        "p_value": flip_test(paired.differences) if len(paired.seeds) > 1 else None,
        "wins": int((paired.differences > 0.0).sum()),
        "seeds": len(paired.seeds),
    }


def _cost(costs: FloatP, budget: float) -> dict[str, Any]:
    """Cost of the sample with the bootstrap's interval; beyond the budget it is a bound, without interval."""
    if not np.isfinite(costs[0]):
        return {"mean": budget, "low": None, "high": None, "censored": True}
    low, high = _quantiles(costs[1:])
    return {"mean": float(costs[0]), "low": low, "high": high, "censored": False}


def _share(part: FloatP, whole: FloatP) -> dict[str, Any]:
    """Part over whole with the bootstrap's interval; none where the whole is not clearly above 0."""
    if whole[0] <= 0.0:
        return {"mean": None, "low": None, "high": None}
    mean = float(part[0] / whole[0])
    if (whole[1:] <= 0.0).mean() > 0.025:
        return {"mean": mean, "low": None, "high": None}
    low, high = _quantiles(part[1:][whole[1:] > 0.0] / whole[1:][whole[1:] > 0.0])
    return {"mean": mean, "low": low, "high": high}


def _quantiles(values: FloatP) -> tuple[float | None, float | None]:
    if len(values) < 2 or not np.ptp(np.where(np.isfinite(values), values, 0.0)) > 0.0:
        return None, None
    low, high = np.quantile(values, [0.025, 0.975], method="inverted_cdf")
    return known(float(low)), known(float(high))


def _setting(setting: Setting) -> dict[str, Any]:
    return {"learning_rate": setting[0], "group_size": setting[1]}
