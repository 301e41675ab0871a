"""The page's sections: a picture, the numbers beside it, and a sentence on how to read them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np

from neyman.report._figures import draw_accuracy, draw_fates
from neyman.report._findings import Findings, StrategyFindings, costs_of
from neyman.report._looks import Look, fate_colour, fate_order, fate_words
from neyman.report._markup import (
    Markup,
    difference,
    join,
    number,
    percent,
    significant,
    table,
    tag,
    with_interval,
)
from neyman.report._parts import figure, legend, section, series_figures
from neyman.report._series import step_series
from neyman.report._stats import value_at

_COST_WORDS = {"rollouts": "cumulative rollouts", "tokens": "cumulative tokens", "seconds": "seconds"}


def accuracy_section(findings: Findings, looks: Mapping[str, Look]) -> Markup:
    """Accuracy against what was spent, and the comparison at equal budgets."""
    lead = (
        "Thin lines are single seeds, thick ones their mean; the band is its 95 % interval over seeds. "
        "Every rollout counts that was asked for, also those abandoned, surplus or failed."
    )
    shown = [s for s in findings.strategies if any(len(run.accuracy) for run in s.runs)]
    if not shown:
        return section("accuracy", "Accuracy", lead, tag("p", "No run was evaluated.", class_="empty"))
    pictures = []
    for cost in ("rollouts", "tokens"):
        draw = partial(
            draw_accuracy,
            curves={s.strategy: s.curves[cost] for s in shown},
            seeds={s.strategy: [(costs_of(r, cost), r.accuracy) for r in s.runs] for s in shown},
            looks=looks,
            x_label=_COST_WORDS[cost],
            target=findings.target if cost == "rollouts" else float("nan"),
        )
        pictures.append(figure(f"accuracy-{cost}", f"Accuracy against {_COST_WORDS[cost]}", draw))
    dotted = (
        f"The dotted line is {findings.reference}'s mean final accuracy." if findings.has_reference else ""
    )
    return section(
        "accuracy",
        "Accuracy against what was spent",
        f"{lead} {dotted}",
        legend({s.strategy: looks[s.strategy] for s in shown}),
        tag("div", pictures, class_="plots"),
        _milestones(findings, shown),
        _equal_budgets(findings),
    )


def _milestones(findings: Findings, shown: Sequence[StrategyFindings]) -> Markup | None:
    end = findings.common["rollouts"]
    if np.isnan(end):
        return None
    rows = []
    for at in np.linspace(0.0, end, 5):
        cells = []
        for s in shown:
            mean = value_at(s.curves["rollouts"].x, s.curves["rollouts"].mean, at)
            low = value_at(s.curves["rollouts"].x, s.curves["rollouts"].low, at)
            high = value_at(s.curves["rollouts"].x, s.curves["rollouts"].high, at)
            bounds = (
                tag("small", f"{100 * max(low, 0):.1f} to {100 * min(high, 1):.1f}") if high > low else None
            )
            cells.append(join(tag("b", percent(mean)), bounds))
        rows.append([number(at), *cells])
    caption = "Accuracy along the way, mean over seeds with its 95 % interval"
    return table(["rollouts", *(s.strategy for s in shown)], rows, caption=caption)


def _equal_budgets(findings: Findings) -> Markup | None:
    others = [s for s in findings.strategies if s.against]
    if not others or not findings.has_reference:
        return None
    rows = []
    for s in others:
        for cost, paired in s.against.items():
            if np.isnan(findings.common[cost]):
                continue
            boot = "-"
            if paired is not None and len(paired.seeds) > 1:
                boot = f"{100 * paired.bootstrap[0]:+.1f} to {100 * paired.bootstrap[1]:+.1f}"
            rows.append(
                [
                    s.strategy,
                    f"{number(findings.common[cost])} {cost}",
                    number(len(paired.seeds)) if paired else "none",
                    difference(paired.interval) if paired else "-",
                    boot,
                ]
            )
    head = [
        "strategy",
        "at equal",
        "paired seeds",
        f"points over {findings.reference}",
        "bootstrap cross-check",
    ]
    caption = "Difference in accuracy at equal budgets, paired by seed, 95 % intervals one by one"
    return table(head, rows, caption=caption, text_columns=2)


def effective_section(findings: Findings, looks: Mapping[str, Look]) -> Markup:
    """How much of what was trained on had signal."""
    lead = (
        "A group is effective when its outcomes are mixed: only then do its advantages differ from zero. "
        "The ratio is among trained groups; the count per 1000 rollouts also charges what was thrown away."
    )
    names = (
        ("effective_ratio", "Effective ratio", "effective ratio", True),
        ("success_rate", "Success rate of the rollouts", "success rate", True),
    )
    pictures = series_figures(findings, looks, "metrics", names)
    head = [
        "strategy", "effective ratio", "effective groups per 1000 rollouts", "group size, mean", "smallest",
        "largest", "rounds a step", "signal kept", "miss rate", "yield margin",
    ]  # fmt: skip
    rows = [
        [
            s.strategy,
            with_interval(s.effective_ratio, 100.0, 1, " %"),
            with_interval(s.effective_per_1000),
            number(_mean(s, "group_size_mean"), 1),
            number(_extreme(s, "group_size_min", np.nanmin)),
            number(_extreme(s, "group_size_max", np.nanmax)),
            number(_mean(s, "rounds"), 1),
            percent(_mean(s, "signal_kept")),
            percent(_mean(s, "miss_rate")),
            significant(_mean(s, "yield_margin")),
        ]
        for s in findings.strategies
    ]
    used = [i for i in range(len(head)) if any(row[i] != "-" for row in rows)]
    head, rows = [head[i] for i in used], [[row[i] for i in used] for row in rows]
    caption = "Means over steps and seeds, with the 95 % interval over seeds"
    return section(
        "effective", "Effective ratio", lead, legend(looks), pictures, table(head, rows, caption=caption)
    )


def fates_section(findings: Findings) -> Markup:
    """Where every rollout went."""
    lead = (
        "Every rollout that was asked for has exactly one fate. What was abandoned, surplus, failed or only "
        "padding is paid for like the rest."
    )
    fates = {s.strategy: {f: r for f, (r, _) in s.fates.items() if r} for s in findings.strategies if s.fates}
    if not fates:
        absent = tag("p", "No account was written.", class_="empty")
        return section("rollouts", "Where every rollout went", lead, absent)
    order = fate_order(s.fates for s in findings.strategies)
    marks = tag(
        "ul",
        [
            tag(
                "li", tag("i", class_="box", style=f"background: var(--{fate_colour(f).name})"), fate_words(f)
            )
            for f in order
        ],
        class_="legend",
    )
    height = 0.9 + 0.52 * len(fates)
    picture = figure("fates", "Rollouts by fate", partial(draw_fates, fates=fates), (10.6, height))
    narrow = figure("fates-narrow", "Rollouts by fate", partial(draw_fates, fates=fates), (5.2, height))
    rows = []
    for fate in order:
        cells = []
        for s in findings.strategies:
            rollouts, tokens = s.fates.get(fate, (0, 0))
            share = percent(rollouts / s.rollouts) if s.rollouts else "-"
            cells.append(join(tag("b", number(rollouts)), tag("small", f"{share}, {number(tokens)} tokens")))
        rows.append([fate_words(fate), *cells])
    rows.append(["requested", *(tag("b", number(s.rollouts)) for s in findings.strategies)])
    head = ["fate", *(s.strategy for s in findings.strategies)]
    caption = "Rollouts by fate, summed over seeds, with their share of what was requested and their tokens"
    pictures = join(tag("div", picture, class_="plots wide"), tag("div", narrow, class_="plots narrow"))
    return section(
        "rollouts", "Where every rollout went", lead, marks, pictures, table(head, rows, caption=caption)
    )


def training_section(findings: Findings, looks: Mapping[str, Look]) -> Markup:
    """The optimiser's side."""
    lead = (
        "What the optimiser saw. Thin lines are seeds, the thick one their mean, smoothed over a few steps."
    )
    names = (
        ("grad_norm", "Gradient norm", "gradient norm", False),
        ("entropy", "Entropy of the policy", "entropy, nats per token", False),
    )
    pictures = series_figures(findings, looks, "trainer", names)
    rows = []
    for key in ("grad_norm", "entropy", "loss", "reward"):
        for s in findings.strategies:
            series = step_series(s.runs, "trainer", key)
            if series is not None:
                parts = [significant(series.part(which)) for which in ("first", "last", "all")]
                rows.append([key.replace("grad_norm", "gradient norm"), s.strategy, *parts])
    head = ["figure", "strategy", "first quarter", "last quarter", "whole run"]
    caption = "Means over steps and seeds"
    return section(
        "training",
        "Training",
        lead,
        legend(looks),
        pictures,
        table(head, rows, caption=caption, text_columns=2),
    )


def _mean(s: StrategyFindings, key: str) -> float:
    series = step_series(s.runs, "metrics", key)
    return series.part("all") if series is not None else float("nan")


def _extreme(s: StrategyFindings, key: str, pick: Callable[[np.ndarray], np.floating]) -> float:
    series = step_series(s.runs, "metrics", key)
    return float(pick(series.seeds)) if series is not None else float("nan")
