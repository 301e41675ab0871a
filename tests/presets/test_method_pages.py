"""Every method has a page: idea, formula, knobs, logged metrics, result, failure case; and the index has them all."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from neyman.presets import PRESETS

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PARTS = ["Idea", "Formula|Rule", "Knobs?|knob", "Logged", "Result", "Failure case|Where it fails"]


@pytest.fixture
def benchmarks(monkeypatch):
    """The scripts that render, importable as they are when run."""
    monkeypatch.syspath_prepend(ROOT / "benchmarks")


@pytest.mark.parametrize("name", list(PRESETS))
def test_every_method_has_a_page_that_names_all_its_options(name):
    text = (DOCS / "methods" / f"{name}.md").read_text()
    assert name in text.splitlines()[0]
    for part in PARTS:
        assert re.search(rf"^(## |\*\*|\| )({part})", text, re.MULTILINE), part
    for option in PRESETS[name].options:
        assert f"`{option}`" in text, option


def test_the_index_lists_every_page_once():
    listed = re.findall(r"\]\(methods/(.+?)\.md\)", (DOCS / "methods.md").read_text())
    pages = sorted(page.stem for page in (DOCS / "methods").glob("*.md"))
    assert sorted(listed) == pages
    assert set(pages) >= set(PRESETS)


def test_the_table_of_the_index_is_what_the_presets_say(benchmarks, tmp_path):
    from render_methods import write_index

    text = (DOCS / "methods.md").read_text()
    (tmp_path / "methods.md").write_text(text)
    write_index(tmp_path / "methods.md")
    assert (tmp_path / "methods.md").read_text() == text, "run python benchmarks/render.py"
    # A preset that the page lacks comes last.
    shorter = re.sub(r"\| \[vip\].+\n", "", text)
    (tmp_path / "methods.md").write_text(shorter)
    write_index(tmp_path / "methods.md")
    rows = (tmp_path / "methods.md").read_text().splitlines()
    assert len(rows) == len(text.splitlines())
    assert "[vip]" in [row for row in rows if row.startswith("| [")][len(PRESETS) - 1]


@pytest.mark.parametrize("name", list(PRESETS))
def test_the_result_on_a_page_is_what_the_kept_figures_say(name, benchmarks):
    from render_methods import BEGIN, END, result_lines

    page = (DOCS / "methods" / f"{name}.md").read_text()
    assert BEGIN in page, (
        f"the page lacks {BEGIN} and {END}, between which benchmarks/render.py writes the result"
    )
    shown = page.split(BEGIN)[1].split(END)[0]
    assert result_lines()[name] == shown.strip()


def test_a_page_without_the_marks_is_named(benchmarks, tmp_path):
    from render_methods import result_lines, write_pages

    for name in result_lines():
        (tmp_path / f"{name}.md").write_text("## Result\n")
    with pytest.raises(SystemExit, match="uniform"):
        write_pages(tmp_path)


def test_the_tables_are_what_the_kept_figures_say(benchmarks):
    from render import results, strategies

    assert "\n".join(results()) + "\n" == (ROOT / "benchmarks" / "RESULTS.md").read_text()
    assert "\n".join(strategies()) + "\n" == (DOCS / "results.md").read_text()


@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.md")), ids=lambda page: page.stem)
def test_links_between_pages_lead_somewhere(page):
    for target, anchor in re.findall(r"\]\((?!https?:)([^)#\s]*)(#[^)\s]+)?\)", page.read_text()):
        file = page if not target else (page.parent / target).resolve()
        assert file.exists(), target
        if anchor and file.suffix == ".md":
            headings = [_slug(title) for title in re.findall(r"^#+ (.+)$", file.read_text(), re.MULTILINE)]
            assert anchor[1:] in headings, anchor


def _slug(title: str) -> str:
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
