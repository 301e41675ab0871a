"""The verified outcome of a rollout, apart from the reward that trains."""

from __future__ import annotations

import math
from typing import Any, final

from neyman.errors import ContractError
from neyman.step.missing import MissingReward
from neyman.step.outcome import binary_outcome

_ROUNDING = 1e-6  # of thresholds: verl keeps rewards in float32


@final
class Success:
    """How success is read.

    Args:
        name: see `neyman.verl.Settings`.
        threshold: the least value that is a success, where a name is given.
    """

    def __init__(self, name: str | None, threshold: float) -> None:
        self._name, self._threshold = name, threshold

    def __call__(self, reward: float, extra: dict[str, Any]) -> bool | MissingReward:
        """Return whether a rollout succeeded; a missing reward where it cannot be told.

        Args:
            reward: its score, finite.
            extra: what the reward function returned beside the score.

        Raises:
            ContractError: no binary reward where no name is given, or nothing under the name, or no number.
        """
        if self._name is None:
            return self._binary(reward)
        if self._name == "reward":
            return self._reaches(reward)
        if self._name not in extra:
            raise ContractError(
                f"neyman.success={self._name} is not among what the reward function returns beside the score "
                f"({', '.join(extra) or 'nothing'}): name one of them, or 'reward'"
            )
        value = extra[self._name]
        if value is None:
            return MissingReward(f"the reward function returned {self._name}=None")
        if isinstance(value, str) or not hasattr(value, "__float__"):
            raise ContractError(
                f"the reward function returned {self._name}={value!r:.80}, which is no number, so that "
                f"neyman.success={self._name} does not say what succeeded: return True, False, a number, or None"
            )
        if math.isnan(float(value)):
            return MissingReward(f"the reward function returned {self._name}=nan")
        return self._reaches(float(value))

    def _reaches(self, value: float) -> bool:
        return value >= self._threshold - _ROUNDING

    @staticmethod
    def _binary(reward: float) -> bool:
        if (said := binary_outcome(reward)) is not None:
            return said
        raise ContractError(
            f"the reward function returned {reward:g}, which is not binary (1, or 0 or -1), so that it does not say "
            "what counts as success: give +neyman.success=reward +neyman.threshold=0.5, or the name of a number that "
            "it returns beside the score, for example +neyman.success=acc"
        )
