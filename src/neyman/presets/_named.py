"""What the user's own configuration names as ``package.module:name``."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from neyman.errors import ArgumentError


def imported(field: str, path: str) -> Any:
    """Return what a setting names.

    Args:
        field: the setting, for the error.
        path: ``package.module:name``.

    Raises:
        ArgumentError: there is no such module, or nothing of that name in it.
    """
    module, _, name = path.partition(":")
    try:
        return getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ArgumentError(f"{field} {path!r} cannot be imported: {error}") from error
