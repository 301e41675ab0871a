"""Figures of a replay: means over seeds with their intervals, JSON-safe."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from neyman.report._stats import known, mean_interval

# Figure -> its range.
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


def summarise_strategy(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return one strategy's figures over its seeds.

    Name -> {"mean", "low", "high"}; None where unknown, bounds None with one seed. ``fates`` holds shares of the
    rollouts. ``waste_factor`` is ``waste_factor_full`` where all trained groups have the full size, else
    ``waste_factor_any``; ``waste_factor_counts`` names the choice.
    """
    entry: dict[str, Any] = {
        name: _mean([run[name] for run in runs], bounds) for name, bounds in FIGURES.items()
    }
    names = list(dict.fromkeys(fate for run in runs for fate in run["fates"]))
    entry["fates"] = {
        fate: _mean([run["fates"].get(fate, 0) / max(run["rollouts"], 1.0) for run in runs], (0.0, 1.0))
        for fate in names
    }
    counts = "full" if all(run["trains_full_groups"] for run in runs) else "any"
    entry["waste_factor"], entry["waste_factor_counts"] = entry[f"waste_factor_{counts}"], counts
    entry["stop_reasons"] = _added(run["stop_reasons"] for run in runs)
    entry["group_sizes"] = _added(run["group_sizes"] for run in runs)
    return entry


def _mean(values: Sequence[float | None], bounds: tuple[float, float]) -> dict[str, float | None]:
    """Mean over seeds with Student's interval within bounds, JSON-safe; unknown values are left out.

    Unlike `Interval.as_dict` it keeps an interval without width: a replay of one record may well give a figure that
    no seed changes.
    """
    interval = mean_interval([np.nan if value is None else value for value in values]).within(*bounds)
    return {name: known(getattr(interval, name)) for name in ("mean", "low", "high")}


def _added(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total = Counter[str]()
    for one in counts:
        total.update(one)
    return dict(sorted(total.items(), key=lambda item: (len(item[0]), item[0])))
