"""The sections on difficulty: where rollouts went over it, and whether it was predicted rightly."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from neyman.report._figures import draw_allocation, draw_calibration
from neyman.report._findings import Findings, StrategyFindings
from neyman.report._groups import Allocation
from neyman.report._looks import Look
from neyman.report._markup import (
    Markup,
    join,
    number,
    percent,
    table,
    tag,
)
from neyman.report._parts import figure, legend, section


def allocation_section(findings: Findings, looks: Mapping[str, Look]) -> Markup:
    """Where rollouts went over predicted and realised difficulty."""
    lead = (
        "A prompt that always fails or always succeeds teaches nothing; the most signal per rollout lies in "
        "between. Rollouts per group tell how many; the share of all rollouts tells where the whole budget went."
    )
    body: list[Markup] = [legend(looks)]
    kinds: tuple[tuple[str, str, str, Callable[[StrategyFindings], Allocation | None]], ...] = (
        ("predicted", "predicted success rate", "No strategy predicted anything.", lambda s: s.by_predicted),
        ("realised", "realised success rate of the group", "No group was written.", lambda s: s.by_realised),
    )
    for kind, words, absent, pick in kinds:
        bins = {s.strategy: a for s in findings.strategies if (a := pick(s)) is not None}
        body.append(tag("h3", f"Over the {words}"))
        if not bins:
            body.append(tag("p", absent, class_="empty"))
            continue
        if kind == "realised":
            note = (
                "All-failed and all-solved groups have bins of their own at the ends. A group of few rollouts can "
                "only land on few rates, so the shares jump from bin to bin."
            )
            body.append(tag("p", note, class_="lead"))
        pictures = [
            figure(
                f"allocation-{kind}-{show}",
                title,
                partial(draw_allocation, bins=bins, looks=looks, show=show, x_label=words),
                (5.2, 3.0),
            )
            for show, title in (("mean", "Rollouts per group"), ("share", "Share of all rollouts"))
        ]
        body += [tag("div", pictures, class_="plots"), _allocation_table(bins, words)]
    return section("allocation", "Allocation over difficulty", lead, *body)


def _allocation_table(bins: Mapping[str, Allocation], words: str) -> Markup:
    labels = next(iter(bins.values())).labels
    rows = [
        [
            label,
            *(
                join(
                    tag("b", number(a.mean[i], 1)),
                    tag("small", f"{number(a.groups[i])} groups, {percent(a.share[i])}"),
                )
                if a.groups[i]
                else "-"
                for a in bins.values()
            ),
        ]
        for i, label in enumerate(labels)
    ]
    caption = f"Rollouts per group over the {words}; below, groups and share of all rollouts"
    return table([words, *bins], rows, caption=caption)


def calibration_section(findings: Findings, looks: Mapping[str, Look]) -> Markup:
    """Whether predictions came true."""
    lead = (
        "Predictions are made before the group's outcomes are known. On the dotted diagonal they are right. "
        "Bars are 95 % bounds that take rollouts as independent, so they are somewhat narrow."
    )
    scored = {s.strategy: s.calibration for s in findings.strategies if s.calibration is not None}
    if not scored:
        absent = tag("p", "No strategy here has a predictor.", class_="empty")
        return section("calibration", "Calibration of the predictor", lead, absent)
    picture = figure(
        "calibration",
        "Realised against predicted success rate",
        partial(draw_calibration, calibrations=scored, looks=looks),
        (5.2, 4.2),
    )
    scores = table(
        ["strategy", "log-loss", "of a constant", "Brier", "ECE"],
        [
            [name, number(c.log_loss, 3), number(c.log_loss_constant, 3), number(c.brier, 3), number(c.ece, 3)]
            for name, c in scored.items()
        ],
        caption="Scores per rollout, lower is better; the constant is the overall success rate",
    )  # fmt: skip
    bins = table(
        ["predicted", *scored],
        [
            [
                label,
                *(
                    join(
                        tag("b", percent(c.realised[i])),
                        tag("small", f"of {number(c.trials[i])}; predicted {percent(c.predicted[i])}"),
                    )
                    if c.trials[i]
                    else "-"
                    for c in scored.values()
                ),
            ]
            for i, label in enumerate(next(iter(scored.values())).labels)
        ],
        caption="Realised success rate in each bin of the prediction, of so many rollouts",
    )
    words = [
        tag(
            "p",
            f"{name}: {abs(gain):.3f} nats a rollout {'less' if gain > 0 else 'more'} than the constant, "
            f"over {number(c.groups)} groups with {number(c.trials.sum())} outcomes.",
        )
        for name, c in scored.items()
        for gain in [c.log_loss_constant - c.log_loss]
    ]
    plots = tag("div", picture, tag("div", scores, words), class_="plots")
    shown = {name: looks[name] for name in scored}
    return section("calibration", "Calibration of the predictor", lead, legend(shown), plots, bins)
