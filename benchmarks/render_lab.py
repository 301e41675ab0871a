"""The tables of the lab: learning curves, group sizes, other conditions."""

from __future__ import annotations

from typing import Any

from asked import ALL, ASIDE, CONDITIONS, LAB, LAB_SIZES
from marks import interval, kept, table

Figures = dict[str, Any]

ALIKE = (
    "In groups of 4 `speed`'s screening of 4 is the whole group, so it equals `dynamic-sampling`; `ridge` without "
    "features equals `uniform`."
)


def lab(figures: Figures) -> list[str]:
    """Render learning curves in the lab."""
    sections = [
        "## Learning curves in the lab",
        "",
        f"`neyman compare {' '.join(LAB)} --out lab`: each seed at the learning rate that was best on the other seeds; "
        f"the reference is `uniform` at its best; 95 % intervals. {equal_tokens(figures)}{_rates_so_far(figures)}",
        *regimes(figures),
    ]
    everything = kept("lab_all")
    if everything is not None:
        sections += [
            "",
            "### Every preset",
            "",
            f"`neyman compare {' '.join(ALL)} --out lab_all`, as above. {equal_tokens(everything)} {ALIKE}",
            *regimes(everything, level="####"),
        ]
    return [*sections, *_sizes(figures), *_conditions()]


def regimes(figures: Figures, level: str = "###") -> list[str]:
    """Render a table of strategies for each regime."""
    header = ["strategy", "final accuracy, %", "paired difference, points", "rollouts to uniform's final",
              "rollouts to dynamic sampling's final", "share of the oracle's gain"]  # fmt: skip
    sections = []
    for regime, found in figures["regimes"].items():
        rows = [
            [f"`{name}`", interval(s["final_accuracy"], 100), interval(s["difference_to_reference"], 100),
             interval(s["rollouts_to_reference"], digits=0),
             interval(s["rollouts_to"]["dynamic-sampling"], digits=0), interval(s["oracle_gain_captured"], 1, 2)]
            for name, s in found["strategies"].items()
        ]  # fmt: skip
        sections += ["", f"{level} {regime}", "", *table(header, rows)]
    return sections


def equal_tokens(figures: Figures) -> str:
    """Compare accuracy at equal tokens with accuracy at equal rollouts, in a sentence."""
    apart = 100 * max(
        abs(s["difference_at_equal_tokens"]["mean"] - s["difference_to_reference"]["mean"])
        for found in figures["regimes"].values()
        for s in found["strategies"].values()
    )
    if apart < 1e-9:
        return (
            "Accuracy is at equal rollouts, which here means equal tokens too, also for strategies that discard "
            "rollouts: every answer has four tokens, and every drawn rollout is paid for."
        )
    return (
        f"Accuracy is at equal rollouts; at equal tokens the differences change by up to {apart:.1f} points."
    )


def _rates_so_far(figures: Figures) -> str:
    """List the rates that were measured if they differ from the command's."""
    measured = {
        setting["learning_rate"]
        for found in figures["regimes"].values() for s in found["strategies"].values() for setting in s["settings"]
    }  # fmt: skip
    if measured == set(map(float, LAB[LAB.index("--rates") + 1].split(","))):
        return ""
    return f" (Measured so far: rates {', '.join(f'{rate:g}' for rate in sorted(measured))}.)"


def _sizes(lab_figures: Figures) -> list[str]:
    """Render every strategy at its best group size, and its accuracy at each size."""
    rows, commands, names, beside = [], [], {}, False
    for name, words in LAB_SIZES.items():
        if (figures := kept(name)) is None:
            continue
        commands.append(f"`neyman compare {' '.join(words)} --out {name}`")
        for regime, found in figures["regimes"].items():
            for strategy, s in found["strategies"].items():
                names[strategy] = f"`{strategy}`"
                rate = lab_figures["regimes"][regime]["strategies"][strategy]["setting"]["learning_rate"]
                elsewhere = rate not in {setting["learning_rate"] for setting in s["settings"]}
                beside |= elsewhere
                best = {
                    size: max(
                        100 * setting["final_accuracy"]["mean"]
                        for setting in s["settings"] if setting["group_size"] == size
                    )
                    for size in (2, 4, 8)
                }  # fmt: skip
                rows.append(
                    [regime, f"`{strategy}`" + (" †" if elsewhere else ""), *(f"{mean:.1f}" for mean in best.values()),
                     interval(s["final_accuracy"], 100), interval(s["difference_to_reference"], 100),
                     interval(s["rollouts_to_reference"], digits=0), interval(s["oracle_gain_captured"], 1, 2)]
                )  # fmt: skip
    if not rows:
        return []
    header = ["regime", "strategy", "64 x 2", "32 x 4", "16 x 8", "at the best, %", "paired difference, points",
              "rollouts to uniform's final", "share of the oracle's gain"]  # fmt: skip
    return [
        "",
        f"### {', '.join(names.values())}, each at its best group size",
        "",
        " and ".join(commands)
        + ": prompts x rollouts of a step, final accuracy at the better of two rates (mean over "
        "seeds, %); then each seed at the size and rate that were best on the other seeds, the reference too."
        + (
            " †: its best rate at 32 x 4 in the tables above is not one of the two here, so this row may not be "
            "its best."
            if beside
            else ""
        ),
        "",
        *table(header, rows),
    ]


def _conditions() -> list[str]:
    """Render `neyman` against uniform under other conditions."""
    rows = [
        [what, f"`{' '.join(flags)}`", regime,
         *(interval(found["strategies"][name]["final_accuracy"], 100) for name in ("uniform", "neyman")),
         interval(s["difference_to_reference"], 100), interval(s["oracle_gain_captured"], 1, 2)]
        for name, (what, flags) in CONDITIONS.items() if (figures := kept(name))
        for regime, found in figures["regimes"].items() for s in [found["strategies"]["neyman"]]
    ]  # fmt: skip
    if not rows:
        return []
    header = ["condition", "flags", "regime", "`uniform`, %", "`neyman`, %", "paired difference, points",
              "share of the oracle's gain"]  # fmt: skip
    return [
        "",
        "### `neyman` under other conditions",
        "",
        f"`neyman compare {' '.join(ASIDE)} FLAGS --out DIR`: final accuracy at equal rollouts.",
        "",
        *table(header, rows),
        *_lengths(),
    ]


def _lengths() -> list[str]:
    """Render accuracy at equal tokens where wrong answers are longer, which changes it."""
    if (figures := kept("lab_lengths")) is None:
        return []
    what, flags = CONDITIONS["lab_lengths"]
    rows = [
        [regime, f"`{name}`", interval(s["difference_to_reference"], 100),
         interval(s["accuracy_at_equal_tokens"], 100), interval(s["difference_at_equal_tokens"], 100)]
        for regime, found in figures["regimes"].items() for name, s in found["strategies"].items()
    ]  # fmt: skip
    spent = " and ".join(
        f"{found['compared_at']['tokens']:,.0f} ({regime})" for regime, found in figures["regimes"].items()
    )
    header = ["regime", "strategy", "difference at equal rollouts, points", "accuracy at equal tokens, %",
              "difference at equal tokens, points"]  # fmt: skip
    return [
        "",
        f"Where {what} (`{' '.join(flags)}`), accuracy at equal tokens differs: it is measured after as many "
        f"tokens as the cheapest run spent, {spent}. A strategy that draws prompts it fails pays more per rollout.",
        "",
        *table(header, rows),
    ]
