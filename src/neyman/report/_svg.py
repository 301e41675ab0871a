"""Inline SVG from a drawing function: no fonts, no foreign ids, colours by variable."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from neyman.errors import missing_extra
from neyman.report._format import visible
from neyman.report._looks import all_colours

if TYPE_CHECKING:
    from markupsafe import Markup
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class Picture:
    """A figure of the page; without data there is a caption alone."""

    caption: str
    svg: Markup | None = None


def picture(
    name: str, caption: str, draw: Callable[..., object], size: tuple[float, float] = (5.2, 3.3), **data: Any
) -> Picture:
    """Draw data with one of the functions of `_figures`, see `svg`."""
    return Picture(caption, svg(name, caption, lambda axes: draw(axes, **data), size))


def svg(
    name: str, title: str, draw: Callable[[Axes], object], size: tuple[float, float] = (5.2, 3.3)
) -> Markup:
    """Draw on a figure of its own and return it as an inline SVG.

    Ids begin with ``name``, unique in the page; ``title`` is for screen readers. Text stays text, in the page's font;
    colours are CSS variables. Sizes are in inches, at 72 points each.

    Raises:
        MissingExtraError: matplotlib is not installed.

    Guarantee: the same data give the same bytes. No global state is changed: settings hold within the call, and pyplot
    is never imported.
    """
    try:
        import markupsafe as _  # noqa: PLC0415, F401  an extra, as the next
        import matplotlib as mpl  # noqa: PLC0415
        from matplotlib.backends.backend_svg import FigureCanvasSVG  # noqa: PLC0415
        from matplotlib.figure import Figure  # noqa: PLC0415
    except ImportError as error:
        raise missing_extra(str(error.name), "cli", "the report") from error
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": name, "font.family": "DejaVu Sans"}):
        figure = Figure(figsize=size, layout="constrained")
        figure.patch.set_visible(False)
        draw(figure.add_subplot())
        target = io.StringIO()
        with warnings.catch_warnings():
            # Names in any script: they stay text, and the page's fonts have the glyphs that this one lacks.
            warnings.filterwarnings("ignore", message="Glyph .* missing from", category=UserWarning)
            FigureCanvasSVG(figure).print_svg(target, metadata={"Date": None, "Creator": None})
    return _embed(name, title, target.getvalue())


def _embed(name: str, title: str, text: str) -> Markup:
    from markupsafe import Markup  # noqa: PLC0415  comes with jinja2, an extra

    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, count=1, flags=re.DOTALL)
    # Its rule holds for every element of the page; the page's own style sheet has it for pictures alone.
    text = re.sub(r"<style.*?</style>", "", text, flags=re.DOTALL)
    text = re.sub(r'\bid="', f'id="{name}-', text)
    text = text.replace('href="#', f'href="#{name}-').replace("url(#", f"url(#{name}-")
    for colour in all_colours():
        text = text.replace(colour.light, f"var(--{colour.name})")
    box = re.search(r'viewBox="[^"]*"', text)
    assert box is not None  # matplotlib always writes one
    opening = Markup(
        '<svg class="plot" role="img" aria-label="{}" {} '
        'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink">'
    )
    # The one place where text becomes HTML without escaping: matplotlib has escaped the names in its pictures.
    body = Markup(text[text.index(">") + 1 :].strip())  # noqa: S704
    return opening.format(visible(title), Markup(box.group())) + body  # noqa: S704
