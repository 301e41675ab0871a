"""The order in which groups with planned rollouts are served."""

from __future__ import annotations

import heapq
from typing import final

from neyman.step.messages import Reason

_URGENT = (Reason.RETRY, Reason.COMMIT, Reason.CONTINUE, Reason.RECOUNT, Reason.CARRIED)


def priority(reason: Reason) -> int:
    """Return 0 for rollouts that a verdict or a group in play waits for, 1 for those of fresh prompts."""
    return 0 if reason in _URGENT else 1


@final
class Queue:
    """A set of group indices, served by rank and then by index.

    The order depends on the groups that wait, never on when they came, so a restored step serves as the saved one did.

    Cost: O(log n) a change; replaced and discarded entries are skipped when they surface.
    """

    def __init__(self) -> None:
        self._rank: dict[int, int] = {}
        self._heap: list[tuple[int, int]] = []

    def __contains__(self, index: int) -> bool:
        return index in self._rank

    def push(self, index: int, rank: int) -> None:
        """Add an index, or change its rank."""
        if self._rank.get(index) != rank:
            self._rank[index] = rank
            heapq.heappush(self._heap, (rank, index))

    def discard(self, index: int) -> None:
        """Remove an index if it is there."""
        self._rank.pop(index, None)

    def first(self) -> int | None:
        """Return the index to serve next, without removing it; None when nothing waits."""
        while self._heap:
            rank, index = self._heap[0]
            if self._rank.get(index) == rank:
                return index
            heapq.heappop(self._heap)
        return None
