"""verl's dataset with a number for each row: which prompt a row is, and the way back from a number to its row."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any, final

from torch.utils.data import Dataset
from torchdata.stateful_dataloader import StatefulDataLoader
from verl.utils.dataset.rl_dataset import collate_fn

from neyman.hosts.prompts import prompt_text
from neyman.randomness import fingerprint

NUMBER = "neyman_number"


@final
class Numbered(Dataset[dict[str, Any]]):
    """A dataset whose rows carry their position: the ``index`` that verl reads is the user's, and often 0 for all."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, position: int) -> dict[str, Any]:
        return {**self.dataset[position], NUMBER: position}


def numbered(loader: Any) -> Any:
    """Return a loader like verl's whose rows are numbered."""
    return StatefulDataLoader(
        Numbered(loader.dataset),
        batch_size=loader.batch_size,
        num_workers=loader.num_workers,
        drop_last=loader.drop_last,
        collate_fn=loader.collate_fn,
        sampler=loader.sampler,
    )


def distinct(numbers: Sequence[int], count: int) -> list[int]:
    """Return a batch's prompts without repeats, as many as there were: those that follow in the dataset fill up.

    verl's loader repeats a prompt where small fetches of two epochs share a batch. The dataset has ``count`` rows.

    >>> distinct([3, 5, 3, 4], 6)
    [3, 5, 4, 0]
    """
    unique = list(dict.fromkeys(numbers))
    following = ((numbers[-1] + step) % count for step in range(1, count))
    fresh = (number for number in following if number not in unique)
    return unique + list(islice(fresh, len(numbers) - len(unique)))


@final
class Prompts:
    """The training prompts as the controller knows them: by their position in verl's dataset."""

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset
        self.ids = range(len(dataset))

    def rows(self, ids: Sequence[int]) -> dict[str, Any]:
        """Return a batch of rows as verl's loader brings them."""
        batch: dict[str, Any] = collate_fn([self._dataset[position] for position in ids])
        return batch

    def texts(self) -> list[str]:
        """Return every prompt as text: chat messages by their contents, one after the other."""
        frame: Any = getattr(self._dataset, "dataframe", None)
        key = getattr(self._dataset, "prompt_key", None)
        # The column, where there is one: reading a row builds its messages, and may load images.
        prompts = (
            frame[key]
            if key in getattr(frame, "column_names", ())
            else (self._dataset[i]["raw_prompt"] for i in self.ids)
        )
        return [prompt_text(prompt) for prompt in prompts]

    def digest(self) -> str:
        """Return a hash of all prompts in their order, to refuse a checkpoint of another dataset."""
        return fingerprint(self.texts())
