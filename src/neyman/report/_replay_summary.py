"""The figures of a replay: means over seeds with their intervals, JSON-safe."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from neyman.report._stats import Interval, mean_interval

# Figure -> where it can lie.
FIGURES: dict[str, tuple[float, float]] = {
    "effective_ratio": (0.0, 1.0),
    "effective_of_opened": (0.0, 1.0),
    "effective_groups_per_1000_rollouts": (0.0, np.inf),
    "effective_groups_per_million_tokens": (0.0, np.inf),
    "waste_factor_any": (1.0, np.inf),
    "waste_factor_full": (1.0, np.inf),
    "signal_kept": (0.0, 1.0),
    "miss_rate": (0.0, 1.0),
    "sum_v_over_n": (0.0, np.inf),
    "coverage": (0.0, 1.0),
    "max_revisit_gap": (0.0, np.inf),
    "staleness": (0.0, np.inf),
    "rounds_per_step": (0.0, np.inf),
    "group_size_mean": (0.0, np.inf),
    "log_loss": (0.0, np.inf),
    "log_loss_first": (0.0, np.inf),
    "log_loss_later": (0.0, np.inf),
    "brier": (0.0, 1.0),
    "ece": (0.0, 1.0),
    "rollouts": (0.0, np.inf),
    "tokens": (0.0, np.inf),
    "steps": (0.0, np.inf),
    "passes": (0.0, np.inf),
    "beyond_share": (0.0, 1.0),
}


def interval_over(values: Sequence[float | None], where: tuple[float, float]) -> Interval:
    """Return the mean of a figure over seeds with Student's interval; unknown ones are left out."""
    known = [np.nan if value is None else value for value in values]
    return mean_interval(known).within(*where)


def summarise_strategy(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return one strategy's figures over its seeds.

    Args:
        runs: the figures of each seed.

    Returns:
        Name -> {"mean", "low", "high"}; None where unknown, bounds None with one seed. ``fates`` holds shares
        of the rollouts. ``waste_factor`` is ``waste_factor_full`` where groups of the full size are what is
        trained, else ``waste_factor_any``; ``waste_factor_counts`` says which.
    """
    entry: dict[str, Any] = {
        name: as_json(interval_over([run[name] for run in runs], where)) for name, where in FIGURES.items()
    }
    names = list(dict.fromkeys(fate for run in runs for fate in run["fates"]))
    entry["fates"] = {
        fate: as_json(
            interval_over([run["fates"].get(fate, 0) / max(run["rollouts"], 1.0) for run in runs], (0.0, 1.0))
        )
        for fate in names
    }
    counts = "full" if all(run["trains_full_groups"] for run in runs) else "any"
    entry["waste_factor"], entry["waste_factor_counts"] = entry[f"waste_factor_{counts}"], counts
    entry["stop_reasons"] = _added(run["stop_reasons"] for run in runs)
    entry["group_sizes"] = _added(run["group_sizes"] for run in runs)
    return entry


def _added(counts: Any) -> dict[str, int]:
    total: dict[str, int] = {}
    for one in counts:
        for name, count in one.items():
            total[name] = total.get(name, 0) + count
    return dict(sorted(total.items(), key=lambda item: (len(item[0]), item[0])))


def as_json(interval: Interval) -> dict[str, float | None]:
    """Return an interval; None where unknown."""
    return {
        "mean": _known(interval.mean),
        "low": _known(interval.low),
        "high": _known(interval.high),
    }


def _known(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
