"""The rollouts that a host holds: tokens and log-probabilities, referred to by id, saved in the checkpoint."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, final

import numpy as np
import torch

from neyman.randomness import PromptId

_PREFIX = "rollout"
_TOKENS = ("prompt_tokens", "completion_ids")
_NUMBERS = ("logprobs", "rewards", "behaviour")


@dataclass(slots=True)
class Rollout:
    """One completion and everything TRL needs to train on it."""

    rollout_id: int
    prompt_id: PromptId
    prompt_tokens: list[int]
    completion_ids: list[int]
    logprobs: list[float] | None
    extra: dict[str, Any]  # from a rollout function, passed on to reward functions
    logged: dict[str, Any]  # columns that reward functions logged for this completion
    rewards: list[float] = field(default_factory=list)
    behaviour: list[float] | None = None  # log-probabilities of the policy that drew it, once carried over
    n_tokens: int = 0


@final
class RolloutStore:
    """Holds rollouts from when they are drawn until no later step needs them.

    Saved as tensors (int64 tokens, float64 log-probabilities and rewards) with the rest as JSON, so that nothing
    in a checkpoint can run code. Tensors and arrays that a rollout function returned come back as lists.
    """

    def __init__(self) -> None:
        self._rollouts: dict[int, Rollout] = {}

    def __getitem__(self, rollout_id: int) -> Rollout:
        """Return a held rollout."""
        return self._rollouts[rollout_id]

    def __iter__(self) -> Iterator[Rollout]:
        """Iterate over the held rollouts, oldest first."""
        return iter(self._rollouts.values())

    def __len__(self) -> int:
        """Return how many rollouts are held."""
        return len(self._rollouts)

    def add(self, rollout: Rollout) -> None:
        """Hold a rollout."""
        self._rollouts[rollout.rollout_id] = rollout

    def keep(self, held: Sequence[int]) -> None:
        """Forget every rollout but those that later steps still need."""
        self._rollouts = {rollout_id: self._rollouts[rollout_id] for rollout_id in held}

    def pack(self) -> tuple[dict[str, torch.Tensor], list[dict[str, Any]]]:
        """Return the held rollouts as named tensors and a JSON-safe list."""
        tensors: dict[str, torch.Tensor] = {}
        rest: list[dict[str, Any]] = []
        for rollout in self:
            for names, dtype in ((_TOKENS, torch.int64), (_NUMBERS, torch.float64)):
                for name in names:
                    values = getattr(rollout, name)
                    if values is not None:
                        known = [float("nan") if value is None else value for value in values]
                        tensors[f"{_PREFIX}:{rollout.rollout_id}:{name}"] = torch.tensor(known, dtype=dtype)
            plain = {"rollout_id": rollout.rollout_id, "prompt_id": rollout.prompt_id, "n_tokens": rollout.n_tokens,
                     "extra": rollout.extra, "logged": rollout.logged}  # fmt: skip
            rest.append(json.loads(json.dumps(plain, default=_as_list)))
        return tensors, rest

    def unpack(self, tensors: Mapping[str, torch.Tensor], rest: Sequence[Mapping[str, Any]]) -> None:
        """Restore rollouts that `pack` packed; other tensors are left alone."""
        self._rollouts = {}
        for plain in rest:
            known: dict[str, Any] = {
                name: tensors[key].tolist()
                if (key := f"{_PREFIX}:{plain['rollout_id']}:{name}") in tensors
                else None
                for name in (*_TOKENS, *_NUMBERS)
            }
            self.add(Rollout(**plain, **known))

    @staticmethod
    def owns(name: str) -> bool:
        """Whether a tensor's name is one of a packed rollout."""
        return name.startswith(f"{_PREFIX}:")


def _as_list(value: Any) -> Any:
    """Turn tensors and arrays into lists and numbers, which JSON knows."""
    if isinstance(value, torch.Tensor | np.ndarray | np.generic):
        return value.tolist()
    raise TypeError(
        f"a rollout function or log_extra returned {type(value).__name__} for a rollout that is carried over, which "
        "cannot be saved: return numbers, strings, lists, dictionaries, tensors or arrays"
    )
