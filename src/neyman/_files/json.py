"""JSON in which no object has a field twice and nothing is nested too deeply to be shown, compared or written again.

Python's own reader silently keeps the last of two fields, and reads values on which ``repr``, ``==`` or
``copy.deepcopy`` then raise a RecursionError.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from neyman._files.limits import LARGEST_FILE, read_bytes

DEEPEST = 100  # levels of lists and objects; neyman writes ten at most


class RepeatedFieldError(ValueError):
    """An object has a field twice, so that either value may be the one that is meant.

    Args:
        name: the field.
    """

    def __init__(self, name: str) -> None:
        super().__init__(f"the field {name!r:.80} stands twice in one object; keep one of them")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        seen = set[str]()
        for name, _ in pairs:
            if name in seen:
                raise RepeatedFieldError(name)
            seen.add(name)
    return fields


def _is_deep(value: Any) -> bool:
    level = [value]
    for _ in range(DEEPEST):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, list | dict)
        ]
        if not level:
            return False
    return True


_TOO_DEEP = f"lists and objects are nested deeper than {DEEPEST} levels"
_DECODER = json.JSONDecoder(object_pairs_hook=_once)


def loads(text: str | bytes) -> Any:
    """Read JSON as ``json.loads`` does, but refuse objects with a field twice, at any depth, and deep nesting.

    Args:
        text: JSON; bytes are in UTF-8, UTF-16 or UTF-32.

    Raises:
        RepeatedFieldError: an object has a field twice; a ValueError, as everything below.
        ValueError: it is no JSON, or lists and objects are nested deeper than `DEEPEST`; never a RecursionError.

    Cost: that of ``json.loads`` and a list of each object's fields, less than a tenth of a reader's work on a line.
        Lists and objects are walked once more where there are more than `DEEPEST` of them.

    >>> loads('{"a": 1, "b": {"a": 2}}')
    {'a': 1, 'b': {'a': 2}}
    """
    if isinstance(text, bytes):
        text = text.decode(json.detect_encoding(text), "surrogatepass")
    try:
        value = _DECODER.decode(text)
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    # Fewer brackets than levels cannot be nested so deeply; those within strings only cost a look.
    if text.count("[") + text.count("{") > DEEPEST and isinstance(value, list | dict) and _is_deep(value):
        raise ValueError(_TOO_DEEP)
    return value


def read_object(path: Path, limit: int = LARGEST_FILE) -> dict[str, Any]:
    """Return the object that a file of at most ``limit`` bytes holds.

    Raises:
        OSError: it cannot be read.
        ValueError: it is larger, no JSON, or holds something else than an object.
    """
    value = loads(read_bytes(path, limit))
    if not isinstance(value, dict):
        raise ValueError(f"it must hold one JSON object, got {value!r:.80}")  # noqa: TRY004 - as all else that is wrong
    return value


def plain(value: Any) -> Any:
    """Return a value as JSON has it: no NaN or infinity (null), no subclasses of str.

    >>> plain({"a": float("nan"), "b": [1.5]})
    {'a': None, 'b': [1.5]}
    """
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    return value
