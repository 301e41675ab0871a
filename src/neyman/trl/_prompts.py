"""Which prompt a dataset row is: ids, and the way back from an id to its row."""

from __future__ import annotations

import copy
import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Any, final

from neyman.errors import ArgumentError
from neyman.hosts.prompts import prompt_text
from neyman.randomness import PromptId, fingerprint
from neyman.trl._host import columns_of, environments_of

ID_COLUMN = "neyman_id"


def check_prompt_column(trainer: Any) -> None:
    """Refuse a dataset without prompts, unless an environment brings them.

    Raises:
        ArgumentError: names the columns that are there.
    """
    columns = columns_of(trainer)
    if columns and not environments_of(trainer) and "prompt" not in columns:
        raise no_prompt(columns)


def no_prompt(columns: Iterable[str]) -> ArgumentError:
    """Build the error for rows without a prompt."""
    names = [name for name in columns if name != ID_COLUMN]
    return ArgumentError(
        f"train_dataset has no column 'prompt', which TRL reads; it has {names}: rename the one that holds the "
        f"prompts, for example train_dataset.rename_column({names[0] if names else 'question'!r}, 'prompt')"
    )


def content_id(row: Mapping[str, Any]) -> str:
    """Return an id from a row's prompt alone, for streams that have no positions."""
    text = json.dumps(row.get("prompt"), sort_keys=True, default=repr)
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()


def with_ids(dataset: Any, id_column: str) -> Any:
    """Return a map-style dataset with an id per row: its own column's, else the position in the dataset.

    Raises:
        ArgumentError: a column is named that the dataset lacks.
    """
    columns = getattr(dataset, "column_names", None)
    if columns is not None and id_column not in columns and id_column != ID_COLUMN:
        raise ArgumentError(
            f"id_column={id_column!r} is no column of the dataset, which has {list(columns)}: name one of them, or "
            "leave id_column out to number the rows"
        )
    if not hasattr(dataset, "add_column") or not hasattr(dataset, "__len__") or id_column in (columns or ()):
        return dataset
    return dataset.add_column(id_column, list(range(len(dataset))))


@final
class Prompts:
    """The training prompts as the controller knows them.

    Args:
        dataset: the trainer's dataset, with ids where it is map-style.
        id_column: the column that holds the ids.
        hide_ids: whether the column is ours alone, which reward functions must not see.
        kept: the columns that the trainer keeps; None keeps all.

    Raises:
        ArgumentError: ids stand twice in the column, or are neither strings nor integers.
    """

    def __init__(
        self, dataset: Any, id_column: str, *, hide_ids: bool = True, kept: Collection[str] | None = None
    ) -> None:
        self._dataset, self._column = dataset, id_column
        self._hidden, self._kept = {id_column} if hide_ids else set[str](), kept
        self.ids: list[PromptId] | range | None = None
        self._positions: dict[PromptId, int] | None = None
        self._brought: dict[PromptId, dict[str, Any]] = {}
        columns = getattr(dataset, "column_names", None) or ()
        if not hasattr(dataset, "__len__") or id_column not in columns:
            return
        values = dataset[id_column]
        ids = list(values)
        if ids == list(range(len(ids))):  # the usual case: a range needs no memory and no index
            self.ids = range(len(ids))
            return
        bad = next((value for value in ids if not isinstance(value, str | int)), None)
        if bad is not None:
            raise ArgumentError(f"column {id_column!r} must hold strings or integers, got {bad!r}")
        # Ids of the user's own name rows in any order, so a row is found by its id and not by its place.
        self._positions = {prompt_id: i for i, prompt_id in enumerate(ids)}
        if len(self._positions) != len(ids):
            raise ArgumentError(
                f"column {id_column!r} must name each row once, but {len(ids) - len(self._positions)} ids stand twice; "
                "leave the column out to number the rows"
            )
        self.ids = ids

    def key(self, row: Mapping[str, Any]) -> PromptId:
        """Return the id of a row of a map-style dataset from the data loader."""
        return row[self._column] if self._column in row else content_id(row)

    def bring(self, rows: list[dict[str, Any]], repeats: int) -> list[PromptId]:
        """Remember a generation batch of a stream, whose rows no position leads back to; return their ids.

        All ranks' rows hold each prompt ``repeats`` times. An id is the prompt's content, and which of its occurrences
        in the batch it is, so that equal prompts stay groups of their own, as in the stock trainer. A prompt that comes
        again in a later batch has its first id again, and the belief about it.
        """
        seen, self._brought, keys = Counter[str](), {}, list[PromptId]()
        for row in rows:
            content = content_id(row)
            occurrence = seen[content] // repeats
            seen[content] += 1
            keys.append(f"{content}+{occurrence}" if occurrence else content)
            self._brought.setdefault(keys[-1], row)
        return keys

    def rows(self, prompt_ids: Sequence[PromptId]) -> list[dict[str, Any]]:
        """Return a fresh copy of each prompt's row, as TRL writes into it, with the columns that reward functions get.

        A row of a dataset is read once, however often its prompt stands here: reading costs as much as a tiny step.
        """
        source = {prompt_id: self._source(prompt_id) for prompt_id in dict.fromkeys(prompt_ids)}
        return [copy.deepcopy(source[prompt_id]) for prompt_id in prompt_ids]

    def _source(self, prompt_id: PromptId) -> dict[str, Any]:
        if self.ids is None:
            row = self._brought[prompt_id]
        else:
            row = self._dataset[prompt_id if self._positions is None else self._positions[prompt_id]]
        return {name: value for name, value in row.items() if self.is_given(name)}

    def columns_note(self, columns: Sequence[str]) -> str:
        """Return a note on an error: which of the dataset's columns reward functions get, and why not the others."""
        columns = columns or list(next(iter(self._brought.values()), {}))
        columns = [name for name in columns if name != ID_COLUMN or self.is_given(name)]
        given = [name for name in columns if self.is_given(name)]
        note = (
            f"neyman: the training dataset has the columns {columns}, of which reward functions get {given}"
        )
        if given != columns:
            note += "; remove_unused_columns=True keeps the others from them: set it to False"
        return note

    def is_given(self, column: str) -> bool:
        """Whether reward functions get a column of the dataset."""
        return column not in self._hidden and (self._kept is None or column in self._kept)

    def texts(self) -> list[str]:
        """Return every prompt as text, for embeddings and the fingerprint; empty for streams."""
        if self.ids is None:
            return []
        if "prompt" not in self._dataset.column_names:  # an environment owns the data
            return [json.dumps(row, sort_keys=True, default=repr) for row in self._dataset]
        return [prompt_text(prompt, between_parts=" ") for prompt in self._dataset["prompt"]]

    def digest(self) -> str:
        """Return a hash of ids and texts, to refuse a checkpoint of another dataset."""
        return "stream" if self.ids is None else fingerprint([*map(str, self.ids), *self.texts()])
