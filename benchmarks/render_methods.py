"""The result on each method's page: its waste factor and longest gap on the trace, its difference to uniform."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from marks import interval, kept, plus_minus
from neyman.presets import PRESETS

BEGIN, END = "<!-- from the results -->", "<!-- end -->"
_MARKED = re.compile(f"{re.escape(BEGIN)}.*?{re.escape(END)}", re.DOTALL)
_REGIMES = {"hard": "hard", "ushape": "U-shaped"}
_UNMEASURED = "No figures yet: `make bench` measures every preset."
_ROWS = re.compile(r"(?<=\| --- \| --- \| --- \| --- \| --- \| --- \|\n)(\| \[.+\n)+")


def result_lines() -> dict[str, str]:
    """Return preset -> the line of its page, from replay.json, replay_published.json and lab_all.json."""
    trace = kept("replay")["strategies"]
    published = (kept("replay_published") or {"strategies": {}})["strategies"]
    learnt = kept("lab_all")["regimes"]
    return {
        name: _line(name, trace[name], published, learnt) if name in trace else _UNMEASURED
        for name in PRESETS
    }


def write_index(page: Path) -> None:
    """Write the table of presets into the page that lists them: listed ones in its order, then new ones."""
    text = page.read_text()
    listed = re.findall(r"^\| \[(.+?)\]\(methods/", text, re.MULTILINE)
    names = [*(name for name in listed if name in PRESETS), *(name for name in PRESETS if name not in listed)]
    rows = [f"| [{name}](methods/{name}.md) | {PRESETS[name].table} |\n" for name in names]
    page.write_text(_ROWS.sub(lambda _: "".join(rows), text, count=1))


def write_pages(folder: Path) -> None:
    """Write each line between the marks of its page.

    Args:
        folder: the folder of the pages, NAME.md.

    Raises:
        SystemExit: a page without the marks.
    """
    for name, line in result_lines().items():
        page = folder / f"{name}.md"
        text = page.read_text()
        if not _MARKED.search(text):
            raise SystemExit(f"{page} must hold {BEGIN} and {END} around its result")
        page.write_text(_MARKED.sub(lambda _, line=line: f"{BEGIN}\n{line}\n{END}", text, count=1))


def _line(name: str, on_trace: dict[str, Any], published: dict[str, Any], learnt: dict[str, Any]) -> str:
    others = [
        f"`{other}` {_spent(found)}"
        for other, found in published.items() if other.partition(":")[0] == name
    ]  # fmt: skip
    differences = [
        f"{words} {interval(learnt[regime]['strategies'][name]['difference_to_reference'], 100)}"
        for regime, words in _REGIMES.items()
    ]
    gained = "the reference" if name == "uniform" else f"points over `uniform`: {', '.join(differences)}"
    return (
        f"On a real trace: {'; '.join([_spent(on_trace), *others])}. In the lab, {gained}. "
        "95 % intervals over five seeds; commands and all tables: [results.md](../results.md)."
    )


def _spent(found: dict[str, Any]) -> str:
    """Return waste factor, longest gap, and coverage where it is incomplete."""
    kind = " (mixed groups of any size)" if found["waste_factor_counts"] == "any" else ""
    text = f"waste factor {plus_minus(found['waste_factor'])}{kind}"
    text += f", longest gap {found['max_revisit_gap']['mean']:.1f} passes"
    coverage = found["coverage"]["mean"]
    return text if coverage > 0.9995 else f"{text}, {100 * coverage:.0f} % of the prompts ever drawn"
