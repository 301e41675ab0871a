"""Objects that the user's own configuration names as ``package.module:name``."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, cast

from neyman.errors import ArgumentError


def imported(field: str, path: str) -> Callable[..., Any]:
    """Return the function or class that a setting, ``field``, names as ``package.module:name``.

    Raises:
        ArgumentError: there is no such module, nothing of that name in it, or it cannot be called.
    """
    module, _, name = path.partition(":")
    try:
        found = getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ArgumentError(f"{field} {path!r} cannot be imported: {error}") from error
    if not callable(found):
        raise ArgumentError(f"{field} {path!r} must be a function or class, got {found!r:.80}")
    return cast("Callable[..., Any]", found)
