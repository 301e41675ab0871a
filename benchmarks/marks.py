"""Parts of every rendered table: the kept figures, rows, and means with their intervals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"


def kept(name: str) -> dict[str, Any] | None:
    """Return the figures of results/NAME.json; None if it was not measured."""
    path = RESULTS / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else None


def table(header: list[str], rows: list[list[str]]) -> list[str]:
    """Return the lines of a Markdown table."""
    return ["| " + " | ".join(row) + " |" for row in [header, ["---"] * len(header), *rows]]


def interval(value: dict[str, Any] | None, scale: float = 1.0, digits: int = 1) -> str:
    """Return a mean and its interval in words, for a figure or for a cost that some seeds never reached."""
    if not value or value.get("mean") is None:
        return "-"
    mean = f"{scale * value['mean']:,.{digits}f}"
    if value.get("is_lower_bound"):
        return f"at least {mean} ({value['reached']} of {value['seeds']} seeds)"
    if value.get("censored"):
        return "not reached"
    if value.get("low") is None:
        return mean
    if value.get("high") is None:
        return f"{mean} ({scale * value['low']:,.{digits}f} to never)"
    return f"{mean} ({scale * value['low']:,.{digits}f} to {scale * value['high']:,.{digits}f})"


def plus_minus(value: dict[str, Any], digits: int = 3) -> str:
    """Return a mean and half the width of its interval."""
    if value.get("mean") is None:
        return "-"
    mean = f"{value['mean']:.{digits}f}"
    return mean if value.get("low") is None else f"{mean} ± {(value['high'] - value['low']) / 2:.{digits}f}"
