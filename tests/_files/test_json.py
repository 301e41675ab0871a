"""JSON with a field twice or nested deeply is refused; everything else reads as Python's own reader has it."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neyman._files.json import DEEPEST, RepeatedFieldError, loads

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=12,
)


@given(VALUES, st.booleans())
def test_what_has_no_field_twice_reads_as_before(value, escaped):
    text = json.dumps(value, ensure_ascii=escaped)
    assert loads(text) == json.loads(text) == value
    encoded = text.encode("utf-8", "surrogatepass")
    assert loads(encoded) == json.loads(encoded)


@given(st.dictionaries(st.text(), VALUES, min_size=1, max_size=4), st.data())
def test_a_field_twice_is_named_at_any_depth(fields, data):
    name = data.draw(st.sampled_from(sorted(fields)))
    text = json.dumps(fields)[:-1] + f", {json.dumps(name)}: 0}}"
    for around in ("{}", "[1, {}]", '{{"outer": [{}]}}'):
        with pytest.raises(RepeatedFieldError) as refused:
            loads(around.format(text))
        assert f"{name!r:.80}" in str(refused.value)


def test_the_first_field_that_comes_again_is_named_of_however_many():
    """Within a line that a reader takes, of 64 MiB: to look for each field in all others would take days."""
    fields = ", ".join(f'"{name}": 0' for name in [*range(100_000), 99_999, 0])
    with pytest.raises(RepeatedFieldError, match="'99999'"):
        loads(f"{{{fields}}}")


@pytest.mark.parametrize("bad", ["", "{", b"\xff", "[1,]", "{1: 2}"])
def test_what_is_no_json_is_the_value_error_that_it_was(bad):
    with pytest.raises(ValueError, match=r"Expecting|decode"):
        json.loads(bad)
    with pytest.raises(ValueError, match=r"Expecting|decode"):
        loads(bad)


OPENED = {"lists": ("[", "]"), "objects": ('{"a": ', "}"), "both": ('[0, {"a": ', "}, 1]")}


@pytest.mark.parametrize("kind", OPENED)
@pytest.mark.parametrize("wide", [False, True])
def test_what_is_nested_deeply_is_a_value_error_whether_pythons_reader_could_read_it_or_not(kind, wide):
    opened, closed = OPENED[kind]
    levels = (opened + closed).count("[") + (opened + closed).count("{")
    for times in (DEEPEST // levels + 1, 400 // levels, 3000, 100_000):
        text = opened * times + "0" + closed * times
        text = f'{{"beside": [{"[], " * 200}0], "a": {text}}}' if wide else text
        for form in (text, text.encode()):
            with pytest.raises(ValueError, match="nested deeper than 100 levels"):
                loads(form)
    inside = DEEPEST // levels - (1 if wide else 0)
    text = opened * inside + "0" + closed * inside
    text = f'{{"beside": [{"[], " * 200}0], "a": {text}}}' if wide else text
    assert loads(text) == json.loads(text)


def test_brackets_in_texts_are_no_nesting():
    text = json.dumps(["[" * 5000, {"{" * 5000: 1}])
    assert loads(text) == json.loads(text)
