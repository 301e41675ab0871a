"""The verified outcome of a rollout, apart from the reward that trains."""

from __future__ import annotations

from typing import Any, final

from neyman.controller import MissingReward
from neyman.errors import ContractError
from neyman.hosts.success import reaches, read_binary


@final
class Success:
    """The rule by which a rollout is a success: ``success`` and ``threshold`` of `neyman.verl.Settings`."""

    def __init__(self, name: str | None, threshold: float) -> None:
        self._name, self._threshold = name, threshold

    def __call__(self, reward: float, extra: dict[str, Any]) -> bool | MissingReward:
        """Return whether a rollout succeeded; a missing reward where it cannot be decided.

        Raises:
            ContractError: no binary reward where no name is given, or nothing under the name, or no number.
        """
        name = self._name
        if name is None:
            return read_binary(
                reward,
                "the reward function",
                "give +neyman.success=reward +neyman.threshold=0.5, or the name of a number that it returns beside "
                "the score, for example +neyman.success=acc",
            )
        if name != "reward" and name not in extra:
            raise ContractError(
                f"neyman.success={name} is not among the values that the reward function returns beside the score "
                f"({', '.join(extra) or 'nothing'}): name one of them, or 'reward'"
            )
        value = reward if name == "reward" else extra[name]
        if value is not None and (isinstance(value, str) or not hasattr(value, "__float__")):
            raise ContractError(
                f"the reward function returned {name}={value!r:.80}, which is no number, so that "
                f"neyman.success={name} does not decide success: return True, False, a number, or None"
            )
        number = None if value is None else float(value)
        return reaches(number, self._threshold, f"the reward function returned {name}=")
