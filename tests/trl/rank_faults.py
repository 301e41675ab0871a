"""What can go wrong on one rank alone: each fault strikes the last rank, in its first or second round."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from functools import cached_property

import torch
from datasets import Dataset
from transformers import TrainerCallback

from neyman.errors import StateError

SAID = "the judge's disk is full"
STRAGGLES, IS_SILENT = 0.4, 15.0  # seconds; the latter longer than the process group waits
UNEQUAL = 0.0, None  # what ranks 1 and 2 score instead of what is right


class Raises(TrainerCallback):
    """Fails where the adapter is not at work."""

    def on_step_end(self, args, state, control, **rest):
        if state.global_step == 2:
            raise OSError(SAID)


@dataclass(frozen=True)
class Fault:
    """A fault by its name; the empty name is none."""

    name: str = ""

    @cached_property
    def strikes(self) -> bool:
        """Whether it is this rank's."""
        return int(os.environ["RANK"]) == int(os.environ["WORLD_SIZE"]) - 1

    @cached_property
    def calls(self) -> list[None]:
        """One entry per call of the reward function."""
        return []

    def scored(self, rewards):
        """Return what the reward function returns."""
        self.calls.append(None)
        rank, late = int(os.environ["RANK"]), len(self.calls) == 2
        if self.name == "unequal":
            return rewards if rank in (0, 3) else [UNEQUAL[rank - 1]] * len(rewards)
        if not self.strikes:
            return rewards
        if self.name == "straggler":
            time.sleep(STRAGGLES)
        elif self.name == "silent" and late:
            time.sleep(IS_SILENT)
        elif self.name == "killed" and late:
            os.kill(os.getpid(), signal.SIGKILL)
        elif self.name in ("reward", "async reward") or (self.name == "later" and len(self.calls) > 1):
            raise ValueError(SAID)
        elif self.name == "too few rewards":
            return rewards[1:]
        elif self.name == "a word for a reward":
            return ["right"] * len(rewards)
        elif self.name == "a reward that is not binary" and late:
            return [0.5, *rewards[1:]]
        return rewards

    def reward(self, function):
        """Return the reward function in the kind that the fault is about."""
        if self.name != "async reward":
            return function

        async def reward(prompts, completions, **columns):
            return function(prompts, completions, **columns)

        return reward

    def host(self, rows):
        """Return further arguments of the trainer; the rows are for evaluation."""
        if self.name == "success":
            return {"success": self._success}
        if self.name == "rollout function":
            return {"rollout_func": self._rollouts}
        if self.name == "callback" and self.strikes:
            return {"callbacks": [Raises()]}
        return {"eval_dataset": Dataset.from_list(rows)} if self.name.startswith("eval") else {}

    def _success(self, completions, **columns):
        if self.strikes:
            raise ValueError(SAID)
        return [len(text) > 3 for text in completions]

    def _rollouts(self, prompts, host):
        if self.strikes and len(self.calls) == 1:
            raise ValueError(SAID)
        ids = host.processing_class(prompts)["input_ids"]
        return {"prompt_ids": ids, "completion_ids": [row[1:] for row in ids], "logprobs": None}

    def applied(self, host):
        """Put the fault into a trainer that is ready."""
        if not self.strikes:
            return
        if self.name == "generation":
            self._after(host.model, "generate", torch.OutOfMemoryError(SAID))
        elif self.name == "evaluation":
            self._after(host.model, "generate", OSError(SAID), calls=0, when=lambda: not host.model.training)
        elif self.name == "reading":
            self._after(host._neyman.prompts, "rows", OSError(SAID))
        elif self.name == "saving":
            self._after(host._neyman.checkpoint, "_process_state", OSError(SAID), calls=0)
        elif self.name == "loading":
            self._after(host._neyman.checkpoint, "_load_process", StateError(SAID), calls=0)

    @staticmethod
    def _after(owner, name, error, calls=1, when=lambda: True):
        """Let a method fail from its second such call on."""
        method, seen = getattr(owner, name), []

        def failing(*args, **kwargs):
            if when():
                seen.append(None)
            if len(seen) > calls:
                raise error
            return method(*args, **kwargs)

        object.__setattr__(owner, name, failing)
