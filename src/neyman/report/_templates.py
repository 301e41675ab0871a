"""Pages from templates: one self-contained HTML file each, with every string escaped.

Autoescape is on for all templates, and nothing in them turns it off: only the pictures of `_svg` are HTML already.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from neyman._files.atomic import write_atomic
from neyman.errors import missing_extra
from neyman.report import _format
from neyman.report._looks import all_colours, fate_colour, fate_words

if TYPE_CHECKING:
    from jinja2 import Environment


def fill(template: str, **values: Any) -> str:
    """Return a page as text, from a file in ``templates`` and the values of the names in it.

    Raises:
        MissingExtraError: jinja2 is not installed.
        jinja2.UndefinedError: the template uses a name that is not among the values.

    Guarantee: the page needs no network and runs no script. The same values give the same bytes.
    """
    return _environment().get_template(template).render(**values)


def write_report_files(folder: Path, summary: Mapping[str, Any], page: str) -> Path:
    """Write ``summary.json`` and ``report.html``, each whole or not at all, and return the report's path."""
    text = json.dumps(summary, indent=2, allow_nan=False, ensure_ascii=False) + "\n"
    write_text(folder / "summary.json", text)
    return write_text(folder / "report.html", page)


def write_text(path: Path, text: str) -> Path:
    """Write a text file, whole or not at all, and return its path."""
    # Half of a surrogate pair cannot be encoded; "\ud800" in its place is how JSON spells it.
    write_atomic(path, text.encode("utf-8", "backslashreplace"))
    return path


@cache
def _environment() -> Environment:
    try:
        import jinja2  # noqa: PLC0415  an extra
    except ImportError as error:
        raise missing_extra("jinja2", "cli", "the report") from error
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("neyman.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,  # a misspelt name must not become an empty cell
        finalize=_readable,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    for filter_ in (
        _format.number, _format.percent, _format.share_of, _format.points, _format.interval, _format.difference,
        _format.shorten, _format.listed, _pretty, fate_colour, fate_words,
    ):  # fmt: skip
        environment.filters[filter_.__name__.removeprefix("_")] = filter_
    environment.tests["known"] = lambda value: value is not None and bool(np.isfinite(value))
    environment.globals["colours"] = all_colours()
    return environment


def _readable(value: Any) -> Any:
    """Spell out invisible characters, and keep a number with its unit on one line; HTML stays as it is."""
    if value is None or hasattr(value, "__html__"):
        return "" if value is None else value
    return _format.visible(value).replace(" %", "\N{NO-BREAK SPACE}%")


def _pretty(value: Any) -> str:
    """Return settings as indented JSON; unlike jinja2's ``tojson`` it is text, to be escaped like all other."""
    return json.dumps(value, indent=2, ensure_ascii=False, default=str)
