"""The page of a replay: advice, pictures with their numbers, and what replay cannot know."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from neyman.report._document import document
from neyman.report._looks import looks
from neyman.report._markup import Markup, join, number, shorten, table, tag
from neyman.report._parts import section
from neyman.report._replay_sections import (
    belief_section,
    coverage_section,
    difficulty_section,
    fates_section,
    signal_section,
    yield_section,
)

REFERENCE = "uniform"
_NAVIGATION = (
    ("found", "What was found"),
    ("yield", "What rollouts bought"),
    ("signal", "Signal"),
    ("coverage", "Coverage"),
    ("belief", "Predictions"),
    ("rollouts", "Where rollouts went"),
    ("difficulty", "Difficulty"),
    ("method", "Method"),
)
_METHOD = (
    (
        "What is replayed",
        "Every strategy runs through neyman's controller. A step brings prompts in shuffled epochs; "
        "strategies that fill a batch may generate up to four times its rows. The clock counts rollouts: a "
        "pass is one full group for every prompt, and it decides which recorded visit of a prompt is current. "
        "Within a visit outcomes are drawn without replacement, over all openings of the prompt.",
    ),
    (
        "Waste factor",
        "Rollouts spent for each rollout that sits in a trained group with mixed outcomes and the full size. "
        "Where groups of other sizes are what a strategy trains (*), rollouts in mixed groups of any size "
        "count; such figures do not compare with the others, as a mixed group of two holds less than one of "
        "eight.",
    ),
    (
        "Signal kept and missed groups",
        "Of the sum of s (k - s) over groups that a verdict finished, the share that was not given up. What a "
        "group that was given up would have come to is computed from the rest of its recorded visit. The miss "
        "rate is the share of groups given up that would have become mixed.",
    ),
    (
        "Sum v/n",
        "The variance that the sizes of a step's trained groups leave: p (1 - p) / n summed over them, from "
        "the unbiased p (1 - p) of each recorded visit.",
    ),
    (
        "Longest gap and staleness",
        "The longest time, in passes, without an opening of a prompt: from the start, between openings, or to "
        "the end; a prompt that was never opened counts the whole run. Staleness is the mean time since a "
        "prompt's last opening, over time and prompts.",
    ),
    (
        "Predictions",
        "What the strategy believed of a group before it was opened, against its outcomes; log-loss, Brier "
        "score and ECE per rollout. Strategies without a belief predict 50 %.",
    ),
    (
        "Intervals",
        "95 %, Student's, over seeds: other orders of prompts and of recorded rollouts, on the same record.",
    ),
)


def replay_page(summary: Mapping[str, Any]) -> str:
    """Return the page as text.

    Args:
        summary: what ``summary.json`` holds.

    Guarantee: it needs no network and runs no script; every foreign string is escaped. The same summary gives
    the same bytes with the same matplotlib.
    """
    strategies = summary["strategies"]
    chosen = looks(strategies, REFERENCE)
    title = f"Replay of {summary['found']['rollouts']:,} recorded rollouts"
    body = join(
        _header(summary, title),
        tag(
            "main",
            tag(
                "section",
                tag("h2", summary["advice"]),
                tag("p", summary["cannot_know"]),
                id="summary",
                class_="verdict",
            ),
            _found_section(summary),
            yield_section(strategies, summary["series"], chosen, summary["options"]["group_size"]),
            signal_section(strategies, chosen),
            coverage_section(strategies, chosen),
            belief_section(strategies, summary["calibration"], chosen),
            fates_section(strategies),
            difficulty_section(summary["difficulty"]),
            _method_section(summary),
        ),
    )
    return document(title, summary["advice"], body)


def _header(summary: Mapping[str, Any], title: str) -> Markup:
    options, found = summary["options"], summary["found"]
    facts = [
        f"{found['prompts']:,} prompts",
        f"{found['visits']:,} recorded groups",
        f"groups of {options['group_size']}",
        f"{options['prompts_per_step']:,} prompts a step",
        f"{options['passes']:.1f} passes",
        f"{len(summary['seeds'])} seed{'s' * (len(summary['seeds']) != 1)}",
    ]
    return tag(
        "header",
        tag("p", "neyman replay", class_="eyebrow"),
        tag("h1", title),
        tag("ul", [tag("li", fact) for fact in facts], class_="facts"),
        tag("nav", [tag("a", words, href=f"#{anchor}") for anchor, words in _NAVIGATION]),
        class_="top",
    )


def _found_section(summary: Mapping[str, Any]) -> Markup:
    found = summary["found"]
    rows = [
        [
            shorten(file["path"]),
            file["format"],
            shorten(", ".join(f"{role}: {column}" for role, column in file["columns"].items())),
            number(file["rows"]),
        ]
        for file in found["files"][:20]
    ]
    more = len(found["files"]) - len(rows)
    caption = "Files, and the columns that were read" + (f"; {more:,} more like these" if more > 0 else "")
    return section(
        "found",
        "What was found",
        "The record that all strategies were replayed against.",
        tag("ul", [tag("li", shorten(line)) for line in summary["found_sentences"]]),
        tag("p", f"Beyond the record: {summary['beyond']}."),
        table(["file", "format", "columns", "rows"], rows, caption=caption, text_columns=3),
    )


def _method_section(summary: Mapping[str, Any]) -> Markup:
    terms = [join(tag("dt", name), tag("dd", words)) for name, words in _METHOD]
    options = json.dumps(summary["options"], indent=2, ensure_ascii=False)
    return section(
        "method",
        "Method",
        "How the figures are made.",
        tag("p", summary["cannot_know"]),
        tag("dl", terms),
        tag("details", tag("summary", "Settings"), tag("pre", options)),
    )
