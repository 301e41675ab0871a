"""Errors that one process meets alone inside TRL's own methods, kept until all can be told.

An error in a reward function, or in generation, would take one process out of TRL's method while the others wait in
the collective that follows. With several processes it is therefore kept, something harmless is returned in its place,
and it is raised on all of them when they next exchange (`neyman.trl._ranks`).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, final

import torch

from neyman.errors import ContractError
from neyman.trl._fit import columns_note
from neyman.trl._prompts import Prompts
from neyman.trl._ranks import Ranks

Reward = Callable[..., Any]


@final
class KeptErrors:
    """Keeps the first error of this process until it can be shared.

    Args:
        trainer: the adapted trainer.
        prompts: the training prompts, for what an error is told of their columns.
        ranks: the processes.
    """

    def __init__(self, trainer: Any, prompts: Prompts, ranks: Ranks) -> None:
        self._trainer, self._prompts, self._ranks = trainer, prompts, ranks
        self._kept: Exception | None = None

    def release(self) -> None:
        """Raise what was kept, and forget it; call it where all processes hear of it.

        Raises:
            Exception: the error.
        """
        error, self._kept = self._kept, None
        if error is not None:
            raise error

    def forget(self) -> None:
        """Forget what an earlier training left, which ended before it could be shared."""
        self._kept = None

    def _keep(self, error: Exception, doing: str) -> None:
        if self._kept is None:
            error.neyman_doing = doing  # type: ignore[attr-defined]
            self._kept = error

    @contextmanager
    def rewards(self) -> Iterator[None]:
        """Keep errors of the trainer's reward functions; their completions have no reward.

        Reward models (modules) are left alone.
        """
        trainer = self._trainer
        original = trainer.reward_funcs
        if self._ranks.world == 1:
            with self._explained():
                yield
            return
        names = trainer.reward_func_names
        trainer.reward_funcs = [
            function if isinstance(function, torch.nn.Module) else self._keeping(function, name)
            for function, name in zip(original, names, strict=True)
        ]
        try:
            yield
        finally:
            trainer.reward_funcs = original

    def _keeping(self, function: Reward, name: str) -> Reward:
        doing = f"scoring completions with reward function {name!r}"

        def plain(**given: Any) -> list[Any]:
            nothing = [None] * len(given["prompts"])
            if self._kept is not None:
                return nothing
            try:
                with self._explained():
                    return _checked(name, function(**given), len(nothing))
            except Exception as error:  # noqa: BLE001 - shared at the next exchange
                self._keep(error, doing)
                return nothing

        async def waiting(**given: Any) -> list[Any]:
            nothing = [None] * len(given["prompts"])
            if self._kept is not None:
                return nothing
            try:
                with self._explained():
                    return _checked(name, await function(**given), len(nothing))
            except Exception as error:  # noqa: BLE001 - shared at the next exchange
                self._keep(error, doing)
                return nothing

        is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
            getattr(function, "__call__", None)  # noqa: B004 - a method, not whether it can be called
        )
        return waiting if is_async else plain

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Note on a reward function's error which columns there are: most lack one."""
        try:
            yield
        except (TypeError, KeyError) as error:
            error.add_note(columns_note(self._trainer, self._prompts))
            raise

    def generated(self, generate: Callable[[], Any], instead: Callable[[int], Any]) -> Any:
        """Return what is generated; where that fails, completions that end at once.

        Args:
            generate: generates.
            instead: makes what TRL expects, of a token that ends a completion.

        Raises:
            Exception: with one process, or where generation itself has collectives (a vLLM server or tensor parallel
                vLLM, sharded weights), which a process that failed must not run ahead of.
        """
        if self._ranks.world == 1 or not self._generates_alone():
            return generate()
        try:
            return generate()
        except Exception as error:  # noqa: BLE001 - shared at the next exchange
            self._keep(error, "generating completions")
            tokenizer = getattr(self._trainer.processing_class, "tokenizer", self._trainer.processing_class)
            return instead(int(tokenizer.pad_token_id))

    def _generates_alone(self) -> bool:
        trainer = self._trainer
        shards = getattr(trainer, "is_fsdp_enabled", False) or getattr(trainer, "is_deepspeed_enabled", False)
        engine = getattr(trainer, "use_vllm", False) and (
            getattr(trainer, "vllm_mode", "server") != "colocate"
            or int(getattr(trainer, "vllm_tensor_parallel_size", 1)) > 1
        )
        return not shards and not engine


def _checked(name: str, rewards: Any, expected: int) -> list[Any]:
    """Return rewards that TRL can take; what it would refuse is refused here, where it is kept."""
    values = list(rewards)
    if len(values) != expected:
        raise ContractError(
            f"reward function {name!r} returned {len(values)} rewards for {expected} completions; it must return one "
            "number (or None when it cannot tell) per completion"
        )
    torch.tensor([torch.nan if value is None else value for value in values], dtype=torch.float32)
    return values
