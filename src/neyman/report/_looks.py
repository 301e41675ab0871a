"""Colours and markers: distinct for colour-blind readers, each with a twin for dark pages.

Figures are drawn in the light colours. Where a figure is embedded, each colour becomes a CSS variable, so one
picture serves both. No strategy is known by its colour alone: each also has a dash and a marker.
Source of the hues: Okabe and Ito, 2008, Color universal design.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Colour:
    """A colour by the name of its CSS variable, on light and on dark pages."""

    name: str
    light: str
    dark: str


@dataclass(frozen=True)
class Look:
    """Colour, dash and marker of a strategy."""

    colour: Colour
    dash: Any
    marker: str
    glyph: str  # the marker as a character, for legends in text


INK = Colour("ink", "#1b2430", "#e8edf3")
MUTED = Colour("muted", "#5d6875", "#9aa7b5")
GRID = Colour("grid", "#e2e6eb", "#2c3642")
PAPER = Colour("paper", "#fffffe", "#171e27")

_REFERENCE = Look(Colour("s-ref", "#66717f", "#a9b5c2"), (0, (5, 2)), "s", "■")
_OTHERS = (
    Look(Colour("s-0", "#0072b2", "#56b4e9"), "-", "o", "●"),
    Look(Colour("s-1", "#d55e00", "#ff8f4f"), "-", "^", "▲"),
    Look(Colour("s-2", "#00916a", "#3ccf9f"), "-", "D", "◆"),
    Look(Colour("s-3", "#b5559b", "#e79ccb"), "-", "v", "▼"),
    Look(Colour("s-4", "#b98500", "#f2c14e"), "-", "P", "✚"),
    Look(Colour("s-5", "#4b45b8", "#a6a2ff"), "-", "X", "✖"),
)
_SPARE_DASHES = ((0, (1, 1)), (0, (3, 1, 1, 1)), (0, (8, 2)))

_FATES = {
    "trained": Colour("f-trained", "#0072b3", "#4aa8de"),
    "uniform": Colour("f-uniform", "#9ec9e3", "#2f5873"),
    "abandoned": Colour("f-abandoned", "#e69f00", "#e6a623"),
    "surplus": Colour("f-surplus", "#00916b", "#3ccf9e"),
    "dropped": Colour("f-dropped", "#b5559c", "#e79cca"),
    "expired": Colour("f-expired", "#7d6bb0", "#a897da"),
    "failed": Colour("f-failed", "#c8401f", "#ff7a5c"),
    "timeout": Colour("f-timeout", "#8f2d3b", "#d3687a"),
    "aborted": Colour("f-aborted", "#70461c", "#b98a5b"),
    "late": Colour("f-late", "#3d4753", "#c3ccd6"),
    "padding": Colour("f-padding", "#b9c1ca", "#5d6875"),
}
_OTHER_FATE = Colour("f-other", "#8b95a1", "#77838f")
# For the ledger's names that could be misread.
_FATE_WORDS = {
    "trained": "trained on, mixed group",
    "uniform": "trained on, no signal",
    "unsettled": "not settled yet",
}


def looks(strategies: Iterable[str], reference: str) -> dict[str, Look]:
    """Give each strategy its look: the reference a grey dashed line, the others by their order.

    >>> [look.marker for look in looks(["uniform", "vip"], "uniform").values()]
    ['s', 'o']
    """
    chosen: dict[str, Look] = {}
    for name in strategies:
        if name == reference:
            chosen[name] = _REFERENCE
            continue
        number = len(chosen) - (reference in chosen)
        base = _OTHERS[number % len(_OTHERS)]
        lap = number // len(_OTHERS)
        dash = base.dash if lap == 0 else _SPARE_DASHES[(lap - 1) % len(_SPARE_DASHES)]
        chosen[name] = Look(base.colour, dash, base.marker, base.glyph)
    return chosen


def fate_colour(fate: str) -> Colour:
    """Colour of a fate."""
    return _FATES.get(fate, _OTHER_FATE)


def fate_words(fate: str) -> str:
    """Name of a fate for readers of the page."""
    return _FATE_WORDS.get(fate, fate)


def fate_order(fates: Iterable[Iterable[str]]) -> list[str]:
    """Every fate that occurs, the ledger's own first and in its order.

    >>> fate_order([["failed", "trained"], ["lost"]])
    ['trained', 'failed', 'lost']
    """
    present = list(dict.fromkeys(fate for one in fates for fate in one))
    return [fate for fate in _FATES if fate in present] + [fate for fate in present if fate not in _FATES]


def all_colours() -> list[Colour]:
    """Every colour that a figure may use, each light value once."""
    strategies = (look.colour for look in (_REFERENCE, *_OTHERS))
    return [INK, MUTED, GRID, PAPER, *strategies, *_FATES.values(), _OTHER_FATE]
