"""The shell that beliefs share: verified counts in, a clock of training steps, saved states out."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from numpy.typing import ArrayLike

from neyman._checks import IntP, integer, prompt_ids
from neyman.beliefs._protocol import Belief
from neyman.beliefs._state import check_clock, check_state
from neyman.beliefs._table import checked_counts
from neyman.randomness import PromptId


class StoredBelief(Belief):
    """A belief with settings, a clock of training steps, and a saved state.

    A concrete belief learns checked counts in ``_learn``, ages in ``_age``, returns the parts of its state in
    ``_parts``, checks saved parts in ``_read`` and adopts them in ``_adopt``. ``KIND`` names it in saved states, whose
    keys beside kind, version, configuration and clock are ``KEYS``.
    """

    KIND: ClassVar[str]
    KEYS: ClassVar[tuple[str, ...]]
    VERSION: ClassVar[int] = 1
    _config: dict[str, Any]
    _clock: int = 0

    def update(self, ids: Sequence[PromptId], successes: ArrayLike, trials: ArrayLike) -> None:
        """Learn verified counts; zero trials are ignored, an id given twice counts as its sum."""
        names, s, n = checked_counts(ids, successes, trials)
        if names:
            self._learn(names, s, n)

    def advance(self, steps: int = 1) -> None:
        """Let ``steps`` training steps pass."""
        count = integer("steps", steps, low=0)
        if count:
            self._clock += count
            self._age(count)

    def state_dict(self) -> dict[str, Any]:
        """Return the whole state, JSON-safe; of features it holds fingerprints and landmarks alone."""
        return {
            "kind": self.KIND,
            "version": self.VERSION,
            "config": dict(self._config),
            "clock": self._clock,
            **self._parts(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Replace the state by a saved one; prompts' features must be registered before."""
        keys = ("clock", *self.KEYS)
        check_state(state, kind=self.KIND, version=self.VERSION, config=self._config, keys=keys)
        clock = check_clock(state["clock"])
        parts = self._read(state, clock)  # raises before anything has changed
        self._clock = clock
        self._adopt(parts)

    @abstractmethod
    def _learn(self, names: list[PromptId], s: IntP, n: IntP) -> None:
        """Learn s successes of n >= 1 trials of each prompt, every prompt named once."""

    def _age(self, count: int) -> None:
        """Age by ``count`` training steps, which the clock has counted already."""

    @abstractmethod
    def _parts(self) -> dict[str, Any]:
        """Return the parts of the state under ``KEYS``."""

    @abstractmethod
    def _read(self, state: Mapping[str, Any], clock: int) -> Any:
        """Return the checked parts of a saved state, or raise `StateError`; changes nothing."""

    @abstractmethod
    def _adopt(self, parts: Any) -> None:
        """Adopt the checked parts of ``_read``."""


class WithoutFeatures(Belief):
    """Beliefs that need neither features nor a list of the prompts."""

    uses_features = False

    def register(self, ids: Sequence[PromptId], features: ArrayLike | None = None) -> None:  # noqa: ARG002 (the protocol's signature)
        """Check the ids."""
        prompt_ids("ids", ids)
