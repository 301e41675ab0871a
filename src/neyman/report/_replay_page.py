"""Page of a replay: advice, pictures with their numbers, and the limits of a replay."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from neyman.report._calibration import CalibrationBins, calibration_bins
from neyman.report._figures import draw_intervals, draw_over_passes
from neyman.report._format import number, plural
from neyman.report._looks import Look, fate_order, looks
from neyman.report._pictures import calibration_picture, fate_pictures
from neyman.report._svg import Picture, picture
from neyman.report._templates import fill

REFERENCE = "uniform"


def replay_page(summary: Mapping[str, Any]) -> str:
    """Return the page of a summary as text; the same summary gives the same bytes with the same matplotlib."""
    strategies, options, found = summary["strategies"], summary["options"], summary["found"]
    styles = looks(strategies, REFERENCE)
    fates = {
        name: {fate: round(1e6 * entry["mean"]) for fate, entry in s["fates"].items() if entry["mean"]}
        for name, s in strategies.items()
    }
    calibrations = _calibrations(summary["calibration"])
    return fill(
        "replay.html.j2",
        title=f"Replay of {found['rollouts']:,} recorded rollouts",
        description=summary["advice"],
        facts=[
            plural(found["prompts"], "prompt"),
            f"{number(found['visits'])} recorded groups",
            f"groups of {options['group_size']}",
            f"{options['prompts_per_step']:,} prompts a step",
            f"{options['passes']:.1f} passes",
            plural(len(summary["seeds"]), "seed"),
        ],
        summary=summary,
        strategies=strategies,
        marked={
            f"{name} *" if s["waste_factor_counts"] == "any" else name: s for name, s in strategies.items()
        },
        looks=styles,
        calibrations=calibrations,
        fates=fate_order(fates.values()),
        pictures={
            **_interval_pictures(summary, styles),
            **fate_pictures(fates, row_height=0.42),
            **({"calibration": calibration_picture(calibrations, styles)} if calibrations else {}),
        },
    )


def _calibrations(bins: Mapping[str, Any]) -> dict[str, CalibrationBins]:
    """Calibrations from bins of (rollouts, sum of predictions, successes); one bin alone is a prior, and left out."""
    found = {name: calibration_bins(*np.asarray(table, dtype=np.float64).T) for name, table in bins.items()}
    return {name: one for name, one in found.items() if (one.trials > 0).sum() > 1}


def _interval_pictures(summary: Mapping[str, Any], styles: Mapping[str, Look]) -> dict[str, Picture]:
    strategies, series, k = summary["strategies"], summary["series"], summary["options"]["group_size"]
    height = 1.1 + 0.36 * len(strategies)

    def intervals(name: str, caption: str, figure: str, label: str, mark: float | None = None) -> Picture:
        entries = {strategy: s[figure] for strategy, s in strategies.items()}
        data = {"entries": entries, "looks": styles, "label": label, "mark": mark}
        return picture(name, caption, draw_intervals, (5.2, height), **data)

    return {
        "per_1000": intervals(
            "per-1000",
            "Effective groups per 1,000 rollouts",
            "effective_groups_per_1000_rollouts",
            f"effective groups; dotted: all of {k} mixed",
            1000.0 / k,
        ),
        "over_passes": picture(
            "over-passes",
            "Effective groups per 1,000 rollouts, over the record",
            draw_over_passes,
            series=series["effective_groups_per_1000_rollouts"],
            at=series["passes"],
            looks=styles,
            label="effective groups",
        ),
        "signal_kept": intervals(
            "signal-kept", "Signal kept by verdicts", "signal_kept", "share of the sum of s (k - s)", 1.0
        ),
        "gaps": intervals(
            "gaps",
            "Longest time without an opening, of any prompt",
            "max_revisit_gap",
            "passes over the prompts",
        ),
    }
