"""The page's first and last parts: the verdict with its key figures, prompts and reasons, runs, method."""

from __future__ import annotations

import json
from collections.abc import Mapping

import numpy as np

from neyman.report._findings import Findings, StrategyFindings
from neyman.report._groups import costliest_prompts, join_groups, reasons
from neyman.report._looks import Look, fate_colour, fate_words
from neyman.report._markup import (
    Markup,
    difference,
    join,
    number,
    percent,
    shorten,
    table,
    tag,
    with_interval,
)
from neyman.report._parts import section
from neyman.report._verdict import Verdict

_METHOD = (
    (
        "Final accuracy at equal rollouts",
        "Each seed's curve is read, linearly between its evaluations, where the shortest run ends. Intervals over "
        "seeds are Student's, 95 %. They speak of new seeds on the same task, test problems and settings, not of "
        "other tasks.",
    ),
    (
        "Who won",
        "Differences are paired by seed. A winner is named only where the interval of every difference to the "
        "others excludes zero, widened for the number of pairs (Bonferroni). The percentile bootstrap is a "
        "cross-check: with few seeds it is too narrow, so it never decides.",
    ),
    (
        "Rollouts to the reference's final accuracy",
        "Each seed's curve is made non-decreasing first (pool adjacent violators), then read linearly: the first "
        "crossing of a raw curve would reward the noisier one. A seed that ends before the target is censored: "
        "its last rollouts stand for it, the mean is a lower bound, and no interval is given.",
    ),
    (
        "Calibration",
        "Log-loss and Brier score are per rollout; bins have equal width. A prediction is compared with the "
        "outcomes of the very group it was made for.",
    ),
    (
        "What is counted",
        "Rollouts and tokens are those requested from the policy, whatever became of them. Wall-clock time is that "
        "of the machine the runs shared.",
    ),
)


def verdict_section(findings: Findings, spoken: Verdict, looks: Mapping[str, Look]) -> Markup:
    """The answer first: who won, in words and in one table."""
    notes = None
    if findings.notes:
        items = [tag("li", shorten(note)) for note in findings.notes]
        notes = tag("div", tag("b", "Please note"), tag("ul", items), class_="notes")
    return tag(
        "section",
        tag("h2", spoken.headline),
        [tag("p", sentence) for sentence in spoken.sentences],
        _key_table(findings, looks),
        notes,
        id="summary",
        class_="verdict won" if spoken.winner else "verdict",
    )


def _key_table(findings: Findings, looks: Mapping[str, Look]) -> Markup:
    head = [
        "strategy", "seeds", "final accuracy", f"points over {findings.reference}",
        f"rollouts to {findings.reference}'s final", "effective ratio", "rollouts by fate",
    ]  # fmt: skip
    rows = []
    for s in findings.strategies:
        look = looks[s.strategy]
        paired = s.against.get("rollouts")
        rows.append(
            [
                join(tag("span", look.glyph, style=f"color: var(--{look.colour.name})"), " ", s.strategy),
                number(len(s.runs)),
                with_interval(s.final, 100.0, 1, " %"),
                difference(paired.interval) if paired else "-",
                _reach_cell(s),
                with_interval(s.effective_ratio, 100.0, 0, " %"),
                _fate_bar(s),
            ]
        )
    at = findings.common["rollouts"]
    where = f"after {at:,.0f} rollouts each" if np.isfinite(at) else "not evaluated at an equal budget yet"
    return table(head, rows, caption=f"Key figures {where}; small print: 95 % intervals over seeds")


def _reach_cell(s: StrategyFindings) -> Markup:
    reach = s.reach
    if reach is None or np.isnan(reach.interval.mean):
        return Markup("-")
    if reach.reached == 0:
        return tag("b", "not reached")
    if reach.is_censored:
        seeds = f"{reach.reached} of {len(reach.costs)} seeds reached it"
        return join(tag("b", f"≥ {number(reach.interval.mean)}"), tag("small", seeds))
    return with_interval(reach.interval, digits=0)


def _fate_bar(s: StrategyFindings) -> Markup:
    total = sum(rollouts for rollouts, _ in s.fates.values())
    if not total:
        return Markup("-")
    shares = [(fate, rollouts / total) for fate, (rollouts, _) in s.fates.items() if rollouts]
    parts = [
        tag("span", style=f"width: {100 * share:.2f}%; background: var(--{fate_colour(fate).name})")
        for fate, share in shares
    ]
    largest = [pair for pair in sorted(shares, key=lambda pair: -pair[1])[:3] if pair[1] >= 0.005]
    words = ", ".join(
        f"{percent(share, 0)} {fate.replace('uniform', 'no signal')}" for fate, share in largest
    )
    every = ", ".join(f"{fate_words(fate)} {percent(share)}" for fate, share in shares)
    return join(tag("div", parts, class_="bar", role="img", aria_label=every), tag("small", words))


def prompts_section(findings: Findings) -> Markup:
    """Which prompts got the most, and which reasons the strategies gave."""
    lead = (
        "The prompts each strategy spent most on, over all its seeds, and the reasons it gave for its groups."
    )
    prompt_rows, reason_rows = [], []
    for s in findings.strategies:
        groups = join_groups(s.runs)
        prompt_rows += [
            [
                s.strategy,
                shorten(p.prompt_id),
                shorten(p.reason) or "-",
                number(p.visits),
                number(p.rollouts),
                percent(p.successes / p.trials) if p.trials else "-",
            ]
            for p in costliest_prompts(groups)
        ]
        reason_rows += [
            [s.strategy, shorten(reason) or "-", outcome or "-", number(count), number(rollouts)]
            for reason, outcome, count, rollouts in reasons(groups)
        ]
    return section(
        "prompts",
        "Prompts and reasons",
        lead,
        table(
            ["strategy", "prompt", "last reason", "visits", "rollouts", "success rate"],
            prompt_rows,
            caption="Most expensive prompts",
            text_columns=3,
        ),
        table(
            ["strategy", "reason", "outcome", "groups", "rollouts"],
            reason_rows,
            caption="Reasons by rollouts",
            text_columns=3,
        ),
    )


def runs_section(findings: Findings) -> Markup:
    """Every run, its settings, and how the figures were made."""
    rows = [
        [
            run.strategy,
            number(run.seed),
            f"{len(run.step)} of {run.planned_steps}",
            number(run.rollouts[-1]) if len(run.rollouts) else "-",
            number(run.tokens[-1]) if len(run.tokens) else "-",
            number(run.wall_seconds, 1),
            percent(float(run.accuracy[-1])) if len(run.accuracy) else "-",
            "finished" if run.is_finished else "not finished",
        ]
        for run in findings.runs
    ]
    head = ["strategy", "seed", "steps", "rollouts", "tokens", "seconds", "last accuracy", "state"]
    configs = [
        tag(
            "details",
            tag("summary", f"Settings of {s.runs[0].name}"),
            tag("pre", json.dumps(dict(s.runs[0].config), indent=2, ensure_ascii=False, default=str)),
        )
        for s in findings.strategies
        if s.runs[0].config
    ]
    method = tag("dl", [join(tag("dt", term), tag("dd", words)) for term, words in _METHOD])
    return section(
        "runs",
        "Runs and method",
        "What went into this page, and how its figures were made.",
        table(head, rows, caption="Every run"),
        tag("h3", "How the figures were made"),
        method,
        tag("div", configs) if configs else None,
    )
