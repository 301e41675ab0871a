"""Defaults of a contract's optional attributes, which a subclass, an instance or a dataclass field may replace."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    # Read-only to type checkers: frozen dataclasses, class attributes and properties may all stand in its place.
    default = property
else:

    class default:  # noqa: N801 - used as a decorator, like property
        """A property without a setter's guard: assigning to the attribute of an instance is allowed.

        A true property would refuse ``self.recounts = 2`` in a user's rule, and dataclasses would take the property
        itself for the default of a field of its name.

        >>> class Rule:
        ...     @default
        ...     def recounts(self) -> int:
        ...         return 1
        >>> rule = Rule()
        >>> before, rule.recounts = rule.recounts, 2
        >>> before, rule.recounts, Rule.recounts
        (1, 2, 1)
        """

        def __init__(self, function: Callable[[Any], Any]) -> None:
            self._value, self.__doc__ = function(None), function.__doc__

        def __get__(self, instance: object, owner: type | None = None) -> Any:
            return self._value
