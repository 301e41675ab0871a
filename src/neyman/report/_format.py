"""Numbers, intervals and foreign strings as text for pages and sentences."""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np

from neyman.report._stats import NAN, Interval

LONGEST = 160  # characters of a foreign string that are shown
# Invisible characters that hide or reorder the rest: control characters, halves of surrogate pairs, and marks that turn
# the direction of writing.
_INVISIBLE = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")

Figure = Interval | Mapping[str, float | None]  # with mean, low and high; None is unknown
Cell = str | tuple[str, str]  # text, or a bold figure with a line of small print that may be empty


def visible(text: object) -> str:
    r"""Spell out every character of a text that cannot be seen or written.

    >>> print(visible("a\0b"))
    a\u0000b
    """
    return _INVISIBLE.sub(lambda found: f"\\u{ord(found.group()):04x}", str(text))


def shorten(text: object, longest: int = LONGEST) -> str:
    """Cut a foreign string to a length that fits a table."""
    words = str(text)
    return words if len(words) <= longest else words[: longest - 1] + "…"


def number(value: float | None, digits: int = 0) -> str:
    """Write a number with thousands separators; a dash where it is unknown."""
    return "-" if value is None or not np.isfinite(value) else f"{value:,.{digits}f}"


def significant(value: float) -> str:
    """Write a number of unknown scale with four significant digits."""
    return f"{value:.4g}" if np.isfinite(value) else "-"


def percent(value: float | None, digits: int = 1) -> str:
    """Write a share as a percentage; a dash where it is unknown."""
    return "-" if value is None or not np.isfinite(value) else f"{100.0 * value:.{digits}f} %"


def share_of(part: float, whole: float) -> str:
    """Write a part of a whole as a percentage; a dash where there is no whole."""
    return percent(part / whole) if whole else "-"


def points(low: float, high: float) -> str:
    """Write the bounds of a difference of shares in percentage points."""
    return f"{100.0 * low:+.1f} to {100.0 * high:+.1f}"


def interval(figure: Figure, digits: int = 1, scale: float = 1.0, unit: str = "") -> Cell:
    """Write a mean with its bounds; a dash where it is unknown."""
    mean, low, high = _parts(figure)
    if not np.isfinite(mean):
        return "-"
    bounds = f"{scale * low:,.{digits}f} to {scale * high:,.{digits}f}" if np.isfinite(low) else ""
    return f"{scale * mean:,.{digits}f}{unit}", bounds


def difference(figure: Figure) -> Cell:
    """Write a difference of shares in percentage points, signed, with its bounds."""
    mean, low, high = _parts(figure)
    if not np.isfinite(mean):
        return "-"
    return f"{100.0 * mean:+.1f}", points(low, high) if np.isfinite(low) else "no interval"


def listed(pairs: Mapping[str, str]) -> str:
    """Write a mapping in one line.

    >>> listed({"prompt": "problem", "reward": "score"})
    'prompt: problem, reward: score'
    """
    return ", ".join(f"{name}: {value}" for name, value in pairs.items())


def plural(count: int, noun: str) -> str:
    """Write a count with its noun.

    >>> plural(1, "seed"), plural(2, "seed")
    ('1 seed', '2 seeds')
    """
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def _parts(figure: Figure) -> tuple[float, float, float]:
    """Mean, low and high; NaN where unknown, the bounds both or none."""
    values = figure.as_dict() if isinstance(figure, Interval) else figure
    mean, low, high = (NAN if (value := values[key]) is None else value for key in ("mean", "low", "high"))
    return (mean, low, high) if np.isfinite(low) and np.isfinite(high) else (mean, NAN, NAN)
