"""The sections of a replay's page: a picture and the numbers beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from neyman.report._figures import draw_calibration, draw_fates
from neyman.report._groups import Calibration
from neyman.report._looks import Look, fate_colour, fate_order, fate_words
from neyman.report._markup import Markup, join, number, percent, table, tag
from neyman.report._parts import figure, legend, section
from neyman.report._replay_figures import calibration_of, draw_intervals, draw_over_passes


def _cell(entry: Mapping[str, float | None], digits: int = 2, scale: float = 1.0, unit: str = "") -> Markup:
    mean, low, high = entry["mean"], entry["low"], entry["high"]
    if mean is None:
        return Markup("-")
    bold = tag("b", f"{scale * mean:,.{digits}f}{unit}")
    if low is None or high is None:
        return bold
    return join(bold, tag("small", f"{scale * low:,.{digits}f} to {scale * high:,.{digits}f}"))


def _table(
    strategies: Mapping[str, Mapping[str, Any]], columns: Sequence[tuple[str, str, int]], caption: str
) -> Markup:
    used = [c for c in columns if any(s[c[0]]["mean"] is not None for s in strategies.values())]
    rows = [[name, *(_cell(s[key], digits) for key, _, digits in used)] for name, s in strategies.items()]
    return table(["strategy", *(words for _, words, _ in used)], rows, caption=caption)


def yield_section(
    strategies: Mapping[str, Any], series: Mapping[str, Any], chosen: Mapping[str, Look], k: int
) -> Markup:
    """What the rollouts bought."""
    per_1000 = {name: s["effective_groups_per_1000_rollouts"] for name, s in strategies.items()}
    height = 1.1 + 0.36 * len(strategies)
    pictures = [
        figure(
            "per-1000",
            "Effective groups per 1,000 rollouts",
            partial(
                draw_intervals,
                entries=per_1000,
                looks=chosen,
                label=f"effective groups; dotted: all of {k} mixed",
                mark=1000.0 / k,
            ),
            (5.2, height),
        ),
        figure(
            "over-passes",
            "Effective groups per 1,000 rollouts, over the record",
            partial(
                draw_over_passes,
                series=series["effective_groups_per_1000_rollouts"],
                at=series["passes"],
                looks=chosen,
                label="effective groups",
            ),
            (5.2, 3.3),
        ),
    ]
    columns = (
        ("effective_ratio", "effective ratio of what is trained", 3),
        ("effective_groups_per_1000_rollouts", "effective groups per 1,000 rollouts", 1),
        ("effective_groups_per_million_tokens", "per million tokens", 1),
        ("waste_factor", "waste factor", 3),
        ("effective_of_opened", "effective of those opened", 3),
        ("group_size_mean", "mean size", 1),
        ("rounds_per_step", "rounds a step", 1),
        ("rollouts", "rollouts", 0),
    )
    marked = {
        (f"{name} *" if s["waste_factor_counts"] == "any" else name): s for name, s in strategies.items()
    }
    return section(
        "yield",
        "What rollouts bought",
        "A group is effective when its outcomes are mixed. Strategies marked * train groups of other sizes, and their "
        "waste factor counts mixed groups of any size.",
        legend(chosen),
        tag("div", pictures, class_="plots"),
        _table(marked, columns, "Means over seeds with their 95 % intervals"),
    )


def signal_section(strategies: Mapping[str, Any], chosen: Mapping[str, Look]) -> Markup:
    """What verdicts gave away."""
    entries = {name: s["signal_kept"] for name, s in strategies.items()}
    picture = figure(
        "signal-kept",
        "Signal kept by verdicts",
        partial(
            draw_intervals, entries=entries, looks=chosen, label="share of the sum of s (k - s)", mark=1.0
        ),
        (5.2, 1.1 + 0.36 * len(strategies)),
    )
    columns = (
        ("signal_kept", "signal kept", 3),
        ("miss_rate", "missed of those given up", 3),
        ("sum_v_over_n", "sum v/n a step", 2),
    )
    return section(
        "signal",
        "Signal",
        "What verdicts gave away, and the variance that group sizes leave.",
        tag(
            "div",
            picture,
            tag("div", _table(strategies, columns, "Means over seeds with their 95 % intervals")),
            class_="plots",
        ),
    )


def coverage_section(strategies: Mapping[str, Any], chosen: Mapping[str, Look]) -> Markup:
    """Which prompts were left alone, and for how long."""
    entries = {name: s["max_revisit_gap"] for name, s in strategies.items()}
    picture = figure(
        "gaps",
        "Longest time without an opening, of any prompt",
        partial(draw_intervals, entries=entries, looks=chosen, label="passes over the prompts"),
        (5.2, 1.1 + 0.36 * len(strategies)),
    )
    columns = (
        ("coverage", "coverage", 3),
        ("max_revisit_gap", "longest gap, passes", 2),
        ("staleness", "staleness, passes", 2),
        ("beyond_share", "rollouts beyond the record", 3),
    )
    return section(
        "coverage",
        "Coverage and staleness",
        "A strategy that leaves prompts alone cannot know when they have become learnable.",
        tag(
            "div",
            picture,
            tag("div", _table(strategies, columns, "Means over seeds with their 95 % intervals")),
            class_="plots",
        ),
    )


def belief_section(
    strategies: Mapping[str, Any], bins: Mapping[str, Any], chosen: Mapping[str, Look]
) -> Markup:
    """Whether predictions came true."""
    calibrations = {name: calibration_of(bins[name], s) for name, s in strategies.items()}
    spread = {name: c for name, c in calibrations.items() if (c.trials > 0).sum() > 1}
    columns = (
        ("log_loss", "log-loss", 3),
        ("log_loss_first", "at a prompt's first opening", 3),
        ("log_loss_later", "later", 3),
        ("brier", "Brier", 3),
        ("ece", "ECE", 3),
    )
    scores = _table(
        strategies, columns, "Scores per rollout, lower is better; a belief that knows nothing has .693"
    )
    body: list[Markup | None] = [tag("p", "No strategy here has a predictor.", class_="empty"), scores]
    if spread:
        picture = figure(
            "calibration",
            "Realised against predicted success rate",
            partial(draw_calibration, calibrations=spread, looks=chosen),
            (5.2, 4.2),
        )
        rows = [
            [
                label,
                *(
                    f"{percent(c.realised[i])} of {number(c.trials[i])}" if c.trials[i] else "-"
                    for c in spread.values()
                ),
            ]
            for i, label in enumerate(next(iter(spread.values())).labels)
        ]
        caption = "Realised success rate in each bin of the prediction, of so many rollouts over all seeds"
        body = [
            legend({name: chosen[name] for name in spread}),
            tag("div", picture, class_="plots"),
            scores,
            table(["predicted", *spread], rows, caption=caption),
        ]
    lead = "Predictions are made before a group is opened. On the dotted diagonal they are right."
    return section("belief", "Predictions", lead, *body)


def _realised(calibration: Calibration, place: int) -> str:
    trials = calibration.trials[place]
    return f"{percent(calibration.realised[place])} of {number(trials)}" if trials else "-"


def fates_section(strategies: Mapping[str, Any]) -> Markup:
    """Where rollouts went."""
    fates = {
        name: {fate: round(1e6 * entry["mean"]) for fate, entry in s["fates"].items() if entry["mean"]}
        for name, s in strategies.items()
    }
    order = fate_order(fates.values())
    marks = [
        tag(
            "li",
            tag("i", class_="box", style=f"background: var(--{fate_colour(fate).name})"),
            fate_words(fate),
        )
        for fate in order
    ]
    height = 0.9 + 0.42 * len(fates)
    wide = figure("fates", "Rollouts by fate", partial(draw_fates, fates=fates), (10.6, height))
    narrow = figure("fates-narrow", "Rollouts by fate", partial(draw_fates, fates=fates), (5.2, height))
    none = {"mean": None, "low": None, "high": None}
    rows = [
        [name, *(_cell(s["fates"].get(fate, none), 1, 100.0, " %") for fate in order)]
        for name, s in strategies.items()
    ]
    return section(
        "rollouts",
        "Where rollouts went",
        "Every rollout has exactly one fate. What was abandoned or surplus is paid for like the rest.",
        tag("ul", marks, class_="legend"),
        tag("div", wide, class_="plots wide"),
        tag("div", narrow, class_="plots narrow"),
        table(["strategy", *map(fate_words, order)], rows, caption="Share of the rollouts asked for"),
    )


def difficulty_section(difficulty: Mapping[str, Any] | None) -> Markup:
    """What the counts alone let one expect."""
    lead = (
        "What the recorded counts alone let one expect (unbiased estimates, prompts drawn at random), as neyman plan "
        "says it."
    )
    if difficulty is None:
        words = "The recorded visits hold fewer rollouts than a group, so there is no unbiased estimate."
        return section("difficulty", "Difficulty", lead, tag("p", words, class_="empty"))
    shares = [
        [name, _cell(difficulty[key], 1, 100.0, " %")]
        for key, name in (("never", "never solved"), ("always", "always solved"), ("dead", "without signal"))
    ]
    ways = [
        [
            name,
            number(way["probe"]),
            _cell(way["rollouts_per_group"], 1),
            _cell(way["saving"], 1, 100.0, " %"),
            percent(way["signal_kept"]),
        ]
        for name, way in difficulty["ways"].items()
    ]
    size = difficulty["group_size"]
    return section(
        "difficulty",
        "Difficulty",
        lead,
        table(["groups", "share"], shares, caption=f"Groups of {size}"),
        table(
            ["way", "gives up after", "rollouts per effective group", "saving", "signal kept"],
            ways,
            caption="Against dynamic sampling; a perfect choice opens effective groups only",
        ),
        tag(
            "p",
            f"The yield condition of early verdicts {'holds' if difficulty['yield_holds'] else 'fails'} here.",
        ),
    )
