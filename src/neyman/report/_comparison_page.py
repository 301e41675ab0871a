"""The page and the JSON file of a comparison of strategies over seeds."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from neyman._files.atomic import write_atomic
from neyman.report._comparison import Regime, read_regimes, summarise_regime
from neyman.report._document import document
from neyman.report._figures import draw_accuracy, draw_series
from neyman.report._looks import Look, looks
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
from neyman.report._parts import figure, legend, section
from neyman.report._series import series_of
from neyman.report._stats import Interval, accuracy_curve

_TRAINING = (
    ("effective_groups", "groups with signal in a step"),
    ("gradient_norm", "norm of the gradient"),
    ("entropy", "entropy of sampled tokens, nats"),
)
_METHOD = (
    ("Accuracy", "Exact: the mean over held-out prompts of the policy's chance to answer right."),
    (
        "Setting",
        "Each strategy, the reference too, at its best learning rate and group size. A seed is reported at the "
        "setting that was best on the other seeds, so the choice does not flatter; with one seed it does.",
    ),
    (
        "Rollouts to the reference",
        "Where the mean curve, made non-decreasing, reaches the mean final accuracy of the reference. Intervals: "
        "bootstrap over seeds, the reference's with the strategy's; with five seeds a 95 % interval covers some "
        "84 %. A strategy that does not get there has at least the budget, and no interval.",
    ),
    (
        "Oracle",
        "Selection and counts from the policy's exact success rates. The share of its saving compares rollouts to "
        "the reference's final accuracy, the share of its gain final accuracies. Who does not get there within the "
        "budget counts as having needed all of it: no saving.",
    ),
    (
        "Intervals and tests",
        "Accuracies: 95 %, Student's over seeds. Differences are paired by seed; p is of the exact sign-flip test, "
        "which with five seeds cannot be below .0625. Seeds vary the prompts' order and the sampling, on one "
        "starting policy.",
    ),
)


def comparison_summary(
    runs: Sequence[Mapping[str, Any]], *, reference: str = "uniform", oracle: str = "oracle"
) -> dict[str, Any]:
    """Return what is compared, JSON-safe: ``{"regimes": {REGIME: {"strategies": {NAME: figures}}}}``.

    Args:
        runs: as `neyman.lab.run` returns them.
        reference: the strategy that others are measured by.
        oracle: the strategy that is the ceiling; it may be absent.

    Raises:
        ArgumentError: no runs, none of the reference, or no seed common to all.
    """
    regimes = read_regimes(runs, reference=reference, oracle=oracle)
    return {"regimes": {regime.name: summarise_regime(regime) for regime in regimes}}


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
        notes: sentences that the page opens with, such as what is missing.
        command: how to get the same again.

    Returns:
        The summary.

    Guarantee: both files are whole or absent; the page needs no network, runs no script, and escapes every
    foreign string.
    """
    regimes = read_regimes(runs, reference=reference, oracle=oracle)
    summary = {"regimes": {regime.name: summarise_regime(regime) for regime in regimes}}
    folder = Path(out)
    text = json.dumps(summary, indent=2, allow_nan=False, ensure_ascii=False) + "\n"
    write_atomic(
        folder / "summary.json", text.encode("utf-8", "backslashreplace")
    )  # JSON spells half a pair so
    page = comparison_page(regimes, summary, notes=notes, command=command)
    write_atomic(folder / "report.html", page.encode())
    return summary


def comparison_page(
    regimes: Sequence[Regime], summary: Mapping[str, Any], *, notes: Sequence[str] = (), command: str = ""
) -> str:
    """Return the page as text."""
    title = "Strategies compared in the lab"
    names = list(dict.fromkeys(name for regime in regimes for name in regime.arms))
    chosen = looks(names, regimes[0].reference)
    seeds = sorted({seed for regime in regimes for seed in regime.seeds})
    header = tag(
        "header",
        tag("p", "neyman compare", class_="eyebrow"),
        tag("h1", title),
        tag(
            "ul",
            tag("li", f"{len(names)} strategies"),
            tag("li", f"{len(seeds)} seed{'s' if len(seeds) != 1 else ''}"),
            tag("li", f"{number(float(regimes[0].grid[-1]))} rollouts a run"),
            class_="facts",
        ),
        tag("nav", [tag("a", shorten(r.name), href=f"#regime-{i}") for i, r in enumerate(regimes)]),
        class_="top",
    )
    body = [
        _regime_section(i, regime, summary["regimes"][regime.name]["strategies"], chosen)
        for i, regime in enumerate(regimes)
    ]
    warning = tag("div", tag("ul", [tag("li", note) for note in notes]), class_="notes") if notes else None
    method = section(
        "method",
        "Method",
        "What the figures mean.",
        tag("dl", [join(tag("dt", name), tag("dd", words)) for name, words in _METHOD]),
        tag("p", "Command: ", tag("code", command)) if command else None,
    )
    return document(title, _sentence(regimes[0], summary), join(header, tag("main", warning, body, method)))


def _sentence(regime: Regime, summary: Mapping[str, Any]) -> str:
    """Say in a sentence who is ahead in a regime, if the interval allows."""
    arms = summary["regimes"][regime.name]["strategies"]
    ahead = [
        name
        for name, one in arms.items()
        if name not in (regime.reference, regime.oracle)
        and (one["difference_to_reference"]["low"] or 0.0) > 0.0
    ]
    if not ahead:
        return f"In {regime.name} no strategy is clearly ahead of {regime.reference} at equal rollouts."
    best = max(ahead, key=lambda name: arms[name]["final_accuracy"]["mean"])
    gain = arms[best]["difference_to_reference"]
    return (
        f"In {regime.name} {best} is ahead of {regime.reference} at equal rollouts, by {100 * gain['mean']:.1f} "
        f"points ({100 * gain['low']:.1f} to {100 * gain['high']:.1f})."
    )


