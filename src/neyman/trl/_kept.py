"""Errors that one process meets alone inside TRL's own methods, kept until all can share them.

An error in a reward function, or in generation, would take one process out of TRL's method while the others wait in
the collective that follows. With several processes it is therefore kept, something harmless is returned in its place,
and it is raised on all of them when they next exchange (`neyman.trl._ranks`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, final

from neyman.trl._host import columns_of, generates_alone
from neyman.trl._prompts import Prompts
from neyman.trl._ranks import Ranks


@final
class KeptErrors:
    """Keeps the first error of this process until it can be shared."""

    def __init__(self, trainer: Any, prompts: Prompts, ranks: Ranks) -> None:
        self._trainer, self._prompts, self._ranks = trainer, prompts, ranks
        self._kept: Exception | None = None

    @property
    def is_empty(self) -> bool:
        """Whether nothing has failed since the last exchange."""
        return self._kept is None

    def release(self) -> None:
        """Raise the kept error, and forget it; call it inside an exchange, which shares it.

        Raises:
            Exception: the error.
        """
        error, self._kept = self._kept, None
        if error is not None:
            raise error

    def forget(self) -> None:
        """Forget an error of an earlier training, which ended before it could be shared."""
        self._kept = None

    def keep(self, error: Exception, doing: str) -> None:
        """Keep an error that ``doing`` met, for the message; with one process raise it at once."""
        if self._ranks.world == 1:
            raise error
        # The other processes are on their way to a collective: raised here, the error would leave them waiting.
        if self._kept is None:
            error.neyman_doing = doing  # type: ignore[attr-defined]
            self._kept = error

    def keep_of_reward(self, error: Exception, name: str) -> None:
        """Keep an error of a reward function; most lack a column, so a note names those that there are."""
        if isinstance(error, TypeError | KeyError):
            error.add_note(self._prompts.columns_note(columns_of(self._trainer)))
        self.keep(error, f"scoring completions with {name}")

    def generated(self, generate: Callable[[], Any], instead: Callable[[int], Any]) -> Any:
        """Generate; where that fails, return completions ``instead``, made of a token that ends one at once.

        Raises:
            Exception: with one process, or where generation itself has collectives (a vLLM server or tensor parallel
                vLLM, sharded weights), which a process that failed must not run ahead of.
        """
        try:
            return generate()
        except Exception as error:
            if not generates_alone(self._trainer):
                raise
            self.keep(error, "generating completions")
            # Rows as TRL expects them, so that this process reaches the exchange at which all raise the error.
            tokenizer = getattr(self._trainer.processing_class, "tokenizer", self._trainer.processing_class)
            return instead(int(tokenizer.pad_token_id))
