"""Pictures that several reports show: figures over steps, and rollouts by fate."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from neyman.report._figures import draw_fates, draw_series
from neyman.report._looks import Look
from neyman.report._series import Series
from neyman.report._svg import Picture, picture


def series_pictures(
    figures: Iterable[tuple[str, str, str, bool, Mapping[str, Series | None]]], looks: Mapping[str, Look]
) -> list[Picture]:
    """Draw figures over steps.

    Args:
        figures: (name, title, label of the axis, whether it is a share, strategy -> series) of each; a strategy
            without the figure has None.
        looks: strategy -> look.
    """
    pictures = []
    for name, title, label, is_share, by_strategy in figures:
        series = {strategy: one for strategy, one in by_strategy.items() if one is not None}
        if not series:
            pictures.append(Picture(title))
            continue
        window = max(one.window for one in series.values())
        caption = f"{title}, mean over {window} steps" if window > 1 else title
        data = {"series": series, "looks": looks, "y_label": label, "is_share": is_share}
        pictures.append(picture(name, caption, draw_series, (5.2, 3.0), **data))
    return pictures


def fate_pictures(fates: Mapping[str, Mapping[str, int]], *, row_height: float) -> dict[str, Picture]:
    """Draw rollouts by fate, wide for desks and narrow for phones.

    Args:
        fates: strategy -> fate -> rollouts.
        row_height: of a strategy's bar, in inches.
    """
    height = 0.9 + row_height * len(fates)
    return {
        name: picture(name.replace("_", "-"), "Rollouts by fate", draw_fates, (width, height), fates=fates)
        for name, width in (("fates", 10.6), ("fates_narrow", 5.2))
    }
