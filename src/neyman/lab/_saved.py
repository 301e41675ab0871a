"""The file of one run in the lab, checked before a comparison: whole, with every series that reports draw."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from neyman._files.json import read_object
from neyman.errors import StateError
from neyman.lab.experiment import CURVE, METRICS

_LARGEST = float(2**53)  # beyond which floats cannot count


def read_run(path: Path) -> dict[str, Any]:
    """Return the saved result of `run`.

    Raises:
        StateError: the file cannot be read, is larger than 64 MiB, or is no result of a run; the message names the
            file, the fault and the remedy.
    """
    try:
        saved = read_object(path)
        wrong = _wrong(saved)
    except (OSError, ValueError) as error:
        wrong = str(error)
    if wrong:
        raise StateError(f"{path} is damaged: {wrong}; delete it and resume, and this run is done again")
    return saved


def _wrong(saved: dict[str, Any]) -> str:
    """Return the first fault of a run, empty where there is none."""
    if not isinstance(saved.get("experiment"), dict):
        return f"'experiment' must hold the settings of the run, got {saved.get('experiment')!r:.80}"
    if type(saved.get("seed")) is not int:
        return f"'seed' must be a whole number, got {saved.get('seed')!r:.80}"
    return (
        _wrong_series(saved, "curve", CURVE) or _wrong_series(saved, "steps", METRICS) or _wrong_curve(saved)
    )


def _wrong_series(saved: dict[str, Any], part: str, names: Sequence[str]) -> str:
    series = saved.get(part)
    if not isinstance(series, dict):
        return f"{part!r} must map names to series, got {series!r:.80}"
    for name in names:
        values = series.get(name)
        if not isinstance(values, list) or not all(_is_number(value) for value in values):
            return f"{part}[{name!r}] must be a list of finite numbers, got {values!r:.80}"
    lengths = {name: len(series[name]) for name in names}
    if len(set(lengths.values())) > 1 or not all(lengths.values()):
        return f"the series of {part!r} must be equally long and not empty, got {lengths}"
    return ""


def _is_number(value: Any) -> bool:
    return type(value) in {int, float} and abs(value) <= _LARGEST  # so it is neither NaN nor infinite


def _wrong_curve(saved: dict[str, Any]) -> str:
    """Check that costs never fall from one evaluation to the next, and that accuracies are shares."""
    curve = saved["curve"]
    for name in ("rollouts", "tokens", "step"):
        values = curve[name]
        if values[0] < 0 or any(later < earlier for earlier, later in itertools.pairwise(values)):
            return f"curve[{name!r}] must start at 0 or above and never fall, got {values!r:.80}"
    if not all(0.0 <= value <= 1.0 for value in curve["accuracy"]):
        return f"curve['accuracy'] must lie in [0, 1], got {curve['accuracy']!r:.80}"
    return ""
