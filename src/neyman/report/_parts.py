"""What every section is made of: heading, legend, picture with its caption."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from neyman.report._figures import draw_series
from neyman.report._findings import Findings
from neyman.report._looks import Look
from neyman.report._markup import (
    Markup,
    tag,
)
from neyman.report._series import Series, step_series
from neyman.report._svg import svg

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def section(anchor: str, heading: str, lead: str, *body: Markup | None) -> Markup:
    """Return a section with its heading and its one sentence of explanation."""
    return tag("section", tag("h2", heading), tag("p", lead, class_="lead"), body, id=anchor)


def figure(
    name: str, title: str, draw: Callable[[Axes], object], size: tuple[float, float] = (5.2, 3.3)
) -> Markup:
    """Return a picture with its caption."""
    return tag("figure", tag("figcaption", title), svg(name, title, draw, size))


def legend(looks: Mapping[str, Look]) -> Markup:
    """Return what each strategy's mark is."""
    return tag(
        "ul",
        [
            tag("li", tag("i", look.glyph, style=f"color: var(--{look.colour.name})"), name)
            for name, look in looks.items()
        ],
        class_="legend",
    )


def series_figures(
    findings: Findings,
    looks: Mapping[str, Look],
    source: str,
    names: Sequence[tuple[str, str, str, bool]],
) -> Markup:
    pictures = []
    for key, title, label, is_share in names:
        series: dict[str, Series] = {}
        for s in findings.strategies:
            one = step_series(s.runs, source, key)
            if one is not None:
                series[s.strategy] = one
        if not series:
            pictures.append(tag("p", f"{title}: not recorded.", class_="empty"))
            continue
        window = max(one.window for one in series.values())
        caption = f"{title}, mean over {window} steps" if window > 1 else title
        draw = partial(draw_series, series=series, looks=looks, y_label=label, is_share=is_share)
        pictures.append(figure(f"{source}-{key.replace('_', '-')}", caption, draw, (5.2, 3.0)))
    return tag("div", pictures, class_="plots")
