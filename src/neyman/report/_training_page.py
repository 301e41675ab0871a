"""Report of training runs: one self-contained page and one JSON file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from neyman.report._figures import draw_allocation
from neyman.report._findings import Findings, StrategyFindings, analyse, costs_of
from neyman.report._format import Cell, interval, number, percent, plural, shorten, significant
from neyman.report._groups import Allocation
from neyman.report._looks import Look, fate_order, looks
from neyman.report._pictures import accuracy_picture, calibration_picture, fate_pictures, series_picture
from neyman.report._runs import Run, load_runs
from neyman.report._series import PARTS, step_series
from neyman.report._stats import NAN, Interval, value_at
from neyman.report._svg import Picture, picture
from neyman.report._templates import fill, write_report_files, write_text
from neyman.report._training_summary import summarise
from neyman.report._verdict import Verdict, verdict

_ALLOCATED_OVER = {"predicted": "predicted success rate", "realised": "realised success rate of the group"}


def render(runs: Sequence[Run], out: str | Path, *, title: str, reference: str | None = None) -> Path:
    """Write the report of some runs as one HTML file.

    Args:
        runs: of one task, each strategy and seed once.
        out: the file to write.
        title: the page's heading.
        reference: the strategy that others are compared with; it may be absent. None takes the first baseline of the
            runs' settings, else "uniform".

    Returns:
        The file.

    Raises:
        ArgumentError: the runs cannot be compared.
        MissingExtraError: matplotlib or jinja2 is not installed.

    Guarantee: the page needs no network and runs no script; every foreign string is escaped. It is written to a
    temporary file that then takes the name, so a reader never sees half of it. The same runs give the same bytes with
    the same matplotlib.
    Cost: Seconds; O(runs x (steps + groups)).
    """
    findings = analyse(runs, reference)
    page = _page(findings, verdict(findings), title)
    Path(out).parent.mkdir(parents=True, exist_ok=True)
    return write_text(Path(out), page)


def summary(runs: Sequence[Run], *, reference: str | None = None) -> dict[str, object]:
    """Return the report's figures, JSON-safe: unknown numbers are None.

    Args:
        runs: of one task, each strategy and seed once.
        reference: see `render`.

    Returns:
        The figures.

    Raises:
        ArgumentError: the runs cannot be compared.
    """
    findings = analyse(runs, reference)
    return summarise(findings, verdict(findings))


def write_report(path: str | Path, *, title: str | None = None, reference: str | None = None) -> Path:
    """Write ``report.html`` and ``summary.json`` beside the runs under a directory.

    Args:
        path: the directory that holds the runs, or one run.
        title: the page's heading; by default the strategies and the task.
        reference: see `render`.

    Returns:
        The report's path.

    Raises:
        ArgumentError: there are no runs, or they cannot be compared.
        StateError: a run cannot be read.
        MissingExtraError: matplotlib or jinja2 is not installed.
    """
    folder = Path(path)
    findings = analyse(load_runs(folder), reference)
    outcome = verdict(findings)
    page = _page(findings, outcome, title or _title(findings))
    return write_report_files(folder, summarise(findings, outcome), page)


def _title(findings: Findings) -> str:
    names = [s.strategy for s in findings.strategies]
    listed = names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
    return f"{listed} on {findings.runs[0].task}"


def _page(findings: Findings, outcome: Verdict, title: str) -> str:
    styles = looks([s.strategy for s in findings.strategies], findings.reference)
    evaluated = [s for s in findings.strategies if any(len(run.accuracy) for run in s.runs)]
    allocations = {
        kind: {s.strategy: a for s in findings.strategies if (a := s.allocations[kind]) is not None}
        for kind in _ALLOCATED_OVER
    }
    calibrations = {s.strategy: s.calibration for s in findings.strategies if s.calibration is not None}
    return fill(
        "training.html.j2",
        title=title,
        description=" ".join((outcome.headline, *outcome.sentences[:1])),
        facts=_facts(findings),
        findings=findings,
        verdict=outcome,
        looks=styles,
        pictures=_pictures(findings, evaluated, styles)
        | _allocation_pictures(allocations, styles)
        | ({"calibration": calibration_picture(calibrations, styles)} if calibrations else {}),
        evaluated=[s.strategy for s in evaluated],
        milestones=_milestones(findings, evaluated),
        allocated_over=_ALLOCATED_OVER,
        allocations=allocations,
        effective=_effective_table(findings),
        calibrations=calibrations,
        fates=fate_order(s.fates for s in findings.strategies),
        training=_training_rows(findings),
    )


def _facts(findings: Findings) -> list[str]:
    first = findings.runs[0]
    problems = max(run.problems for run in findings.runs)
    exact = ", exact success rates" if any(run.is_exact for run in findings.runs) else ""
    return [
        f"task {shorten(first.task)}",
        f"estimator {shorten(first.estimator)}",
        plural(len(findings.runs), "run"),
        f"{first.budget:,} rollouts a step",
        f"{first.planned_steps:,} steps",
        *([f"{problems:,} test problems{exact}"] if problems else []),
    ]


def _pictures(
    findings: Findings, evaluated: Sequence[StrategyFindings], styles: Mapping[str, Look]
) -> dict[str, Any]:
    def accuracy(cost: str, target: float = NAN) -> Picture:
        seeds = {s.strategy: [(costs_of(r, cost), r.accuracy) for r in s.runs] for s in evaluated}
        words = f"cumulative {cost}"
        return accuracy_picture(
            f"accuracy-{cost}", f"Accuracy against {words}", seeds, styles, cost=words, target=target
        )

    def over_steps(source: str, key: str, title: str, label: str, *, is_share: bool = False) -> Picture:
        series = {s.strategy: step_series(s.runs, source, key) for s in findings.strategies}
        name = f"{source}-{key.replace('_', '-')}"
        return series_picture(name, title, series, styles, label=label, is_share=is_share)

    fates = {s.strategy: {f: r for f, (r, _) in s.fates.items() if r} for s in findings.strategies if s.fates}
    return {
        "accuracy": [accuracy("rollouts", findings.target), accuracy("tokens")] if evaluated else [],
        "effective": [
            over_steps("metrics", "effective_ratio", "Effective ratio", "effective ratio", is_share=True),
            over_steps(
                "metrics", "success_rate", "Success rate of the rollouts", "success rate", is_share=True
            ),
        ],
        "training": [
            over_steps("trainer", "grad_norm", "Gradient norm", "gradient norm"),
            over_steps("trainer", "entropy", "Entropy of the policy", "entropy, nats per token"),
        ],
        **(fate_pictures(fates, row_height=0.52) if fates else {"fates": None}),
    }


def _allocation_pictures(
    allocations: Mapping[str, Mapping[str, Allocation]], styles: Mapping[str, Look]
) -> dict[str, list[Picture]]:
    return {
        kind: [
            picture(
                f"allocation-{kind}-{show}", title, draw_allocation, (5.2, 3.0),
                bins=bins, looks=styles, show=show, x_label=_ALLOCATED_OVER[kind],
            )
            for show, title in (("mean", "Rollouts per group"), ("share", "Share of all rollouts"))
        ]
        for kind, bins in allocations.items()
        if bins
    }  # fmt: skip


def _milestones(findings: Findings, evaluated: Sequence[StrategyFindings]) -> list[tuple[str, list[Cell]]]:
    """Rows of accuracies at five costs up to the common one."""
    end = findings.common["rollouts"]
    if np.isnan(end):
        return []

    def accuracy(s: StrategyFindings, at: float) -> Cell:
        curve = s.curves["rollouts"]
        mean, low, high = (value_at(curve.x, values, at) for values in (curve.mean, curve.low, curve.high))
        return interval(Interval(mean, low, high, len(s.runs)).within(0.0, 1.0), 1, 100.0, " %")

    return [(number(at), [accuracy(s, at) for s in evaluated]) for at in np.linspace(0.0, end, 5)]


def _effective_table(findings: Findings) -> dict[str, Any]:
    """Titles and rows of the columns for which some strategy has a figure."""

    def over_steps(
        key: str, write: Callable[[float], str], pick: Callable[[Any], Any] | None = None
    ) -> list[Cell]:
        series = [step_series(s.runs, "metrics", key) for s in findings.strategies]
        return [
            "-" if one is None else write(one.part("all") if pick is None else float(pick(one.seeds)))
            for one in series
        ]

    every = findings.strategies
    columns: dict[str, list[Cell]] = {
        "effective ratio": [interval(s.effective_ratio, 1, 100.0, " %") for s in every],
        "effective groups per 1000 rollouts": [interval(s.effective_per_1000) for s in every],
        "group size, mean": over_steps("group_size_mean", lambda mean: number(mean, 1)),
        "smallest": over_steps("group_size_min", number, np.nanmin),
        "largest": over_steps("group_size_max", number, np.nanmax),
        "rounds a step": over_steps("rounds", lambda mean: number(mean, 1)),
        "signal kept": over_steps("signal_kept", percent),
        "miss rate": over_steps("miss_rate", percent),
        "yield margin": over_steps("yield_margin", significant),
    }
    used = {title: cells for title, cells in columns.items() if any(cell != "-" for cell in cells)}
    rows = [(s.strategy, [cells[i] for cells in used.values()]) for i, s in enumerate(every)]
    return {"head": list(used), "rows": rows}


def _training_rows(findings: Findings) -> list[tuple[str, list[Cell]]]:
    return [
        (
            key.replace("grad_norm", "gradient norm"),
            [s.strategy, *(significant(series.part(part)) for part in PARTS)],
        )
        for key in ("grad_norm", "entropy", "loss", "reward")
        for s in findings.strategies
        if (series := step_series(s.runs, "trainer", key)) is not None
    ]
