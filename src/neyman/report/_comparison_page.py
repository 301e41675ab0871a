"""Report of a comparison of strategies over seeds: one self-contained page and one JSON file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from neyman.report._comparison import Regime, read_regimes, summarise_regime
from neyman.report._format import number, plural
from neyman.report._looks import Look, looks
from neyman.report._pictures import accuracy_picture, series_picture
from neyman.report._series import series_of
from neyman.report._svg import Picture
from neyman.report._templates import fill, write_report_files

_COSTS = {"rollouts": "rollouts generated", "tokens": "tokens generated"}
_TRAINING = {
    "effective_groups": "groups with signal in a step",
    "gradient_norm": "norm of the gradient",
    "entropy": "entropy of sampled tokens, nats",
}


def comparison_summary(
    runs: Sequence[Mapping[str, Any]], *, reference: str = "uniform", oracle: str = "oracle"
) -> dict[str, Any]:
    """Return the comparison, JSON-safe: ``{"regimes": {REGIME: {"strategies": {NAME: figures}}}}``.

    Args:
        runs: as `neyman.lab.run` returns them.
        reference: the strategy that others are measured by.
        oracle: the strategy that is the ceiling; it may be absent.

    Raises:
        ArgumentError: no runs, none of the reference, or no seed common to all.
    """
    return _summarise(read_regimes(runs, reference=reference, oracle=oracle))


def write_comparison(
    out: str | Path,
    runs: Sequence[Mapping[str, Any]],
    *,
    reference: str = "uniform",
    oracle: str = "oracle",
    notes: Sequence[str] = (),
    command: str = "",
) -> dict[str, Any]:
    """Write ``summary.json`` and ``report.html``.

    Args:
        out: the directory, which exists.
        runs: see `comparison_summary`.
        reference: see `comparison_summary`.
        oracle: see `comparison_summary`.
        notes: sentences that the page opens with, for instance on missing runs.
        command: the command that reproduces the comparison.

    Returns:
        The summary.

    Raises:
        ArgumentError: see `comparison_summary`.
        MissingExtraError: matplotlib or jinja2 is not installed.

    Guarantee: both files are whole or absent; the page needs no network, runs no script, and escapes every foreign
    string.
    """
    regimes = read_regimes(runs, reference=reference, oracle=oracle)
    summary = _summarise(regimes)
    write_report_files(Path(out), summary, _page(regimes, summary, notes=notes, command=command))
    return summary


def _summarise(regimes: Sequence[Regime]) -> dict[str, Any]:
    return {"regimes": {regime.name: summarise_regime(regime) for regime in regimes}}


def _page(
    regimes: Sequence[Regime], summary: Mapping[str, Any], *, notes: Sequence[str], command: str
) -> str:
    names = list(dict.fromkeys(name for regime in regimes for name in regime.arms))
    styles = looks(names, regimes[0].reference)
    seeds = {seed for regime in regimes for seed in regime.seeds}
    sections = []
    for place, regime in enumerate(regimes):
        figures = summary["regimes"][regime.name]
        mine = {name: styles[name] for name in regime.arms}
        sections.append(
            {
                **figures,
                "name": regime.name,
                "sentence": _sentence(regime, figures["strategies"]),
                "accuracy": _accuracy_pictures(f"regime-{place}", regime, figures["strategies"], mine),
                "training": _training_pictures(f"regime-{place}", regime, mine),
            }
        )
    return fill(
        "comparison.html.j2",
        title="Strategies compared in the lab",
        description=sections[0]["sentence"],
        facts=[
            f"{len(names)} strategies",
            plural(len(seeds), "seed"),
            f"{number(float(regimes[0].grid[-1]))} rollouts a run",
        ],
        navigation=[(f"regime-{place}", regime.name) for place, regime in enumerate(regimes)],
        notes=notes,
        regimes=sections,
        looks=styles,
        command=command,
    )


def _sentence(regime: Regime, strategies: Mapping[str, Any]) -> str:
    """Name the strategy that is furthest ahead of the reference, if an interval allows."""
    ahead = [
        name
        for name, one in strategies.items()
        if name not in (regime.reference, regime.oracle)
        and (one["difference_to_reference"]["low"] or 0.0) > 0.0
    ]
    if not ahead:
        return f"In {regime.name} no strategy is clearly ahead of {regime.reference} at equal rollouts."
    best = max(ahead, key=lambda name: strategies[name]["final_accuracy"]["mean"])
    gain = strategies[best]["difference_to_reference"]
    return (
        f"In {regime.name} {best} is ahead of {regime.reference} at equal rollouts, by {100 * gain['mean']:.1f} "
        f"points ({100 * gain['low']:.1f} to {100 * gain['high']:.1f})."
    )


def _accuracy_pictures(
    anchor: str, regime: Regime, strategies: Mapping[str, Any], styles: Mapping[str, Look]
) -> list[Picture]:
    target = strategies[regime.reference]["final_accuracy"]["mean"]
    return [
        accuracy_picture(
            f"{anchor}-{cost}",
            f"Accuracy over {words}",
            {name: arm.over(cost) for name, arm in regime.arms.items()},
            styles,
            cost=words,
            target=target,
        )
        for cost, words in _COSTS.items()
    ]


def _training_pictures(anchor: str, regime: Regime, styles: Mapping[str, Look]) -> list[Picture]:
    pictures = []
    for key, words in _TRAINING.items():
        series = {}
        for name, arm in regime.arms.items():
            values = [np.asarray(run["steps"][key], dtype=np.float64) for run in arm.runs]
            series[name] = series_of([(np.arange(1, len(v) + 1), v) for v in values])
        pictures.append(series_picture(f"{anchor}-{key}", words.capitalize(), series, styles, label=words))
    return pictures
