"""Names, prompts and reasons that try to run, to hide or to break the page: in a parser and in a browser."""

import importlib.util
import itertools
import json
import re
import shutil
import unicodedata
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("matplotlib", reason="matplotlib is not installed: pip install 'neyman[cli]'")

from neyman.report import write_comparison, write_replay, write_report
from neyman.report._format import visible
from neyman.report._templates import fill

RUN = "window.pwned=1"
ATTACKS = (
    f"<script>{RUN}</script>",
    f'"><img src=x onerror="{RUN}">',
    f"'><svg onload='{RUN}'>",
    f"</style></title></textarea></svg><script>{RUN}</script>",
    f"--><!--<script>{RUN}//]]></script>",
    f'<a href="javascript:{RUN}">x</a>',
    f"javascript:{RUN}",
    f'" style="x:expression({RUN})" onmouseover="{RUN}" autofocus onfocus="{RUN}',
    f'<meta http-equiv="refresh" content="0;url=javascript:{RUN}"><base href="//x.invalid/">',
    f"<iframe srcdoc='<script>parent.{RUN}</script>'>",
    "&lt;script&gt;&#60;b&#x3e;",
    "${7*7}{{7*7}}<%= 7*7 %>$\\frac{",
    f"\N{RIGHT-TO-LEFT OVERRIDE}<script>{RUN}</script>\N{POP DIRECTIONAL FORMATTING}",
    f"\0<scr\0ipt>{RUN}</script>\x1b[2J\x7f",
    f"\N{FULLWIDTH LESS-THAN SIGN}script\N{FULLWIDTH GREATER-THAN SIGN}\N{LINE SEPARATOR}{RUN}",
    "\ud800 half of a pair \udfff",
    "\N{LATIN CAPITAL LETTER I WITH DOT ABOVE}<\N{KELVIN SIGN}>日本 \N{GRINNING FACE}",
)
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
HAS_BROWSER = bool(importlib.util.find_spec("selenium") and CHROMIUM and DRIVER)
RUNNING = ("script", "iframe", "object", "embed", "base", "form", "input", "img", "foreignobject", "template")


def shown(text):
    """Return how the page spells a text: what cannot be seen is spelt out."""
    unseen = {"\0", "\x1b", "\x7f", "\N{RIGHT-TO-LEFT OVERRIDE}", "\N{POP DIRECTIONAL FORMATTING}"}
    return "".join(f"\\u{ord(c):04x}" if c in unseen or unicodedata.category(c) == "Cs" else c for c in text)


