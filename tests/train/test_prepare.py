"""What the preparation says of itself: whole whenever it is looked at, and no nonsense is believed."""

import json

import pytest

pytest.importorskip("torch")
pytest.importorskip("pydantic")

from neyman.config import from_mapping, to_toml
from neyman.train import __main__ as process
from neyman.train import _all, _policy


def test_progress_is_replaced_whole_under_who_reads_it(tmp_path, monkeypatch):
    (tmp_path / "config.toml").write_text(to_toml(from_mapping({})))
    state, seen = tmp_path / "prepare.json", []

    def make_policy(config, out, progress):
        progress(10, 30)
        with state.open("rb") as reader:
            progress(20, 30)
            seen.extend([json.load(reader), json.loads(state.read_bytes())])

    monkeypatch.setattr(_policy, "make_policy", make_policy)
    process._prepare(tmp_path)
    assert seen == [{"done": 10, "steps": 30}, {"done": 20, "steps": 30}]
    assert json.loads(state.read_bytes()) == {"finished": True}


def test_progress_that_is_none_is_passed_over(tmp_path):
    state, seen = tmp_path / "prepare.json", []

    class Watch:
        def preparing(self, done, steps):
            seen.append((done, steps))

    nonsense = [
        b"",
        b"{",
        b"7",
        b"[]",
        b'"done"',
        b"[" * 900,
        b'{"done": 1}',
        b'{"done": "1", "steps": null}',
    ]
    good = b'{"done": 10, "steps": 30}'
    _all._report_preparation(state, Watch())
    for content in (*nonsense, good, b" " * 2000 + good):
        state.write_bytes(content)
        _all._report_preparation(state, Watch())
    assert seen == [(10, 30)]


def test_the_last_words_of_a_long_log_are_found_at_its_end(tmp_path):
    log = tmp_path / "log.txt"
    assert _all.last_words(log) == ""
    log.write_bytes(b"first\n" + b"x" * 200_000 + b"\n  the cause  \n\n")
    assert _all.last_words(log) == "the cause"
    log.write_text("only this")
    assert _all.last_words(log) == "only this"
