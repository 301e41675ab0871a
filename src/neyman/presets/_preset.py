"""The entry of a method in the registry, which each preset's file states as ``PRESET``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from inspect import signature
from typing import Any, final

from neyman.strategy import Strategy


@final
@dataclass(frozen=True, slots=True)
class Preset:
    """A published method: its name, its builder, and the facts that tables and tests read.

    Args:
        name: of the method, e.g. "sara+dps".
        build: makes the strategy from keyword options that all have defaults.
        table: its row in docs/methods.md: selection | belief | rollouts | verdict | source, each in a few words.
        place: rank in lists of presets, lowest first; equal places stand by name.
        small: options with which it fits a step of 32 to 64 rollouts, as in tests; bounds and group sizes fit anyway.
        exceptions: attributes of `neyman.testing.StrategySuite` that the method needs set, by its way of closing
            a step, or under "any" for all of them.
    """

    name: str
    build: Callable[..., Strategy]
    table: str
    place: int = 1000
    small: Mapping[str, Any] = field(default_factory=dict)
    exceptions: Mapping[str, Mapping[str, object]] = field(default_factory=dict)

    @property
    def options(self) -> dict[str, Any]:
        """The method's own options with their defaults."""
        bound = getattr(self.build, "keywords", {})  # of a functools.partial: settled, so no option any more
        parameters = signature(self.build).parameters.values()
        return {option.name: option.default for option in parameters if option.name not in bound}
