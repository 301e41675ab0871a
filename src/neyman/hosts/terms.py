"""A trainer as its strategy meets it: the step in numbers, the names of the settings behind them, and the prompts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, final

from neyman.randomness import PromptId


class TrainingPrompts(Protocol):
    """The training prompts as an adapter knows them."""

    @property
    def ids(self) -> Sequence[PromptId] | None:
        """All prompts, in the order of the dataset; None for a stream."""
        ...

    def texts(self) -> list[str]:
        """Return the text of each prompt, in the order of ``ids``."""
        ...

    def digest(self) -> str:
        """Return a hash of the prompts, to refuse a checkpoint of another dataset."""
        ...


@final
@dataclass(frozen=True, kw_only=True)
class Terms:
    """The numbers that a strategy must fit, and the trainer's names for its settings, for error messages.

    Args:
        rows: rows that the optimiser gets in a step, prompts times average group size.
        group_size: average rollouts per prompt.
        aggregation: how the loss averages tokens: "sequence_mean", "constant" or "token_mean".
        batch: noun for the rows of a step.
        group_setting: setting of the average group size.
        batch_settings: settings that let a step hold more prompts.
        loss_setting: setting of the loss, with the values that average over the tokens of the batch.
        max_rollouts: setting that bounds the rollouts of a step.
        option: an option of the strategy as it is set in this trainer, with ``{name}`` and ``{value}``.
        accept_change: how the resumption under another strategy is accepted.
        new_run: how a run is started that resumes nothing.
        filler: noun for the rows that the trainer puts in the place of missing ones.
    """

    rows: int
    group_size: int
    aggregation: str
    batch: str
    group_setting: str
    batch_settings: str
    loss_setting: str
    max_rollouts: str
    option: str
    accept_change: str
    new_run: str
    filler: str

    @property
    def prompts(self) -> int:
        """Prompts that the trainer brings to a step."""
        return self.rows // self.group_size

    def with_option(self, name: str, value: object) -> str:
        """Return the way in which the user sets an option of the strategy."""
        return self.option.format(name=name, value=value)
