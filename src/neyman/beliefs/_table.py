"""Columns of numbers by prompt id: the compact store behind every belief."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import repeat
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from neyman._checks import FloatP, IntP, counts_pair, prompt_ids
from neyman.beliefs._state import pack_array, unpack_array
from neyman.errors import StateError
from neyman.randomness import PromptId


class PromptTable:
    """Columns with one row per prompt, grown by doubling; new rows hold zeros.

    Cost: O(1) amortised per new prompt, 8 bytes per row and column beside the ids.
    """

    def __init__(self, columns: Mapping[str, type[np.float64] | type[np.int64]]) -> None:
        self._rows: dict[PromptId, int] = {}
        self._columns: dict[str, NDArray[Any]] = {
            name: np.zeros(16, dtype) for name, dtype in columns.items()
        }

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, prompt_id: object) -> bool:
        return prompt_id in self._rows

    @property
    def ids(self) -> list[PromptId]:
        """All ids in the order in which they came."""
        return list(self._rows)

    def column(self, name: str) -> NDArray[Any]:
        """Return a writable view of one column, a row per known prompt."""
        return self._columns[name][: len(self._rows)]

    def find(self, ids: Sequence[PromptId]) -> IntP:
        """Return the row of each id, -1 where it is unknown."""
        return np.fromiter(map(self._rows.get, ids, repeat(-1)), dtype=np.int64, count=len(ids))

    def add(self, ids: Sequence[PromptId]) -> IntP:
        """Return the row of each id, making rows for unknown ones in the order given."""
        # Plain dict and doubling: a million new prompts take no array per prompt.
        rows = self._rows
        for item in ids:
            rows.setdefault(item, len(rows))
        size = len(next(iter(self._columns.values()), ()))
        if len(rows) > size:
            while size < len(rows):
                size *= 2
            for name, old in self._columns.items():
                self._columns[name] = np.zeros(size, old.dtype)
                self._columns[name][: len(old)] = old
        return self.find(ids)

    def gather(self, name: str, rows: IntP, missing: float = 0.0) -> FloatP:
        """Return a column's values at ``rows`` as float64, ``missing`` where the row is -1."""
        column = self._columns[name]
        return np.where(rows >= 0, column[np.maximum(rows, 0)], missing).astype(np.float64, copy=False)

    def idle(self, rows: IntP, clock: int) -> FloatP:
        """Return the steps since each row's last visit, by its column "seen"; 0 where the row is -1."""
        return np.asarray(clock - self.gather("seen", rows, missing=float(clock)))

    def evidence(self, rows: IntP, fade: float, clock: int) -> tuple[FloatP, FloatP]:
        """Return successes and trials, of which each step since the last visit has left the share ``fade``."""
        kept = np.asarray(fade ** self.idle(rows, clock), dtype=np.float64)
        return self.gather("successes", rows) * kept, self.gather("trials", rows) * kept

    def add_discounted(self, rows: IntP, successes: IntP, trials: IntP, config: Any, clock: int) -> None:
        """Add counts to earlier ones, which fade with each step and are discounted once per visit."""
        # All updates within a step are one visit, so the discount is taken once; new rows have nothing to discount.
        earlier = self.column("seen")[rows] < clock
        kept = config["fade"] ** self.idle(rows, clock) * np.where(earlier, config["discount"], 1.0)
        self.add_visit(rows, successes, trials, kept=kept, clock=clock)

    def add_visit(self, rows: IntP, successes: IntP, trials: IntP, *, kept: Any, clock: int) -> None:
        """Add counts to the share ``kept`` of the columns "successes" and "trials", and set "seen" to the clock."""
        for name, fresh in (("successes", successes), ("trials", trials)):
            column = self.column(name)
            column[rows] = column[rows] * kept + fresh
        self.column("seen")[rows] = clock

    def state(self) -> dict[str, Any]:
        """Return the ids and the columns, JSON-safe."""
        return {"ids": self.ids, **{name: pack_array(self.column(name)) for name in self._columns}}

    def load(self, packed: Mapping[str, Any]) -> None:
        """Replace everything by the ids and columns of a saved state, checked."""
        ids = packed["ids"]
        if not isinstance(ids, list) or not all(type(item) is str or type(item) is int for item in ids):
            raise StateError("state['ids'] must be a list of strings and integers")
        rows: dict[PromptId, int] = {item: row for row, item in enumerate(ids)}
        if len(rows) != len(ids):
            raise StateError("state['ids'] holds an id twice")
        fresh = {name: unpack_array(name, packed[name], shape=[len(ids)]) for name in self._columns}
        for name, values in fresh.items():
            if values.dtype != self._columns[name].dtype:
                raise StateError(
                    f"state[{name!r}] has dtype {values.dtype}, expected {self._columns[name].dtype}"
                )
            if not np.isfinite(values).all():
                raise StateError(f"state[{name!r}] holds values that are not finite")
        self._rows = {}
        self._columns = {name: np.zeros(16, values.dtype) for name, values in fresh.items()}
        self.add(ids)
        for name, values in fresh.items():
            self.column(name)[:] = values

    def check_visits(self, kind: str, clock: int) -> None:
        """Check the columns "successes", "trials" and "seen" of a loaded table."""
        successes, trials = self.column("successes"), self.column("trials")
        # Discounted counts are floats, and a prompt that always succeeded may exceed its trials by rounding.
        most = trials if trials.dtype == np.int64 else trials * (1.0 + 1e-9)
        if (successes < 0).any() or (successes > most).any():
            raise StateError(f"the saved {kind} has counts outside 0 <= successes <= trials")
        if (self.column("seen") > clock).any():
            raise StateError(f"the saved {kind} has a visit in the future")


def checked_counts(
    ids: Sequence[PromptId], successes: ArrayLike, trials: ArrayLike
) -> tuple[list[PromptId], IntP, IntP]:
    """Check verified counts, drop entries without trials and add up ids given twice, in order of appearance.

    Raises:
        ArgumentError: unequal lengths, fractions, negatives, or more successes than trials.
    """
    names = prompt_ids("ids", ids)
    s, n = counts_pair(successes, trials, length=len(names))
    # np.add.at and not fancy assignment, which keeps one of several entries of the same id.
    position: dict[PromptId, int] = {}
    kept = [index for index, count in enumerate(n.tolist()) if count > 0]
    slots = [position.setdefault(names[index], len(position)) for index in kept]
    total_successes = np.zeros(len(position), np.int64)
    total_trials = np.zeros(len(position), np.int64)
    np.add.at(total_successes, slots, s[kept])
    np.add.at(total_trials, slots, n[kept])
    return list(position), total_successes, total_trials
