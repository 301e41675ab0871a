"""Report of a replay: one self-contained page and one JSON file, from plain data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from neyman.report._replay_advice import advice
from neyman.report._replay_page import replay_page
from neyman.report._replay_summary import summarise_strategy
from neyman.report._templates import write_report_files

CANNOT_KNOW = (
    "Replay cannot know final accuracy: the recorded policy drifted as its own run trained it, and would have drifted "
    "otherwise under another strategy. It judges prediction and spending on what was recorded."
)
_POINTS = 24  # of the curves over passes

ReplayedRun = tuple[str, int, Mapping[str, Any]]  # strategy, seed, figures


def replay_summary(
    runs: Sequence[ReplayedRun],
    *,
    found: Mapping[str, Any],
    found_sentences: Sequence[str],
    difficulty: Mapping[str, Any] | None,
    options: Mapping[str, Any],
    beyond: str,
) -> dict[str, Any]:
    """Return the content of ``summary.json``.

    Args:
        runs: each strategy's figures per seed.
        found: the content of the logs: files, prompts, visits, rollouts.
        found_sentences: the same as sentences.
        difficulty: the plan at the replay's group size; None where the record allows none.
        options: the replay's settings.
        beyond: the handling of rollouts requested beyond the record, as a sentence.

    Returns:
        The summary, JSON-safe.
    """
    by_strategy: dict[str, dict[int, Mapping[str, Any]]] = {}
    for name, seed, figures in runs:
        by_strategy.setdefault(name, {})[seed] = figures
    strategies = {name: summarise_strategy(list(some.values())) for name, some in by_strategy.items()}
    return {
        "strategies": strategies,
        "advice": advice(by_strategy, difficulty, group_size=int(options["group_size"])),
        "cannot_know": CANNOT_KNOW,
        "beyond": beyond,
        "seeds": sorted({seed for _, seed, _ in runs}),
        "options": dict(options),
        "found": dict(found),
        "found_sentences": list(found_sentences),
        "difficulty": None if difficulty is None else dict(difficulty),
        "series": _series(by_strategy, float(options["passes"])),
        "calibration": {
            name: np.sum([figures["calibration"] for figures in some.values()], axis=0).tolist()
            for name, some in by_strategy.items()
        },
    }


def write_replay(out: Path, summary: Mapping[str, Any]) -> Path:
    """Write ``summary.json`` and ``report.html``, each whole or not at all.

    Args:
        out: the directory, which exists.
        summary: of `replay_summary`.

    Returns:
        The report's path.

    Raises:
        MissingExtraError: matplotlib or jinja2 is not installed.
    """
    return write_report_files(out, summary, replay_page(summary))


def _series(runs: Mapping[str, Mapping[int, Mapping[str, Any]]], passes: float) -> dict[str, Any]:
    """Return effective groups per 1,000 rollouts over the passes, all seeds together."""
    edges = np.linspace(0.0, passes, _POINTS + 1)
    curves: dict[str, list[float | None]] = {}
    for name, some in runs.items():
        effective, rollouts = np.zeros(_POINTS), np.zeros(_POINTS)
        for figures in some.values():
            one = figures["series"]
            ends = np.asarray(one["passes"])
            middle = (ends + np.r_[0.0, ends[:-1]]) / 2.0
            place = np.clip(np.searchsorted(edges, middle, side="right") - 1, 0, _POINTS - 1)
            effective += np.bincount(place, weights=one["effective"], minlength=_POINTS)
            rollouts += np.bincount(place, weights=one["rollouts"], minlength=_POINTS)
        curves[name] = [
            1000.0 * float(e / n) if n else None for e, n in zip(effective, rollouts, strict=True)
        ]
    middles = (edges[1:] + edges[:-1]) / 2.0
    return {"passes": middles.tolist(), "effective_groups_per_1000_rollouts": curves}
