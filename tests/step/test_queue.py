"""The order in which groups are served."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from neyman.step._queue import Queue

MOVES = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 1) | st.none()))


@given(moves=MOVES)
def test_it_serves_by_rank_then_index_whatever_came_before(moves):
    queue, ranks = Queue(), {}
    for index, rank in moves:
        if rank is None:
            queue.discard(index)
            ranks.pop(index, None)
        else:
            queue.push(index, rank)
            ranks[index] = rank
        assert all((i in queue) == (i in ranks) for i in range(10))
        first = min(ranks, key=lambda i: (ranks[i], i), default=None)
        assert first == queue.first()
