"""The stream of fresh prompts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from neyman.errors import ArgumentError, StateError
from neyman.step.pool import Pool
from strategies import through_json


@given(size=st.integers(1, 30), counts=st.lists(st.integers(1, 7), max_size=40), seed=st.integers(0, 9))
def test_every_prompt_is_opened_once_before_any_is_opened_twice(size, counts, seed):
    pool, opened = Pool(range(size), seed=seed), []
    for count in counts:
        ids = pool.peek(count, set())
        assert len(ids) == len(set(ids)) == min(count, size)
        pool.open(ids)
        opened += ids
    for start in range(0, len(opened) - size + 1, size):
        assert sorted(opened[start : start + size]) == list(range(size))
    assert pool.epoch == len(opened) // size


def test_what_the_host_brings_counts_too():
    pool = Pool(["a", "b", "c", "d"], seed=1)
    pool.open(["c", "a", "a", "not in the pool"])
    assert sorted(pool.peek(2, set())) == ["b", "d"]
    pool.open(["b", "d"])
    assert pool.epoch == 1


def test_peeking_consumes_nothing_and_leaves_out_what_is_excluded():
    pool = Pool(range(10), seed=0)
    assert pool.peek(4, set()) == pool.peek(4, set())
    assert set(pool.peek(20, {1, 2})) == set(range(10)) - {1, 2}
    assert pool.peek(0, set()) == pool.peek(-3, set()) == []
    assert pool.peek(2, set(range(10))) == []


def test_at_the_end_of_an_epoch_the_next_one_follows_without_a_gap():
    pool = Pool(range(6), seed=3)
    pool.open(pool.peek(4, set()))
    last = pool.peek(4, set())
    assert len(set(last)) == 4
    pool.open(last)
    assert pool.epoch == 1
    rest = pool.peek(4, set())
    assert set(rest) == set(range(6)) - set(last[2:])


@given(opened=st.lists(st.integers(0, 11), max_size=40), seed=st.integers(0, 5))
def test_a_restored_pool_goes_on_as_if_never_stopped(opened, seed):
    pool = Pool(range(12), seed=seed)
    pool.open(opened)
    again = Pool(range(12), seed=seed)
    again.load_state_dict(through_json(pool.state_dict()))
    for _ in range(6):
        assert pool.peek(5, {3}) == again.peek(5, {3})
        assert pool.epoch == again.epoch
        ids = pool.peek(5, {3})
        pool.open(ids)
        again.open(ids)


def test_orders_differ_by_seed_and_epoch_and_kinds_of_ids_do_not_matter():
    assert Pool(range(50), seed=0).peek(50, set()) != Pool(range(50), seed=1).peek(50, set())
    assert Pool(range(50), seed=0).peek(50, set()) == Pool(list(range(50)), seed=0).peek(50, set())
    assert Pool(range(5), seed=0).fingerprint == Pool(list(range(5)), seed=9).fingerprint
    assert Pool([1, 2], seed=0).fingerprint != Pool(["1", "2"], seed=0).fingerprint


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({}, "must have the keys"),
        ({"epoch": 0, "opened": "ff" * 9, "again": "ff" * 9, "opened_at": ""}, "another number of prompts"),
    ],
)
def test_a_state_that_does_not_fit_is_refused(state, message):
    with pytest.raises(StateError, match=message):
        Pool(range(12), seed=0).load_state_dict(state)


def test_ids_must_be_distinct_and_there():
    with pytest.raises(ArgumentError, match="'a' stands in it twice"):
        Pool(["a", "b", "a"], seed=0)
    with pytest.raises(ArgumentError, match="pool holds no prompt id"):
        Pool([], seed=0)
    assert len(Pool(["a"], seed=0)) == 1
    assert Pool(["a"], seed=0).ids == ("a",)


def test_browsing_offers_the_whole_pool_evenly_opened_or_not():
    pool, rng = Pool(range(20), seed=0), np.random.default_rng(0)
    pool.open(range(10))
    offered = np.bincount([i for _ in range(2_000) for i in pool.browse(5, {3}, rng)], minlength=20)
    assert offered[3] == 0
    # 2,000 x 5 draws over 19 prompts: 526 each, standard deviation about 20
    assert np.abs(np.delete(offered, 3) - 526).max() < 100
    assert sorted(pool.browse(50, {3}, rng)) == sorted(set(range(20)) - {3})
    assert pool.browse(0, set(), rng) == []


def test_what_was_not_opened_for_long_is_overdue_longest_ago_first():
    pool = Pool(["a", "b", "c"], seed=0)
    assert pool.overdue(0.0, set()) == []
    pool.open(["a"], passes=2.0)
    pool.open(["b"], passes=1.0)
    assert pool.overdue(1.5, set()) == ["c", "b"]
    assert pool.overdue(1.5, {"c"}) == ["b"]
    pool.open(["c"], passes=2.5)
    again = Pool(["a", "b", "c"], seed=0)
    again.load_state_dict(through_json(pool.state_dict()))
    assert again.overdue(3.0, set()) == pool.overdue(3.0, set()) == ["b", "a", "c"]


def test_an_epoch_that_a_rule_leaves_unfinished_goes_round_in_turn():
    # A rule passes over prompt 0 again and again: the others must keep taking turns, not the same few at the front.
    pool, counts = Pool(range(8), seed=0), dict.fromkeys(range(8), 0)
    for step in range(28):
        picked = pool.peek(2, exclude={0})
        pool.open(picked, passes=float(step))
        for prompt in picked:
            counts[prompt] += 1
    assert counts.pop(0) == 0
    assert max(counts.values()) - min(counts.values()) <= 2
    again = Pool(range(8), seed=0)
    again.load_state_dict(pool.state_dict())
    assert again.peek(7, exclude={0}) == pool.peek(7, exclude={0})


@given(
    times=st.lists(st.integers(0, 4), min_size=1, max_size=30),
    exclude=st.sets(st.integers(0, 29)),
    count=st.integers(0, 31),
    since=st.integers(0, 5),
)
def test_the_longest_overdue_are_found_without_sorting_all(times, exclude, count, since):
    pool = Pool(range(len(times)), seed=0)
    for prompt_id, passes in enumerate(times):
        pool.open([prompt_id], float(passes))
    due = [
        i for i in sorted(range(len(times)), key=times.__getitem__) if times[i] < since and i not in exclude
    ]
    assert pool.overdue(float(since), exclude) == due
    assert pool.overdue(float(since), exclude, count) == due[:count]
