"""Embedded pictures: complete, escaped, and without a trace outside."""

import re
import sys

import pytest

mpl = pytest.importorskip("matplotlib", reason="matplotlib is not installed: pip install 'neyman[cli]'")

from neyman.errors import MissingExtraError  # noqa: E402
from neyman.report._figures import draw_fates  # noqa: E402
from neyman.report._svg import svg  # noqa: E402


def test_drawing_changes_no_settings_and_imports_no_pyplot():
    before = dict(mpl.rcParams)
    had_pyplot = "matplotlib.pyplot" in sys.modules
    svg("x", "title", lambda axes: axes.plot([0, 1]))
    assert dict(mpl.rcParams) == before
    assert ("matplotlib.pyplot" in sys.modules) == had_pyplot


def test_an_embedded_picture_keeps_to_itself():
    one = svg("one", 'a "title" <b>', lambda axes: draw_fates(axes, {"<script>": {"trained": 1}}))
    assert one == svg("one", 'a "title" <b>', lambda axes: draw_fates(axes, {"<script>": {"trained": 1}}))
    assert 'aria-label="a &#34;title&#34; &lt;b&gt;"' in one
    assert "<script>" not in one
    assert "&lt;script&gt;" in one
    ids = re.findall(r'\bid="([^"]*)"', one)
    assert ids
    assert all(i.startswith("one-") for i in ids)
    used = set(re.findall(r'(?:href="#|url\(#)([^")]*)', one))
    assert used <= set(ids)
    assert "<style" not in one
    assert "<metadata" not in one
    assert "var(--f-trained)" in one


def test_without_matplotlib_the_command_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtraError, match=r"the report needs matplotlib.*pip install '.\[cli\]'"):
        svg("x", "title", lambda axes: axes)
