"""Randomness keyed by what it is for."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from neyman.randomness import fingerprint, keyed_epochs, keyed_hash, keyed_rng, keyed_seed

KEYS = st.lists(st.text() | st.integers(), max_size=4).map(tuple)


def test_hashes_are_the_same_for_ever():
    assert keyed_hash("a", 1) == 4836746945781937324
    assert keyed_seed(0, 1, "x") == 575430838


@given(one=KEYS, two=KEYS)
def test_different_keys_have_different_hashes(one, two):
    typed = [[(type(key), key) for key in keys] for keys in (one, two)]
    assert (typed[0] == typed[1]) == (keyed_hash(*one) == keyed_hash(*two))


def test_the_hash_does_not_depend_on_the_process():
    code = "from neyman.randomness import keyed_hash; print(keyed_hash('prompt', 3, 'draw'))"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert keyed_hash("prompt", 3, "draw") == int(printed)


@given(keys=KEYS)
def test_seeds_leave_room_for_draws_in_31_bits(keys):
    assert 0 <= keyed_seed(*keys) < 2**30


def test_streams_of_different_keys_are_not_alike():
    draws = np.array([keyed_rng("k", i).random(200) for i in range(50)])
    correlations = np.corrcoef(draws)[np.triu_indices(50, 1)]
    assert np.abs(correlations).max() < 0.35  # 1225 pairs, standard error .07
    assert abs(draws.mean() - 0.5) < 0.012  # 4 standard errors of 10,000 draws


def test_fingerprints_see_order_kind_and_content():
    assert len({fingerprint(x) for x in ([1, 2], [2, 1], ["1", "2"], [12], ["1", "", "2"])}) == 5


@pytest.mark.parametrize(("size", "count", "epochs"), [(20, 8, 20), (10, 4, 10), (10, 10, 5), (3, 1, 5)])
def test_epochs_hold_every_number_once_in_another_order_and_no_list_one_twice(size, count, epochs):
    lists = keyed_epochs(size, count, 1, "order")
    taken = [next(lists) for _ in range(size * epochs // count)]
    flat = [number for numbers in taken for number in numbers]
    assert all(len(set(numbers)) == count for numbers in taken)
    for epoch in range(epochs):
        assert sorted(flat[size * epoch : size * (epoch + 1)]) == list(range(size))
    assert len({tuple(flat[size * i : size * (i + 1)]) for i in range(epochs)}) > 1
    again = keyed_epochs(size, count, 1, "order")
    assert [next(again) for _ in taken] == taken


def test_numbers_that_the_rest_of_an_epoch_holds_come_last_in_the_next():
    lists = keyed_epochs(10, 4, 0)
    first, second, third = (next(lists) for _ in range(3))
    rest = third[:2]
    assert sorted(first + second + rest) == list(range(10))
    fourth, fifth = next(lists), next(lists)
    assert set(rest) == set((fourth + fifth)[6:8])
