"""Pictures that several reports show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from neyman._checks import FloatP
from neyman.report._calibration import CalibrationBins
from neyman.report._figures import draw_accuracy, draw_calibration, draw_fates, draw_series
from neyman.report._looks import Look
from neyman.report._series import Series
from neyman.report._stats import NAN, accuracy_curve
from neyman.report._svg import Picture, picture


def accuracy_picture(
    name: str,
    caption: str,
    seeds: Mapping[str, Sequence[tuple[FloatP, FloatP]]],
    looks: Mapping[str, Look],
    *,
    cost: str,
    target: float = NAN,
) -> Picture:
    """Draw each strategy's (cost, accuracy) per seed with the mean over seeds."""
    curves = {strategy: accuracy_curve(pairs) for strategy, pairs in seeds.items()}
    return picture(
        name, caption, draw_accuracy, curves=curves, seeds=seeds, looks=looks, x_label=cost, target=target
    )


def series_picture(
    name: str,
    title: str,
    by_strategy: Mapping[str, Series | None],
    looks: Mapping[str, Look],
    *,
    label: str,
    is_share: bool = False,
) -> Picture:
    """Draw a figure over steps; a strategy without it has None, and without any there is no picture."""
    series = {strategy: one for strategy, one in by_strategy.items() if one is not None}
    if not series:
        return Picture(title)
    window = max(one.window for one in series.values())
    caption = f"{title}, mean over {window} steps" if window > 1 else title
    return picture(
        name, caption, draw_series, (5.2, 3.0), series=series, looks=looks, y_label=label, is_share=is_share
    )


def calibration_picture(calibrations: Mapping[str, CalibrationBins], looks: Mapping[str, Look]) -> Picture:
    """Draw realised against predicted success rates."""
    caption = "Realised against predicted success rate"
    return picture(
        "calibration", caption, draw_calibration, (5.2, 4.2), calibrations=calibrations, looks=looks
    )


def fate_pictures(fates: Mapping[str, Mapping[str, int]], *, row_height: float) -> dict[str, Picture]:
    """Draw strategy -> fate -> rollouts, wide for desks and narrow for phones; ``row_height`` is in inches."""
    height = 0.9 + row_height * len(fates)
    return {
        name: picture(name.replace("_", "-"), "Rollouts by fate", draw_fates, (width, height), fates=fates)
        for name, width in (("fates", 10.6), ("fates_narrow", 5.2))
    }
