"""The order in which groups are served."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from neyman.step._queue import Waiting

MOVES = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 1) | st.none()))


@given(moves=MOVES)
def test_it_serves_by_rank_then_index_whatever_came_before(moves):
    waiting, ranks = Waiting(), {}
    for index, rank in moves:
        if rank is None:
            waiting.discard(index)
            ranks.pop(index, None)
        else:
            waiting.push(index, rank)
            ranks[index] = rank
        assert all((i in waiting) == (i in ranks) for i in range(10))
        first = min(ranks, key=lambda i: (ranks[i], i), default=None)
        assert first == waiting.first()
