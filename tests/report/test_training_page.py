"""The page and the summary file: whole, escaped, self-contained, and there at once or not at all."""

import html.parser
import json
import re
from pathlib import Path

import pytest

pytest.importorskip("matplotlib", reason="matplotlib is not installed: pip install 'neyman[cli]'")

from neyman.errors import ArgumentError
from neyman.report import load_run, load_runs, render, write_report

EVIL = '<script>window.hacked = 1</script><img src=x onerror="window.hacked = 2">'


@pytest.fixture(scope="module")
def folder(tmp_path_factory, synthetic):
    root = tmp_path_factory.mktemp("runs")
    for strategy in ("uniform", "vip"):
        for seed in (0, 1):
            synthetic.write_run(root, strategy, seed, prompt_prefix=EVIL, reason=EVIL)
    return root


@pytest.fixture(scope="module")
def page(folder):
    return write_report(folder).read_text(encoding="utf-8")


class Elements(html.parser.HTMLParser):
    """Collects tags and their attributes, and checks that tags nest."""

    def __init__(self):
        super().__init__()
        self.found, self.open = [], []

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))
        if tag not in ("meta", "link", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def elements(page):
    parser = Elements()
    parser.feed(page)
    assert parser.open == []
    return parser.found


def test_no_script_and_no_handler_survives(page, elements):
    assert "script" not in {tag for tag, _ in elements}
    assert not [name for _, attributes in elements for name in attributes if name.startswith("on")]
    assert "&lt;script&gt;window.hacked = 1&lt;/script&gt;" in page


def test_nothing_is_fetched(page, elements):
    assert not [tag for tag, _ in elements if tag in ("img", "iframe", "object", "embed", "base")]
    links = [value for _, a in elements for name, value in a.items() if name in ("href", "src", "xlink:href")]
    assert all(link.startswith(("#", "data:")) for link in links)
    assert "@import" not in page
    assert not re.findall(r"url\((?!#)", page)
    policy = next(a["content"] for _, a in elements if a.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'")


def test_ids_are_unique_and_links_lead_somewhere(elements):
    ids = [a["id"] for _, a in elements if "id" in a]
    assert len(ids) == len(set(ids))
    targets = {a["href"][1:] for tag, a in elements if tag == "a"}
    assert targets <= set(ids)


def test_every_picture_has_numbers_in_its_section(page):
    sections = re.findall(r"<section.*?</section>", page, flags=re.DOTALL)
    pictured = [section for section in sections if "<svg" in section]
    assert len(pictured) == 6
    assert all("<table" in section for section in pictured)
    assert page.count("<svg") == 2 + 4 + 2 + 1 + 2 + 2


def test_the_verdict_and_key_figures_stand_first(page):
    first = re.search(r"<section.*?</section>", page, flags=re.DOTALL).group()
    for words in ("final accuracy", "seeds", "rollouts to uniform", "effective ratio", "rollouts by fate"):
        assert words in first


def test_summary_is_written_beside_the_report(folder, page):
    got = json.loads((folder / "summary.json").read_text())
    assert set(got["strategies"]) == {"uniform", "vip"}
    assert (
        got["strategies"]["vip"]["calibration"]["log_loss"]
        < got["strategies"]["vip"]["calibration"]["log_loss_constant"]
    )
    assert got["strategies"]["uniform"]["calibration"] is None
    assert sorted(p.name for p in folder.iterdir() if p.is_file()) == ["report.html", "summary.json"]


def test_the_same_runs_give_the_same_bytes(folder, page, tmp_path):
    title = "uniform and vip on rules/hard"
    assert render(load_runs(folder), tmp_path / "again.html", title=title).read_text(encoding="utf-8") == page


def test_title_and_names_are_escaped(tmp_path, write_run):
    run = load_run(write_run(tmp_path, "my.mod:<i>Rule$_$", 0, steps=2))
    text = render([run], tmp_path / "one.html", title="<b>bold & bad").read_text(encoding="utf-8")
    assert "<title>&lt;b&gt;bold &amp; bad</title>" in text
    assert "<i>Rule" not in text
    assert "&lt;i&gt;Rule$_$" in text
    assert "One strategy ran" in text


@pytest.mark.parametrize("evals", [True, False])
def test_a_page_is_made_of_whatever_there_is(tmp_path, write_run, evals):
    folder = write_run(tmp_path, "uniform", 0, steps=2, evals=evals, finished=False)
    if evals:
        (folder / "metrics.jsonl").unlink()  # just started
    write_report(tmp_path)
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "nothing was evaluated" in text
    assert "not finished" in text


def test_a_failed_writing_leaves_the_old_report(folder, page, monkeypatch, tmp_path):
    out = tmp_path / "report.html"
    out.write_text("old")
    monkeypatch.setattr(Path, "replace", lambda self, target: (_ for _ in ()).throw(OSError("full")))
    with pytest.raises(OSError, match="full"):
        render(load_runs(folder)[:1], out, title="t")
    assert out.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["report.html"]


def test_no_runs_no_page(tmp_path):
    with pytest.raises(ArgumentError, match="at least one run"):
        render([], tmp_path / "report.html", title="t")


def test_a_report_goes_into_a_folder_that_does_not_exist_yet(folder, tmp_path):
    out = tmp_path / "new" / "report.html"
    assert render(load_runs(folder)[:1], out, title="t").exists()
