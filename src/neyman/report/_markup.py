"""HTML that cannot be forgotten to be escaped: every string is text unless it was built here."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence

import numpy as np

from neyman.report._stats import Interval

_VOID = {"meta", "link", "br"}
LONGEST = 160  # characters of a foreign string that are shown
# What no reader sees but what hides or reorders the rest: control characters, halves of surrogate pairs, and marks that
# turn the direction of writing.
_UNSEEN = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


class Markup(str):
    """A string that is HTML already."""

    __slots__ = ()


Child = str | int | float | None


def plain(text: object) -> str:
    r"""Return text of which every character can be seen and written: others are spelt out.

    >>> print(plain("a\0b"))
    a\u0000b
    """
    return _UNSEEN.sub(lambda found: f"\\u{ord(found.group()):04x}", str(text))


def escape(text: object) -> str:
    """Return text that is safe between tags and in attributes, and shown as it is."""
    return html.escape(plain(text), quote=True)


def tag(name: str, *children: Child | Iterable[Child], **attributes: str | int | None) -> Markup:
    """Build an element; text and attributes are escaped, ``Markup`` is not, None is left out.

    >>> tag("p", "a < b", class_="x")
    '<p class="x">a &lt; b</p>'
    """
    given = {key.rstrip("_").replace("_", "-"): v for key, v in attributes.items() if v is not None}
    head = "".join(f' {key}="{escape(value)}"' for key, value in given.items())
    if name in _VOID:
        return Markup(f"<{name}{head}>")
    return Markup(f"<{name}{head}>{join(*children)}</{name}>")


def join(*children: Child | Iterable[Child]) -> Markup:
    """Concatenate children, escaping those that are not ``Markup``."""
    parts: list[str] = []
    for child in children:
        if child is None:
            continue
        if isinstance(child, Markup):
            parts.append(child)
        elif isinstance(child, str | int | float):
            parts.append(escape(child).replace(" %", "&nbsp;%"))  # a number keeps its unit on its line
        else:
            parts.append(join(*child))
    return Markup("".join(parts))


def table(
    head: Sequence[Child], rows: Sequence[Sequence[Child]], *, caption: str, text_columns: int = 1
) -> Markup:
    """Build a table that scrolls by itself where the page is narrow.

    Args:
        head: column titles.
        rows: cells; the first of a row is its title.
        caption: what it shows.
        text_columns: how many columns on the left are words; the others are numbers, set flush right.

    Returns:
        The table, or a sentence where there are no rows.
    """
    if not rows:
        return tag("p", "Nothing was recorded for this table.", class_="empty")

    def kind(column: int) -> str | None:
        return None if column < text_columns else "n"

    titles = tag("tr", [tag("th", cell, scope="col", class_=kind(i)) for i, cell in enumerate(head)])
    body = [
        tag(
            "tr",
            tag("th", row[0], scope="row"),
            [tag("td", cell, class_=kind(i)) for i, cell in enumerate(row[1:], start=1)],
        )
        for row in rows
    ]
    inner = tag("table", tag("thead", titles), tag("tbody", body), aria_label=caption)
    # The caption stands outside, so that it wraps on a phone where the table scrolls.
    scroll = tag("div", inner, class_="scroll", tabindex="0", role="region", aria_label=caption)
    return join(tag("p", caption, class_="caption"), scroll)


def shorten(text: object, longest: int = LONGEST) -> str:
    """Cut a foreign string to a length that a table bears, or to another."""
    words = str(text)
    return words if len(words) <= longest else words[: longest - 1] + "…"


def number(value: float, digits: int = 0) -> str:
    """Write a number with thousands separators; a dash where it is unknown."""
    return f"{value:,.{digits}f}" if np.isfinite(value) else "-"


def significant(value: float) -> str:
    """Write a number of unknown scale with four significant digits."""
    return f"{value:.4g}" if np.isfinite(value) else "-"


def percent(value: float, digits: int = 1) -> str:
    """Write a share as a percentage; a dash where it is unknown."""
    return f"{100.0 * value:.{digits}f} %" if np.isfinite(value) else "-"


def with_interval(interval: Interval, scale: float = 1.0, digits: int = 1, unit: str = "") -> Markup:
    """Write a mean, and its interval on a line of its own where there is one."""
    if not np.isfinite(interval.mean):
        return Markup("-")
    mean = tag("b", f"{scale * interval.mean:,.{digits}f}{unit}")
    if not interval.is_known:
        return mean
    bounds = f"{scale * interval.low:,.{digits}f} to {scale * interval.high:,.{digits}f}"
    return join(mean, tag("small", bounds))


def difference(interval: Interval) -> Markup:
    """Write a difference of shares in points, signed, with its interval."""
    if not np.isfinite(interval.mean):
        return Markup("-")
    mean = tag("b", f"{100.0 * interval.mean:+.1f}")
    if not interval.is_known:
        return join(mean, tag("small", "no interval"))
    return join(mean, tag("small", f"{100.0 * interval.low:+.1f} to {100.0 * interval.high:+.1f}"))
