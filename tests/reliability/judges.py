"""Judges for worker processes, apart from everything that takes long to import."""

from __future__ import annotations

from typing import Any


def hangs_on_long(completion: str, answer: str, metadata: dict[str, Any]) -> bool:
    """Judge by length; never end on the longest."""
    while len(completion) > 5:
        pass
    return len(completion) > 2
