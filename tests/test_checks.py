"""Whatever is given for a number or an id, it is the number, or an error of our own that names the argument."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from neyman import _checks
from neyman.errors import ArgumentError

HUGE = 10**5000


@pytest.mark.parametrize("value", [True, "3", b"3", 1.5, float("nan"), 1 + 0j, None, [3], "0" * 9999])
def test_what_is_no_whole_number_is_refused(value):
    with pytest.raises(ArgumentError, match="size must be a whole number"):
        _checks.integer("size", value)


@pytest.mark.parametrize("value", [HUGE, -HUGE, 10**400, -(10**400)], ids=["huge", "-huge", "far", "-far"])
def test_numbers_beyond_floats_are_refused_by_their_range_and_not_by_python(value):
    with pytest.raises(ArgumentError, match=r"size must be in \[0, 8\], got"):
        _checks.integer("size", value, low=0, high=8)
    with pytest.raises(ArgumentError, match="share must be a number within floats"):
        _checks.real("share", value)


@given(st.integers(-(2**2048) + 1, 2**2048 - 1))
def test_whole_numbers_within_reach_are_taken_as_they_are(value):
    assert _checks.integer("size", value) == value
    assert json.loads(json.dumps(_checks.prompt_ids("ids", [value]))) == [value]


@pytest.mark.parametrize("value", [3, 3.0, np.int64(3), np.float64(3.0)])
def test_a_whole_number_of_any_type_is_one(value):
    assert _checks.integer("size", value) == 3


@pytest.mark.parametrize("value", [True, np.True_, "0.5", b"0.5", None, [0.5], "nan"])
def test_what_is_no_number_is_refused(value):
    with pytest.raises(ArgumentError, match="share must be a number"):
        _checks.real("share", value)


@pytest.mark.parametrize("ids", [[HUGE], ["a", -HUGE], [1, "b", HUGE]], ids=["one", "two", "three"])
def test_ids_that_cannot_be_written_out_are_refused(ids):
    with pytest.raises(ArgumentError, match=r"ids must hold integers of at most 2,048 bits; use text"):
        _checks.prompt_ids("ids", ids)
