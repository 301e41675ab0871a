"""One self-contained page and one JSON file from a set of runs."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

from neyman.report._appendix import prompts_section, runs_section, verdict_section
from neyman.report._difficulty import allocation_section, calibration_section
from neyman.report._document import document
from neyman.report._findings import Findings, analyse
from neyman.report._looks import looks
from neyman.report._markup import Markup, join, shorten, tag
from neyman.report._runs import Run, load_runs
from neyman.report._sections import (
    accuracy_section,
    effective_section,
    fates_section,
    training_section,
)
from neyman.report._summary import summarise
from neyman.report._verdict import Verdict, verdict

_NAVIGATION = (
    ("accuracy", "Accuracy"),
    ("allocation", "Allocation"),
    ("effective", "Effective ratio"),
    ("calibration", "Calibration"),
    ("rollouts", "Where rollouts went"),
    ("training", "Training"),
    ("prompts", "Prompts"),
    ("runs", "Runs and method"),
)


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
        MissingExtraError: matplotlib is not installed.

    Guarantee:
        The page needs no network and runs no script; every foreign string is escaped. It is written to a
        temporary file that then takes the name, so a reader never sees half of it. The same runs give the
        same bytes with the same matplotlib.

    Cost:
        Seconds; O(runs x (steps + groups)).
    """
    return _write(Path(out), _document(analyse(runs, reference), title))


def summary(runs: Sequence[Run], *, reference: str | None = None) -> dict[str, object]:
    """Return the report's figures, JSON-safe: unknown numbers are None.

    Args:
        runs: of one task, each strategy and seed once.
        reference: the strategy that others are compared with; it may be absent. None takes the first baseline of the
            runs' settings, else "uniform".

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
        reference: the strategy that others are compared with; it may be absent. None takes the first baseline of the
            runs' settings, else "uniform".

    Returns:
        The report's path.

    Raises:
        ArgumentError: there are no runs, or they cannot be compared.
        StateError: a run cannot be read.
        MissingExtraError: matplotlib is not installed.
    """
    folder = Path(path)
    findings = analyse(load_runs(folder), reference)
    figures = summarise(findings, verdict(findings))
    page = _document(findings, title or _title(findings))
    _write(folder / "summary.json", json.dumps(figures, indent=2, allow_nan=False, ensure_ascii=False) + "\n")
    return _write(folder / "report.html", page)


def _title(findings: Findings) -> str:
    names = [s.strategy for s in findings.strategies]
    listed = names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
    return f"{listed} on {findings.runs[0].task}"


def _document(findings: Findings, title: str) -> str:
    spoken = verdict(findings)
    chosen = looks([s.strategy for s in findings.strategies], findings.reference)
    body = join(
        _header(findings, title),
        tag(
            "main",
            verdict_section(findings, spoken, chosen),
            accuracy_section(findings, chosen),
            allocation_section(findings, chosen),
            effective_section(findings, chosen),
            calibration_section(findings, chosen),
            fates_section(findings),
            training_section(findings, chosen),
            prompts_section(findings),
            runs_section(findings),
        ),
    )
    return document(title, _describe(spoken), body)


def _describe(spoken: Verdict) -> str:
    return " ".join((spoken.headline, *spoken.sentences[:1]))


def _header(findings: Findings, title: str) -> Markup:
    first = findings.runs[0]
    problems = max(run.problems for run in findings.runs)
    exact = any(run.is_exact for run in findings.runs)
    facts = [
        f"task {shorten(first.task)}",
        f"estimator {shorten(first.estimator)}",
        f"{len(findings.runs)} run{'s' if len(findings.runs) != 1 else ''}",
        f"{first.budget:,} rollouts a step",
        f"{first.planned_steps:,} steps",
    ]
    if problems:
        facts.append(f"{problems:,} test problems" + (", exact success rates" if exact else ""))
    return tag(
        "header",
        tag("p", "neyman report", class_="eyebrow"),
        tag("h1", shorten(title)),
        tag("ul", [tag("li", fact) for fact in facts], class_="facts"),
        tag("nav", [tag("a", words, href=f"#{anchor}") for anchor, words in _NAVIGATION]),
        class_="top",
    )


def _write(path: Path, text: str) -> Path:
    """Write a file so that it is there whole or not at all."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(text, encoding="utf-8", errors="backslashreplace", newline="\n")
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    return path
