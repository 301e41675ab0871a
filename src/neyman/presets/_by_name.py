"""Strategies by name for every host: options from a file or command line, bounds that fit the group size."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from neyman.errors import ArgumentError
from neyman.formulas.variance import MINIMUM_GROUP_SIZE
from neyman.presets._named import imported
from neyman.presets._objective import objective
from neyman.presets._options import parse_options
from neyman.presets._registry import PARTS, PRESETS, preset, unknown_name
from neyman.strategy import Strategy


def known_strategy(
    name: str,
    *,
    field: str = "strategy",
    options_field: str = "options",
    functions: bool = True,
    words: bool = False,
) -> str:
    """Return a strategy's name when it has a legal form; nothing is imported.

    Args:
        name: a preset; ``package.module:function`` with ``functions``; a preset with options behind colons, such as
            "sara:variant=published", with ``words``.
        field: the setting that holds the name, for errors.
        options_field: the setting that holds the options, for errors.
        functions: whether a function of the user's own may be named.
        words: whether options may stand behind the name.

    Raises:
        ArgumentError: another name; the message lists the legal ones and the nearest.
    """
    base, colon, behind = name.partition(":")
    if base in PRESETS:
        if colon and not words:
            raise ArgumentError(
                f"{field} must be a name alone, got {name!r:.80}: options behind it are for replays; set it to "
                f"{base!r}, and {behind!r:.80} by {options_field}"
            )
    elif not (functions and colon):
        raise unknown_name(field, name, list(PRESETS), ", or package.module:function" if functions else "")
    return name


def strategy_by_name(
    name: str,
    options: Mapping[str, Any] | None = None,
    *,
    group_size: int | None = None,
    defaults: Mapping[str, Any] | None = None,
    field: str = "strategy",
    options_field: str = "options",
    functions: bool = True,
    words: bool = False,
) -> Strategy:
    """Return a strategy by its name, with options as configurations hold them and bounds that fit the group size.

    A preset whose own lower bound is the average group size k or more would give every prompt the same number of
    rollouts; it starts at k / 2, or at the fewest that its estimator needs. An upper bound below 4 k becomes 4 k.
    Bounds among the options stay as they are. A ``group_size`` of None leaves all bounds alone.

    Lists among the options become tuples; for presets the text "none" becomes None, which TOML lacks. ``defaults`` are
    the host's own options, for presets that take them and where ``options`` leave them out. The other arguments are
    those of `known_strategy`.

    Raises:
        ArgumentError: an unknown name, options that it does not take, or a function that returns no strategy.

    >>> strategy_by_name("vip", {"upper": 12}, group_size=4).allocate.lower
    2
    """
    known_strategy(name, field=field, options_field=options_field, functions=functions, words=words)
    given = {key: _plain(value) for key, value in (options or {}).items()}
    base, *behind = name.split(":")
    if base not in PRESETS:
        return _from_function(name, given, field, options_field)
    given |= {key: _plain(value) for key, value in parse_options(behind).items()}
    own = PRESETS[base].options
    ours = {key: value for key, value in (defaults or {}).items() if key in own or key in PARTS}
    given = {
        key: None if isinstance(value, str) and value == "none" else value for key, value in given.items()
    }
    if group_size is not None:
        ours |= _bounds(own, group_size, {**own, **ours, **given}.get("estimator", "rloo"))
    try:
        return preset(base, **{**ours, **given})
    except (ArgumentError, TypeError) as error:
        raise ArgumentError(f"{options_field} of {base}: {error}") from error


def _plain(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _bounds(own: Mapping[str, Any], group_size: int, estimator: Any) -> dict[str, int]:
    """Return the bounds that the preset's own options leave too narrow for groups of this average size."""
    lower, upper, bounds = own.get("lower"), own.get("upper"), {}
    if isinstance(lower, int) and lower >= group_size:
        bounds["lower"] = max(MINIMUM_GROUP_SIZE[objective(estimator)], group_size // 2)
    if isinstance(upper, int) and upper < 4 * group_size:
        bounds["upper"] = 4 * group_size
    return bounds


def _from_function(name: str, options: Mapping[str, Any], field: str, options_field: str) -> Strategy:
    try:
        made = imported(field, name)(**options)
    except TypeError as error:
        raise ArgumentError(
            f"{field} {name!r} does not take {options_field} {sorted(map(str, options))}: {error}"
        ) from error
    if not isinstance(made, Strategy):
        raise ArgumentError(f"{field} {name!r} must return a neyman.Strategy, got {made!r:.80}")
    return made
