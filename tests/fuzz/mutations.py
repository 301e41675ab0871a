"""Valid things made wrong: bytes edited anywhere, JSON changed at any place."""

from __future__ import annotations

import copy
import json
import math
from typing import Any

from hypothesis import strategies as st

_BEYOND_STACK = 50_000  # levels: Hypothesis raises Python's limit while it runs a test

#: What readers stumble over: delimiters, encodings, numbers that are none, nesting, lengths.
_TOKENS = (
    b'"',
    b"'",
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b"\t",
    b"\n",
    b"\r",
    b"\r\n\n",
    b"\0",
    b"\xff",
    b"\xed\xa0\x80",
    b"\xef\xbb\xbf",
    b'"\\ud800"',
    b"1e999",
    b"NaN",
    b"-Infinity",
    b"null",
    b"true",
    b"-1",
    b"0.5",
    b"=",
    b"#",
    b"[" * _BEYOND_STACK,
    b'{"a":' * _BEYOND_STACK,
    b"9" * 400,
    b"9" * 5000,
    b"x" * 140_000,  # longer than the csv module's own limit of a field
)


@st.composite
def edited(draw: st.DrawFn, valid: bytes, most: int = 4) -> bytes:
    """Draw a file's bytes with up to ``most`` edits."""
    data = bytearray(valid)
    for _ in range(draw(st.integers(1, most))):
        at = draw(st.integers(0, len(data)))
        how = draw(st.sampled_from(["insert", "replace", "flip", "delete", "cut", "repeat"]))
        new = draw(st.sampled_from(_TOKENS) | st.binary(min_size=1, max_size=6))
        if how == "insert":
            data[at:at] = new
        elif how == "replace":
            data[at : at + len(new)] = new
        elif how == "flip" and at < len(data):
            data[at] ^= 1 << draw(st.integers(0, 7))
        elif how == "delete":
            del data[at : at + draw(st.integers(1, 40))]
        elif how == "cut":
            del data[at:]
        elif how == "repeat":
            data[at:at] = data[at : at + draw(st.integers(1, 200))]
    return bytes(data)


numbers = (
    st.integers(-3, 40)
    | st.sampled_from([2**31, 2**53 + 1, 2**63, -(2**63) - 1, 10**400, 1e308, -1e308, 5e-324])
    | st.floats()
)
scalars = (
    st.none() | st.booleans() | numbers | st.text(max_size=6) | st.sampled_from(["1", "true", "nan", "\0"])
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


@st.composite
def changed(draw: st.DrawFn, tree: Any, most: int = 2) -> Any:
    """Draw a JSON tree with up to ``most`` changes, each at any depth."""
    root = [copy.deepcopy(tree)]
    for _ in range(draw(st.integers(1, most))):
        _change(draw, root)
    return root[0]


def _change(draw: st.DrawFn, root: list[Any]) -> None:
    holder: Any = root
    key: Any = 0
    while isinstance(holder[key], list | dict) and holder[key] and draw(st.integers(0, 9)) > 0:
        holder = holder[key]
        key = draw(st.sampled_from(sorted(holder) if isinstance(holder, dict) else range(len(holder))))
    how = draw(st.sampled_from(["value", "value", "nudge", "delete", "add", "swap", "copy"]))
    old = holder[key]
    if how == "nudge" and isinstance(old, int | float) and not isinstance(old, bool):
        holder[key] = draw(
            st.sampled_from([old + 1, old - 1, -old, 2 * old, float(old) if abs(old) < 2**53 else old])
        )
    elif how == "nudge" and isinstance(old, str) and old:
        at = draw(st.integers(0, len(old) - 1))
        holder[key] = old[:at] + draw(st.sampled_from(["", "A", "=", "é", "0"])) + old[at + 1 :]
    elif how == "delete" and holder is not root:
        del holder[key]
    elif how == "add" and isinstance(old, dict):
        old[draw(st.text(max_size=4))] = draw(values)
    elif how == "add" and isinstance(old, list):
        old.insert(draw(st.integers(0, len(old))), draw(values))
    elif how == "swap" and isinstance(holder, list) and len(holder) > 1:
        other = draw(st.integers(0, len(holder) - 1))
        holder[key], holder[other] = holder[other], holder[key]
    elif how == "copy" and isinstance(holder, list) and holder is not root:
        holder.insert(key, copy.deepcopy(old))
    else:
        holder[key] = draw(values)


_DEEP = "here it goes deep"


@st.composite
def damaged(draw: st.DrawFn, tree: Any, most: int = 2) -> bytes:
    """Draw the bytes of a JSON file: edited, with other values, or nested deeply in some place."""
    valid = json.dumps(tree).encode()
    how = draw(st.sampled_from(["edited", "changed", "nested"]))
    if how == "edited":
        return draw(edited(valid, most))
    if how == "changed":
        return json.dumps(draw(changed(tree, most))).encode()
    root = [copy.deepcopy(tree)]
    holder: Any = root
    key: Any = 0
    while isinstance(holder[key], list | dict) and holder[key] and draw(st.integers(0, 9)) > 0:
        holder = holder[key]
        key = draw(st.sampled_from(sorted(holder) if isinstance(holder, dict) else range(len(holder))))
    holder[key] = _DEEP
    opened, closed = draw(st.sampled_from([("[", "]"), ('{"a":', "}"), ('[{"a":[1,', "]}]")]))
    levels = draw(st.sampled_from([10, 33, 101, 900, _BEYOND_STACK, _BEYOND_STACK]))
    inner = opened * levels + "0" + closed * levels
    return json.dumps(root[0]).replace(json.dumps(_DEEP), inner).encode()


def same(one: Any, other: Any) -> bool:
    """Whether two JSON values are equal, where NaN equals NaN and 1 equals 1.0, but True is no number."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, float) and isinstance(other, float) and math.isnan(one) and math.isnan(other):
        return True
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)
