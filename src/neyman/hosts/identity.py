"""A strategy's parts and settings as plain data, saved with a run and compared when the run is resumed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from neyman.strategy import Strategy

_TYPE = "type"


def describe(strategy: Strategy) -> dict[str, Any]:
    """Return a strategy's parts and settings, JSON-safe: dataclasses by their fields, beliefs by their settings.

    Of other objects only the type is known. The evidence of a belief is no part of it.

    Examples:
        >>> import neyman
        >>> describe(neyman.preset("vip", lower=3))["allocate"]["lower"]
        3
    """
    described = _plain(strategy)
    assert isinstance(described, dict)
    return described


def differences(there: Any, here: Any, name: str = "strategy") -> list[str]:
    """Return the differences between two descriptions, as ``part.setting: value there, value here``."""
    if not (isinstance(there, Mapping) and isinstance(here, Mapping)) or there.get(_TYPE) != here.get(_TYPE):
        return [] if there == here else [f"{name}: {_short(there)} there, {_short(here)} here"]
    found = []
    for key in dict.fromkeys([*there, *here]):
        inner = key if name == "strategy" else f"{name}.{key}"
        found += differences(there.get(key), here.get(key), inner)
    return found


def _short(value: Any) -> str:
    kind = value.get(_TYPE) if isinstance(value, Mapping) else None
    return str(kind).rpartition(".")[2] if kind else f"{value!r:.80}"


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        return _named(value) | {item.name: _plain(getattr(value, item.name)) for item in fields(value)}
    # A belief changes as it learns, and a run resumed later has the same one: only its settings identify it.
    if hasattr(value, "state_dict"):
        state = value.state_dict()
        return _named(value) | {"config": _plain(state.get("config") if isinstance(state, Mapping) else None)}
    return _named(value)


def _named(value: Any) -> dict[str, Any]:
    # All functions have one type: a function is identified by its own name.
    kind = value if hasattr(value, "__qualname__") else type(value)
    return {_TYPE: f"{kind.__module__}.{kind.__qualname__}"}
