"""Fresh prompts: a stream over the pool in which every prompt is opened once before any is opened twice."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from neyman._checks import prompt_ids
from neyman.errors import ArgumentError, StateError
from neyman.randomness import PromptId, fingerprint, keyed_rng

Order = NDArray[np.int64]


@final
class Pool:
    """All prompts, and which of them were opened in the current epoch, whoever brought them.

    Args:
        ids: distinct prompt ids; a range costs no memory for an index.
        seed: keys the order of each epoch.

    Guarantee: an epoch ends when every prompt was opened, host-brought and drawn together; the order depends on (seed,
    epoch) alone.
    Cost: `peek` O(pool) in NumPy, a few ms for a million prompts; memory O(pool).
    """

    def __init__(self, ids: Sequence[PromptId], *, seed: int) -> None:
        self._ids: Sequence[PromptId] = ids if isinstance(ids, range) else tuple(prompt_ids("pool", ids))
        if not self._ids:
            raise ArgumentError(
                "pool holds no prompt id; pass all of them, or pool=None to use the host's prompts only"
            )
        self._index = (
            None if isinstance(ids, range) else {prompt_id: i for i, prompt_id in enumerate(self._ids)}
        )
        if self._index is not None and len(self._index) != len(self._ids):
            seen: set[PromptId] = set()
            twice = next(i for i in self._ids if i in seen or seen.add(i))  # type: ignore[func-returns-value]
            raise ArgumentError(f"pool must hold distinct prompt ids, but {twice!r} stands in it twice")
        self._seed = seed
        self._epoch = 0
        self._opened = np.zeros(len(self._ids), dtype=bool)
        self._again = np.zeros(len(self._ids), dtype=bool)  # opened twice in this epoch
        self._left = len(self._ids)
        self._opened_at = np.zeros(len(self._ids), dtype=np.float32)  # in passes
        self._shuffle()

    def __len__(self) -> int:
        """Return the number of prompts."""
        return len(self._ids)

    @property
    def ids(self) -> Sequence[PromptId]:
        """The prompt ids, in the pool's order."""
        return self._ids

    @property
    def epoch(self) -> int:
        """Full passes so far."""
        return self._epoch

    @property
    def fingerprint(self) -> str:
        """A hash of the ids, to refuse a state of another prompt set."""
        return fingerprint(self._ids)

    def _order_of(self, epoch: int) -> Order:
        return keyed_rng(self._seed, "pool", epoch).permutation(len(self._ids))

    def _shuffle(self) -> None:
        self._order = self._order_of(self._epoch)
        self._cursor = 0

    def _position(self, prompt_id: PromptId) -> int | None:
        if self._index is not None:
            return self._index.get(prompt_id)
        span = self._ids
        assert isinstance(span, range)
        return span.index(prompt_id) if isinstance(prompt_id, int) and prompt_id in span else None

    def peek(self, count: int, exclude: set[PromptId]) -> list[PromptId]:
        """Return up to ``count`` prompts not in ``exclude``, unopened ones first; nothing is consumed."""
        found: list[PromptId] = []
        if count <= 0:
            return found
        unopened = self._order[self._cursor :]
        unopened = unopened[~self._opened[unopened]]
        self._take(unopened, count, exclude, found)
        if len(found) < count:
            # The next epoch begins; the rest of the current one is in ``found`` or excluded.
            rest = self._order_of(self._epoch + 1)
            self._take(self._turns(rest[self._opened[rest]]), count, exclude, found)
        return found

    def _turns(self, order: Order) -> Order:
        """Put prompts opened twice in this epoch last, longest ago first: a rule may leave the epoch unfinished."""
        again = self._again[order]
        twice = order[again]
        return np.concatenate([order[~again], twice[np.argsort(self._opened_at[twice], kind="stable")]])

    def _take(self, positions: Order, count: int, exclude: set[PromptId], found: list[PromptId]) -> None:
        wanted = count - len(found)
        offered = map(self._ids.__getitem__, positions[: wanted + len(exclude)].tolist())
        found += [prompt_id for prompt_id in offered if prompt_id not in exclude][:wanted]

    def browse(self, count: int, exclude: set[PromptId], rng: np.random.Generator) -> list[PromptId]:
        """Return up to ``count`` prompts not in ``exclude``, drawn evenly from the whole pool.

        For rules that choose: `peek` would offer, again and again, the prompts that they passed over before.
        """
        if count <= 0:
            return []
        tries = min(len(self._ids), count + len(exclude))
        found: list[PromptId] = []
        self._take(rng.choice(len(self._ids), size=tries, replace=False), count, exclude, found)
        return found

    def overdue(self, since: float, exclude: set[PromptId], count: int | None = None) -> list[PromptId]:
        """Return the prompts not in ``exclude`` that were last opened before ``since`` passes, longest ago first.

        A ``count`` of None takes all, and sorts all.
        """
        late = np.flatnonzero(self._opened_at < since)
        found: list[PromptId] = []
        wanted = len(late) if count is None else min(len(late), count + len(exclude))
        if wanted:
            times = self._opened_at[late]
            last = np.partition(times, wanted - 1)[wanted - 1]
            sooner, ties = np.flatnonzero(times < last), np.flatnonzero(times == last)
            sooner = sooner[np.argsort(times[sooner], kind="stable")]
            order = late[np.concatenate([sooner, ties[: wanted - len(sooner)]])]
            self._take(order, len(order) if count is None else count, exclude, found)
        return found

    def open(self, prompt_ids: Iterable[PromptId], passes: float = 0.0) -> None:
        """Mark prompts as opened at a time in passes over the pool; ids outside it are the host's own, and ignored."""
        for prompt_id in prompt_ids:
            position = self._position(prompt_id)
            if position is None:
                continue
            self._opened_at[position] = passes
            if self._opened[position]:
                self._again[position] = True
                continue
            self._opened[position] = True
            self._left -= 1
            if self._left == 0:
                self._epoch += 1
                self._opened[:] = self._again[:] = False
                self._left = len(self._ids)
                self._shuffle()
        while self._cursor < len(self._order) and self._opened[self._order[self._cursor]]:
            self._cursor += 1

    def state_dict(self) -> dict[str, Any]:
        """Return the state, JSON-safe: the epoch, the opened positions as packed bits, and when they were."""
        return {
            "epoch": self._epoch,
            "opened": np.packbits(self._opened).tobytes().hex(),
            "again": np.packbits(self._again).tobytes().hex(),
            "opened_at": self._opened_at.astype("<f4").tobytes().hex(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state of a pool of the same ids; keys or sizes that do not fit are a `StateError`."""
        if set(state) != {"epoch", "opened", "again", "opened_at"}:
            raise StateError(
                f"pool state must have the keys epoch, opened, again and opened_at, got {sorted(state)}"
            )
        bits, twice = (
            np.frombuffer(bytes.fromhex(state[name]), dtype=np.uint8) for name in ("opened", "again")
        )
        times = np.frombuffer(bytes.fromhex(state["opened_at"]), dtype="<f4")
        if len(bits) != (len(self._ids) + 7) // 8 or len(twice) != len(bits) or len(times) != len(self._ids):
            raise StateError(f"pool state is for another number of prompts than {len(self._ids)}")
        self._epoch = int(state["epoch"])
        self._opened = np.unpackbits(bits)[: len(self._ids)].astype(bool)
        self._again = np.unpackbits(twice)[: len(self._ids)].astype(bool)
        self._opened_at = times.astype(np.float32)
        self._left = int(len(self._ids) - self._opened.sum())
        self._shuffle()
        self.open(())
