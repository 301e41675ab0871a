"""Every method has a page: idea, formula, knobs, logged metrics, result, failure case; and the index has them all."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from neyman.presets import PRESETS

DOCS = Path(__file__).parents[1] / "docs"
PARTS = ["Idea", "Formula|Rule", "Knobs?|knob", "Logged", "Result", "Failure case|Where it fails"]


@pytest.mark.parametrize("name", list(PRESETS))
def test_every_method_has_a_page_that_names_all_its_options(name):
    text = (DOCS / "methods" / f"{name}.md").read_text()
    assert name in text.splitlines()[0]
    for part in PARTS:
        assert re.search(rf"^(## |\*\*|\| )({part})", text, re.MULTILINE), part
    for option in PRESETS[name].__kwdefaults__ or {}:
        assert f"`{option}`" in text, option


def test_the_index_lists_every_page_once():
    listed = re.findall(r"\]\(methods/(.+?)\.md\)", (DOCS / "methods.md").read_text())
    pages = sorted(page.stem for page in (DOCS / "methods").glob("*.md"))
    assert sorted(listed) == pages
    assert set(pages) >= set(PRESETS)


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