def training(synthetic, root):
    """Write a report of runs whose every string is hostile."""
    for number, attack in enumerate(ATTACKS):
        folder = synthetic.write_run(
            root, "uniform", number, steps=2, prompts=4, prompt_prefix=attack, reason=attack, task=ATTACKS[0]
        )
        head = json.loads((folder / "run.json").read_text())
        head |= {"strategy": attack, "estimator": ATTACKS[1], "config": {attack: [attack]}}
        (folder / "run.json").write_text(json.dumps(head))
        lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        for line in lines:
            if line["event"] == "step":
                line["account"][attack] = {"rollouts": 1, "tokens": 1}
                line["trainer"][attack] = line["report"][attack] = 0.5
                line["groups"][0]["outcome"] = attack
        (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return write_report(root, title=" ".join(ATTACKS[:2]))


def comparison(root):
    """Write a comparison of strategies with such names, in regimes with such names."""
    run = {
        "curve": {"rollouts": [0.0, 500.0, 1000.0], "tokens": [0.0, 2e3, 4e3], "accuracy": [0.2, 0.4, 0.6]},
        "steps": {name: [0.1, 0.2] for name in
                  ("rows", "coverage", "effective_groups", "gradient_norm", "entropy")},
    }  # fmt: skip
    runs = [
        {**run, "seed": seed, "experiment": {"regime": regime, "strategy": name, "learning_rate": 1e-3,
                                             "group_size": 4, "rollouts": 1000}}
        for regime, name, seed in itertools.product(ATTACKS[:2], ("uniform", *ATTACKS), (0, 1))
    ]  # fmt: skip
    write_comparison(root, runs, notes=ATTACKS, command=" ".join(ATTACKS))
    return root / "report.html"


def replay(root, replayed):
    """Write the page of a replay whose summary has such strings for names and sentences."""
    summary = json.loads(replayed.read_text())
    for part in (summary["strategies"], summary["calibration"],
                 summary["series"]["effective_groups_per_1000_rollouts"]):  # fmt: skip
        part.update(dict.fromkeys(ATTACKS, part["uniform"]))
    for entry in summary["strategies"].values():
        entry["fates"] |= {attack: {"mean": 0.01, "low": None, "high": None} for attack in ATTACKS}
    file = summary["found"]["files"][0]
    summary["found"]["files"] = [
        {**file, "path": attack, "format": attack, "columns": {attack: attack}} for attack in ATTACKS
    ]
    summary["found_sentences"] = list(ATTACKS)
    summary["advice"] = " ".join(ATTACKS)
    summary["options"] |= {"command": " ".join(ATTACKS)}
    return write_replay(root, summary)


@pytest.fixture(scope="module")
def pages(synthetic, tmp_path_factory):
    pytest.importorskip("tyro")
    from neyman import cli

    root = tmp_path_factory.mktemp("hostile")
    rng = np.random.default_rng(0)
    log = root / "log.jsonl"
    rows = [
        {"prompt": f"{ATTACKS[q]}", "step": 1, "reward": int(rng.random() < 0.5)}
        for q in range(8)
        for _ in range(8)
    ]
    log.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(SystemExit) as left:
        cli.main(["replay", str(log), "--strategies", "uniform", "--prompts-per-step", "4", "--seeds", "1",
                  "--jobs", "1", "--out", str(root / "replayed")])  # fmt: skip
    assert left.value.code == 0
    for name in ("training", "compared", "page"):
        (root / name).mkdir()
    return {
        "training": training(synthetic, root / "training"),
        "comparison": comparison(root / "compared"),
        "replay": replay(root / "page", root / "replayed" / "summary.json"),
    }


class Elements(HTMLParser):
    """Collects the elements and attributes of a page."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def handle_starttag(self, name, attributes):
        self.seen.append((name, dict(attributes)))


@pytest.mark.parametrize("name", ["training", "comparison", "replay"])
def test_no_text_becomes_an_element_or_an_attribute(pages, name):
    page = pages[name].read_text("utf-8")
    parser = Elements()
    parser.feed(page)
    assert len(parser.seen) > 100
    for element, attributes in parser.seen:
        assert element not in RUNNING
        assert not any(key.startswith("on") for key in attributes), (element, attributes)
        assert not any("script" in (v or "") for k, v in attributes.items() if "href" in k or k == "style")
        assert attributes.get("http-equiv") != "refresh"
    assert "\N{RIGHT-TO-LEFT OVERRIDE}" not in page
    assert "\0" not in page


@pytest.mark.skipif(not HAS_BROWSER, reason="no chromium with chromedriver and selenium")
@pytest.mark.parametrize("name", ["training", "comparison", "replay"])
def test_a_browser_runs_nothing_and_shows_every_text_as_it_is(pages, name, browser):
    browser.get("about:blank")
    browser.get_log("browser")
    browser.get(pages[name].as_uri())
    state = browser.execute_script(
        "return [typeof window.pwned, location.href, document.baseURI,"
        " [...document.querySelectorAll('*')].filter(e => e.getAttributeNames().some(a => a.startsWith('on'))).length,"
        " [...document.querySelectorAll('[href]')].map(e => e.getAttribute('href')),"
        " document.documentElement.textContent]"
    )
    kind, place, base, handlers, links, text = state
    assert kind == "undefined"
    assert place == base == pages[name].as_uri()
    assert handlers == 0
    assert all(link.startswith(("#", "data:,")) for link in links)
    assert browser.find_elements("css selector", ",".join(RUNNING)) == []
    assert [entry for entry in browser.get_log("browser") if entry["level"] != "INFO"] == []
    for attack in ATTACKS:
        assert shown(attack).replace(" %", "\N{NO-BREAK SPACE}%") in text, attack


def test_what_cannot_be_seen_is_spelt_out():
    for attack in ATTACKS:
        assert visible(attack).encode()
    assert visible("\N{RIGHT-TO-LEFT OVERRIDE}a\ud800\0") == "\\u202ea\\ud800\\u0000"
    assert visible("tab\tand line\n日本") == "tab\tand line\n日本"


def test_text_becomes_html_in_one_place():
    """Only `_svg` makes `Markup`, of matplotlib's output; no template turns the escaping off."""
    import ast

    import neyman.report

    folder = Path(neyman.report.__file__).parent
    wrapped = {
        (path.name, ast.unparse(node.args[0]).partition(" ")[0])
        for path in folder.glob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("Markup")
    }
    assert wrapped == {("_svg.py", start) for start in ("'<svg", "box.group()", "text[text.index('>')")}
    templates = {path.name: path.read_text() for path in (folder / "templates").iterdir()}
    assert {"base.html.j2", "parts.html.j2", "style.css"} < set(templates)
    for name, text in templates.items():
        assert not re.search(r"\|\s*(safe|tojson|xmlattr|urlize)\b|autoescape|Markup|__html__", text), name
        # An attribute without quotes would end at a space of the text.
        assert not re.search(r"[\w-]=\{\{", text), name


@pytest.mark.parametrize("attack", ATTACKS)
def test_the_frame_of_a_page_escapes_title_description_facts_and_links(attack):
    page = fill(
        "base.html.j2",
        title=attack,
        description=attack,
        eyebrow=attack,
        facts=[attack],
        navigation=[(attack, attack)],
    )
    parser = Elements()
    parser.feed(page)
    frame = "html head meta meta meta meta link title style body header p h1 ul li nav a main footer"
    assert [name for name, _ in parser.seen] == frame.split()
    assert {key for _, attributes in parser.seen for key in attributes} == {
        "lang", "charset", "http-equiv", "content", "name", "rel", "href", "class",
    }  # fmt: skip


@pytest.mark.skipif(not HAS_BROWSER, reason="no chromium with chromedriver and selenium")
def test_the_same_browser_does_run_what_is_not_escaped(tmp_path, browser):
    path = tmp_path / "open.html"
    path.write_text(f"<!doctype html><title>open</title><p>{ATTACKS[0]}</p>")
    browser.get(path.as_uri())
    assert browser.execute_script("return window.pwned") == 1