def _regime_section(
    place: int, regime: Regime, arms: Mapping[str, Any], chosen: Mapping[str, Look]
) -> Markup:
    mine = {name: chosen[name] for name in regime.arms}
    pictures = []
    for cost, words in (("rollouts", "rollouts generated"), ("tokens", "tokens generated")):
        over = {name: arm.over(cost) for name, arm in regime.arms.items()}
        draw = partial(
            draw_accuracy,
            curves={name: accuracy_curve(pairs) for name, pairs in over.items()},
            seeds=over,
            looks=mine,
            x_label=words,
            target=arms[regime.reference]["final_accuracy"]["mean"],
        )
        pictures.append(figure(f"regime-{place}-{cost}", f"Accuracy over {words}", draw))
    return section(
        f"regime-{place}",
        f"Regime {shorten(regime.name)}",
        _sentence(regime, {"regimes": {regime.name: {"strategies": arms}}}),
        legend(mine),
        tag("div", pictures, class_="plots"),
        _main_table(regime, arms),
        tag("div", _training_figures(place, regime, mine), class_="plots"),
        _training_table(arms),
        tag("details", tag("summary", "Every learning rate and group size"), _settings_table(arms)),
    )


def _training_figures(place: int, regime: Regime, mine: Mapping[str, Look]) -> list[Markup]:
    pictures = []
    for key, words in _TRAINING:
        series = {}
        for name, arm in regime.arms.items():
            values = [np.asarray(run["steps"][key], dtype=np.float64) for run in arm.runs]
            one = series_of([(np.arange(1, len(v) + 1), v) for v in values])
            if one is not None:
                series[name] = one
        draw = partial(draw_series, series=series, looks=mine, y_label=words)
        pictures.append(figure(f"regime-{place}-{key}", f"{words.capitalize()}, smoothed", draw, (5.2, 3.0)))
    return pictures


def _main_table(regime: Regime, arms: Mapping[str, Any]) -> Markup:
    rows = [
        [
            shorten(name),
            _accuracy(one["final_accuracy"]),
            "-" if name == regime.reference else difference(_as_interval(one["difference_to_reference"])),
            "-" if name == regime.reference else number(_nan(one["difference_to_reference"]["p_value"]), 3),
            _accuracy(one["accuracy_at_equal_tokens"]),
            _cost(one["rollouts_to_reference"]),
            _ratio(one["oracle_saving_captured"]),
            _ratio(one["oracle_gain_captured"]),
            f"{one['setting']['learning_rate']:g}, n = {one['setting']['group_size']}",
        ]
        for name, one in arms.items()
    ]
    head = [
        "strategy",
        "final accuracy, %",
        f"against {shorten(regime.reference)}, points",
        "p",
        "at equal tokens, %",
        f"rollouts to {shorten(regime.reference)}'s final",
        "oracle's saving, %",
        "oracle's gain, %",
        "most often at",
    ]
    caption = f"At {number(float(regime.grid[-1]))} rollouts, and at {number(regime.tokens)} tokens"
    return table(head, rows, caption=caption)


def _training_table(arms: Mapping[str, Any]) -> Markup:
    rows = [
        [
            shorten(name),
            number(_nan(one["steps"]["mean"])),
            number(_nan(one["effective_groups_per_step"]["mean"]), 1),
            percent(_nan(one["coverage"]["mean"])),
            number(_nan(one["gradient_norm"]["mean"]), 3),
            number(_nan(one["policy_entropy"]["mean"]), 3),
        ]
        for name, one in arms.items()
    ]
    head = [
        "strategy",
        "steps",
        "effective groups a step",
        "pool visited",
        "gradient norm",
        "policy entropy, nats",
    ]
    return table(head, rows, caption="Means over steps and seeds")


def _settings_table(arms: Mapping[str, Any]) -> Markup:
    rows = [
        [shorten(name), f"{s['learning_rate']:g}", str(s["group_size"]), _accuracy(s["final_accuracy"])]
        for name, one in arms.items()
        for s in one["settings"]
    ]
    head = ["strategy", "learning rate", "group size", "final accuracy, %"]
    return table(head, rows, caption="Final accuracy over all seeds")


def _as_interval(figures: Mapping[str, Any]) -> Interval:
    return Interval(_nan(figures["mean"]), _nan(figures["low"]), _nan(figures["high"]), 0)


def _accuracy(figures: Mapping[str, Any]) -> Markup:
    return with_interval(_as_interval(figures), 100.0)


def _ratio(figures: Mapping[str, Any] | None) -> Markup:
    return Markup("-") if figures is None else with_interval(_as_interval(figures), 100.0, 0)


def _cost(figures: Mapping[str, Any]) -> Markup:
    if figures["censored"]:
        return join("over ", number(figures["mean"]))
    mean, low, high = (_nan(figures[key]) for key in ("mean", "low", "high"))
    if not np.isfinite(low):
        return join(tag("b", number(mean)))
    top = number(high) if np.isfinite(high) else "never"
    return join(tag("b", number(mean)), tag("small", f"{number(low)} to {top}"))


def _nan(value: float | None) -> float:
    return float("nan") if value is None else float(value)
