"""Options of a strategy as ``key=value`` words, with values as in TOML."""

from __future__ import annotations

import tomllib
from typing import Any

from neyman.errors import ArgumentError


def parse_options(words: list[str]) -> dict[str, Any]:
    """Parse ``key=value`` words; a value that is not TOML is text.

    >>> parse_options(["lower=4", "variant=published", "schedule=[4, 8]"])
    {'lower': 4, 'variant': 'published', 'schedule': [4, 8]}
    """
    options: dict[str, Any] = {}
    for word in words:
        key, equals, text = word.partition("=")
        if not equals:
            raise ArgumentError(f"options are written key=value, got {word!r}; for example lower=4")
        if key in options:
            raise ArgumentError(
                f"option {key!r} is given twice, the second time as {word!r:.80}; keep one of them"
            )
        try:
            options[key] = tomllib.loads(f"value = {text}")["value"]
        except (tomllib.TOMLDecodeError, RecursionError):
            options[key] = text
        except ValueError as error:  # an integer of more digits than Python reads
            raise ArgumentError(f"{key}={text[:40]}... cannot be read: {error}") from None
    return options
