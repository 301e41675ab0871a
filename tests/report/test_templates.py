"""The frame of the pages: escaped text, visible characters, no silent gaps, files that are whole."""

import json
import sys

import pytest

jinja2 = pytest.importorskip("jinja2", reason="jinja2 is not installed: pip install 'neyman[cli]'")

from neyman.errors import MissingExtraError  # noqa: E402
from neyman.report import _templates  # noqa: E402
from neyman.report._templates import fill, write_report_files  # noqa: E402


def rendered(source, **values):
    return (
        _templates._environment()
        .from_string('{% import "parts.html.j2" as parts %}' + source)
        .render(**values)
    )


def test_strings_are_escaped_made_visible_and_keep_their_unit():
    assert rendered('<p title="{{ x }}">{{ x }}', x='<b> "5 %"\0') == (
        '<p title="&lt;b&gt; &#34;5\N{NO-BREAK SPACE}%&#34;\\u0000">&lt;b&gt; &#34;5\N{NO-BREAK SPACE}%&#34;\\u0000'
    )
    assert rendered("{{ x | pretty }}", x={"<i>": None}) == "{\n  &#34;&lt;i&gt;&#34;: null\n}"
    assert rendered("{{ x }}", x=None) == ""


def test_a_cell_is_text_or_a_figure_over_small_print():
    assert rendered("{{ parts.cell(x) }}", x="<b>").strip() == "&lt;b&gt;"
    assert rendered("{{ parts.cell(x) }}", x=("5 %", "")).strip() == "<b>5\N{NO-BREAK SPACE}%</b>"
    assert rendered("{{ parts.cell(x) }}", x=("5", "4 to 6")).strip() == "<b>5</b><small>4 to 6</small>"


def test_a_table_without_rows_is_a_sentence():
    call = '{% call parts.table("c", ["<a>"]) %}{% for r in rows %}<tr><th>{{ r }}</th></tr>{% endfor %}{% endcall %}'
    assert "Nothing was recorded for this table." in rendered(call, rows=[])
    page = rendered(call, rows=["<x>"])
    assert '<th scope="col">&lt;a&gt;</th>' in page
    assert "<tr><th>&lt;x&gt;</th></tr>" in page


def test_a_misspelt_name_is_an_error_and_not_a_gap():
    with pytest.raises(jinja2.UndefinedError, match="eyebrow"):
        fill("base.html.j2", title="t", description="d", facts=[], navigation=[])


def test_without_jinja2_the_command_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "jinja2", None)
    _templates._environment.cache_clear()
    with pytest.raises(MissingExtraError, match=r"the report needs jinja2.*pip install '.\[cli\]'"):
        fill("base.html.j2")


def test_both_files_are_written_whatever_their_characters(tmp_path):
    path = write_report_files(tmp_path, {"a": "\ud800é"}, "<p>\ud800é")
    assert path.read_text(encoding="utf-8") == "<p>\\ud800é"
    assert json.loads((tmp_path / "summary.json").read_text(encoding="utf-8")) == {"a": "\ud800é"}
