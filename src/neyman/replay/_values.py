"""Single values of a log: numbers, outcomes and prompt keys, each refused with its place."""

from __future__ import annotations

import json
import math
from hashlib import blake2b
from typing import Any

from neyman.errors import ArgumentError

MOST = 10**9 - 1  # of anything that a log counts; NumPy draws from no larger populations
_TOLERANCE = 1e-6
_WORDS = {"true": 1.0, "false": 0.0, "": math.nan, "nan": math.nan, "none": math.nan, "null": math.nan}


def number(value: Any, where: str) -> float:
    """Return a number; NaN for an absent value.

    Raises:
        ArgumentError: anything else, or an infinite one.
    """
    if value is None:
        return math.nan
    try:
        parsed = (
            _WORDS[value.strip().lower()]
            if isinstance(value, str) and value.strip().lower() in _WORDS
            else float(value)
        )
    except (TypeError, ValueError, OverflowError):
        raise ArgumentError(
            f"{where}: must be a number, got {_short(value)}; mend the value, or name another column by --columns"
        ) from None
    if math.isinf(parsed):
        raise ArgumentError(f"{where}: must be a finite number, got {_short(value)}")
    return parsed


def whole(value: Any, where: str, *, low: int = 0) -> int:
    """Return a whole number >= ``low``.

    Raises:
        ArgumentError: anything else.
    """
    parsed = number(value, where)
    if math.isnan(parsed) or parsed != math.floor(parsed) or not low <= parsed <= MOST:
        raise ArgumentError(f"{where}: must be a whole number in [{low}, {MOST:,}], got {_short(value)}")
    return int(parsed)


def outcome(reward: float, threshold: float | None, where: str) -> int:
    """Return 1 or 0 for a reward that is not NaN.

    Raises:
        ArgumentError: without a threshold, a reward that is not binary; the message names both remedies.
    """
    if threshold is not None:
        return int(reward >= threshold)
    if abs(reward - 1.0) <= _TOLERANCE:
        return 1
    if min(abs(reward), abs(reward + 1.0)) <= _TOLERANCE:
        return 0
    raise ArgumentError(
        f"{where}: the reward {reward:g} is not binary (1 for success, 0 or -1 for failure); set the threshold of a "
        "success (--success-threshold 0.5), or name the column of the verified outcome (--columns success=NAME)"
    )


def key_of(value: Any, where: str) -> bytes:
    """Return 16 bytes that identify a prompt, of any length; messages by their content.

    Raises:
        ArgumentError: no prompt.
    """
    if value is None or value == "" or value != value:  # noqa: PLR0124 - NaN is unlike itself
        raise ArgumentError(f"{where}: must name or hold the prompt, got {_short(value)}")
    return blake2b(text_of(value).encode("utf-8", "surrogatepass"), digest_size=16).digest()


def text_of(value: Any) -> str:
    """Return a prompt as text: messages as JSON, a number as its digits whatever its type."""
    if isinstance(value, str):
        return value
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return str(value) if isinstance(value, int) else json.dumps(value, default=str, sort_keys=True)


def words_of(value: Any) -> str:
    """Return a prompt's words, for embeddings: the content of its messages, or its text."""
    if isinstance(value, list):
        parts = [m.get("content") for m in value if isinstance(m, dict)]
        return "\n".join(part if isinstance(part, str) else text_of(part) for part in parts if part)
    return text_of(value)


def _short(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) <= 60 else shown[:57] + "..."
