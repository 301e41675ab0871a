"""The registry of presets: every file of this folder whose name has no leading underscore."""

from __future__ import annotations

from dataclasses import fields
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

from neyman.errors import ArgumentError
from neyman.presets._preset import Preset
from neyman.strategy import Strategy


def _found() -> dict[str, Preset]:
    # Through pkgutil and not through the file system, so that a zipped package finds its presets too.
    names = [found.name for found in iter_modules([str(Path(__file__).parent)]) if found.name[0] != "_"]
    presets: list[Preset] = [import_module(f"{__package__}.{name}").PRESET for name in names]
    return {preset.name: preset for preset in sorted(presets, key=lambda preset: (preset.place, preset.name))}


PRESETS = _found()
PARTS = {item.name for item in fields(Strategy)}


def unknown_name(field: str, name: str, legal: list[str], further: str = "") -> ArgumentError:
    """Return the error for a name, in the setting ``field``, that is none of the legal ones, with the nearest of them.

    ``further`` describes another legal form.
    """
    close = get_close_matches(name, legal, n=1)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    return ArgumentError(f"{field} must be one of {', '.join(legal)}{further}, got {name!r:.80}{hint}")


def preset(name: str, **options: Any) -> Strategy:
    """Return a published method by name.

    Args:
        name: one of `PRESETS`, e.g. "uniform", "vip", "sara", "dynamo" or "neyman"; docs/methods.md has them all.
        options: knobs of the method (e.g. ``lower``, ``upper``, ``threshold``), and any part of `Strategy` to
            replace (e.g. ``belief``, ``close``, ``estimator``, ``modulation``).

    Raises:
        ArgumentError: an unknown name or option; the message lists the legal ones.

    >>> preset("sara", group_size=8).verdict.looks(8)
    (4, 8)
    """
    if name not in PRESETS:
        raise unknown_name("preset", name, list(PRESETS))
    chosen = PRESETS[name]
    own = set(chosen.options)
    if unknown := set(options) - own - PARTS:
        raise ArgumentError(
            f"preset {name!r} has no option {', '.join(sorted(unknown))}; its own are "
            f"{', '.join(sorted(own)) or 'none'}, and every part of Strategy: {', '.join(sorted(PARTS - {'name'}))}"
        )
    strategy = chosen.build(**{key: value for key, value in options.items() if key in own})
    return strategy.with_options(**{key: value for key, value in options.items() if key not in own})
