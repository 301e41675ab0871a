"""The verified outcome of a completion, apart from the reward that trains."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from inspect import iscoroutinefunction
from typing import Any, final

from neyman._checks import real
from neyman.controller import MissingReward
from neyman.errors import ArgumentError
from neyman.hosts.success import reaches, read_binary
from neyman.trl._guard import Guard

Verdict = bool | MissingReward | None
# TRL hands these to reward functions in its own way.
_NOT_COLUMNS = ("prompt", "completion", "completion_ids")


@final
class Success:
    """The rule by which a completion is a success.

    Args:
        rule: None (the only reward function is binary), ``(reward function's name, threshold)``, or a callable
            ``f(prompts, completions, completion_ids, **columns) -> list[bool | None]``, None where it cannot judge;
            1 and 0 count as True and False, anything else (0.3, -1, text) as no verdict: the result is missing.
        trainer: for the names of its reward functions.
        guard: wraps the callable too.

    Raises:
        ArgumentError: no rule for several reward functions, an unknown name, an async callable, or something else.
    """

    def __init__(self, rule: Any, trainer: Any, guard: Guard) -> None:
        names = list(trainer.reward_func_names)
        self._function: Callable[..., Any] | None = None
        self._column: int | None = None
        self._threshold = 0.0
        self._reward_name = names[0] if names else ""
        if rule is None:
            if len(names) > 1:
                raise ArgumentError(
                    f"{len(names)} reward functions ({', '.join(names)}) train, and which outcome counts as success is "
                    f"not named: pass success=({names[0]!r}, 0.5), one of them with a threshold, or success=f, a "
                    "callable like a reward function that returns one bool per completion"
                )
        elif iscoroutinefunction(rule):
            raise ArgumentError(
                f"success must be a plain callable, got the async {rule!r}: await inside it (asyncio.run), or pass "
                f"success=({names[0]!r}, 0.5), a reward function's name and a threshold"
            )
        elif callable(rule):
            self._function = guard.around(rule, "success", "verdicts")
        elif isinstance(rule, tuple) and len(rule) == 2 and rule[0] in names:
            self._column, self._threshold = names.index(rule[0]), real("success threshold", rule[1])
            self._reward_name = rule[0]
        else:
            raise ArgumentError(
                f"success must be None, a callable, or (name, threshold) with a name of {names}, got {rule!r}"
            )

    def __call__(
        self,
        rows: Sequence[dict[str, Any]],
        prompts: Sequence[Any],
        completions: Sequence[Any],
        completion_ids: Sequence[Any],
        rewards: Sequence[Sequence[float]],
    ) -> list[Verdict]:
        """Judge completions; a missing result where a rule cannot judge, None where no rule has a reward to read.

        Raises:
            ContractError: the only reward function is not binary, or the callable returned another number of
                verdicts than completions at its first call.
        """
        if self._column is not None:
            source = f"reward function {self._reward_name!r} returned "
            return [reaches(row[self._column], self._threshold, source) for row in rewards]
        if self._function is None:
            return [None if math.isnan(row[0]) else self._binary(row[0]) for row in rewards]
        # As TRL calls reward functions: the dataset's other columns by name.
        columns = {name: [row[name] for row in rows] for name in rows[0] if name not in _NOT_COLUMNS}
        judged = self._function(
            prompts=prompts, completions=completions, completion_ids=completion_ids, **columns
        )
        # The guard leaves 1 and 0, and NaN where it took a verdict for none.
        unknown = MissingReward("success could not judge the completion")
        return [unknown if verdict is None or math.isnan(verdict) else bool(verdict) for verdict in judged]

    def _binary(self, reward: float) -> bool:
        name = self._reward_name
        return read_binary(
            reward,
            f"reward function {name!r}",
            f"pass success=({name!r}, 0.5), a threshold on it, or success=f, a callable like a reward function that "
            "returns one bool (None where it cannot judge) per completion",
        )
