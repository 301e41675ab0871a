"""The README's picture, from the kept figures: the cost of rollouts with signal, and learning curves."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from marks import kept

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_INK, _MUTED, _GRID, _DOTS = "#1b2430", "#5d6875", "#e2e6eb", "#8b95a1"
_OURS = "#d55e00"
# Okabe and Ito's hues, distinct for colour-blind readers; every line also has its own dash or width.
_LINES = {
    "oracle": ("#00916a", (0, (1, 1.2)), 1.8),
    "neyman": (_OURS, "-", 2.6),
    "uniform": (_MUTED, (0, (5, 2)), 1.8),
    "dynamic-sampling": ("#0072b2", (0, (4, 1.5, 1, 1.5)), 1.8),
}
# Labelled dots: label, its offset from the dot (points), and its horizontal alignment.
_NAMES = {
    "uniform": ("uniform", (7, -3), "left"),
    "dynamic-sampling": ("dynamic-sampling", (7, -2), "left"),
    "sara": ("sara", (7, -3), "left"),
    "sara+dps": ("sara+dps", (-6, -3), "right"),
    "dps": ("dps", (7, -3), "left"),
    "greso": ("greso", (-6, -3), "right"),
    "sara+mopps": ("sara+mopps", (-6, -3), "right"),
    "mopps": ("mopps", (-6, -3), "right"),
    "curriculum": ("curriculum", (-6, -3), "right"),
    "mopps:explore=mean:fade=1": ("mopps, mean", (-6, -3), "right"),
    "neyman": ("neyman", (-9, -3), "right"),
}
_TOP = 2.1  # waste above it is drawn at the edge, with its value


def headline(out: Path) -> None:
    """Draw waste against neglect on the recorded run beside learning curves in the lab.

    Args:
        out: the picture, .svg, or .png for a preview. Nothing is drawn if the figures are not kept.
    """
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    if (figures := kept("replay")) is None or (learnt := kept("lab")) is None:
        return
    others = kept("replay_published") or {"strategies": {}}
    with mpl.rc_context({"svg.hashsalt": "neyman", "font.size": 8}):
        figure = _draw({**others["strategies"], **figures["strategies"]}, learnt["regimes"])
        if out.suffix == ".png":
            FigureCanvasAgg(figure).print_png(out)
        else:
            FigureCanvasSVG(figure).print_svg(out, metadata={"Date": None, "Creator": None})


def _draw(strategies: dict[str, Any], regimes: dict[str, Any]) -> Figure:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 3.7), layout="constrained")
    left, right = figure.subfigures(1, 2, width_ratios=(1.12, 1.0))
    left.suptitle("A real GRPO run, replayed", color=_INK, fontsize=9, weight="bold")
    right.suptitle("A small policy in the lab", color=_INK, fontsize=9, weight="bold")
    _draw_waste(left.add_subplot(), strategies)
    upper, lower = right.subplots(2, 1, sharex=True)
    _draw_curves(upper, regimes["hard"]["strategies"], "hard: most are never solved at first")
    _draw_curves(lower, regimes["ushape"]["strategies"], "U-shaped: most too hard or too easy")
    lower.set_xlabel("rollouts, thousands", color=_MUTED)
    right.supylabel("held-out problems solved, %", color=_MUTED, fontsize=8)
    return figure


def _draw_waste(axes: Axes, strategies: dict[str, Any]) -> None:
    """Draw each strategy that trains full groups at its longest gap and its waste factor."""
    for name, s in strategies.items():
        if s["waste_factor_counts"] != "full":
            continue
        x, y, ours = s["max_revisit_gap"]["mean"], s["waste_factor"]["mean"], name == "neyman"
        if y > _TOP and ":" in name:
            continue
        if y > _TOP:
            axes.plot(x, _TOP - 0.03, "^", color=_DOTS, markersize=5)
            axes.annotate(
                f"{name} {y:.1f}", (x, _TOP - 0.03), xytext=(6, -3), textcoords="offset points", fontsize=7
            )
            continue
        axes.plot(
            x, y, "*" if ours else "o", color=_OURS if ours else _DOTS, markersize=13 if ours else 5, zorder=3
        )
        if name in _NAMES:
            words, place, side = _NAMES[name]
            axes.annotate(
                words, (x, y), xytext=place, textcoords="offset points", ha=side, color=_OURS if ours else _INK,
                weight="bold" if ours else "normal", fontsize=9 if ours else 7.5,
            )  # fmt: skip
    axes.set_xscale("log")
    axes.set_xlim(1, 26)
    axes.set_xticks([1, 2, 3, 5, 10, 20], ["1", "2", "3", "5", "10", "20"])
    axes.minorticks_off()
    axes.set_ylim(1.0, _TOP)
    axes.set_xlabel("longest time without a look at some prompt, passes", color=_MUTED)
    axes.set_ylabel("rollouts paid per rollout with signal (1 is perfect)", color=_MUTED)
    _dress(axes)


def _draw_curves(axes: Axes, strategies: dict[str, Any], title: str) -> None:
    """Draw accuracy over rollouts, each line labelled at its end."""
    ends = {name: 100 * strategies[name]["curve"]["accuracy"][-1] for name in _LINES}
    first = 100 * strategies["uniform"]["curve"]["accuracy"][0]
    for name, (colour, dash, width) in _LINES.items():
        curve = strategies[name]["curve"]
        axes.plot(
            [rollouts / 1000 for rollouts in curve["rollouts"]], [100 * share for share in curve["accuracy"]],
            color=colour, linestyle=dash, linewidth=width, zorder=3 if name == "neyman" else 2,
        )  # fmt: skip
    height = max(ends.values()) - first
    end = strategies["uniform"]["curve"]["rollouts"][-1] / 1000
    for name, place in _apart(ends, least=0.135 * height).items():
        axes.annotate(
            name, (end, place), xytext=(5, -3), textcoords="offset points", color=_LINES[name][0],
            weight="bold" if name == "neyman" else "normal", annotation_clip=False,
        )  # fmt: skip
    axes.set_title(title, color=_INK, fontsize=8, loc="left")
    axes.set_xlim(0, end)
    _dress(axes)


def _apart(places: dict[str, float], least: float) -> dict[str, float]:
    """Return heights at least ``least`` apart, from the top down, the highest where it was."""
    found: dict[str, float] = {}
    for name, place in sorted(places.items(), key=lambda item: -item[1]):
        found[name] = min([place, *(above - least for above in found.values())])
    return found


def _dress(axes: Axes) -> None:
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(_MUTED)
    axes.grid(visible=True, color=_GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(colors=_MUTED, length=0)
