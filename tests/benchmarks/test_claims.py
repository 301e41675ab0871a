"""Every claim gets a verdict, and the page of claims is what its JSON says."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "benchmarks" / "claims.py"
RESULTS = json.loads((ROOT / "benchmarks" / "results" / "claims.json").read_text())
VERDICTS = {"holds", "holds under a condition", "false", "undecided", "not tested here"}


LAB = ROOT / "benchmarks" / "results" / "lab.json"


def script(*words: object) -> None:
    subprocess.run(
        [sys.executable, str(SCRIPT), *map(str, words)], check=True, capture_output=True, text=True
    )


def test_every_claim_gets_a_verdict_on_tiny_samples(tmp_path):
    script("--scale", 0.01, "--out", tmp_path / "claims.json")
    found = json.loads((tmp_path / "claims.json").read_text())["claims"]
    assert set(found) == set(RESULTS["claims"])
    for name, one in found.items():
        assert one["verdict"] in VERDICTS, name
        assert one["why"], name
        assert one["figures"] or one["also"], f"{name} names no way to see it"


def test_exact_verdicts_do_not_depend_on_the_sample_size(tmp_path):
    exact = [
        "published-rounding",
        "exact-allocation",
        "sara-larger-groups",
        "variance-or-signal",
        "dynamo-damping",
    ]
    script("--only", *exact, "--scale", 0.02, "--seed", 1, "--out", tmp_path / "claims.json")
    found = json.loads((tmp_path / "claims.json").read_text())["claims"]
    assert {n: one["verdict"] for n, one in found.items()} == {
        n: RESULTS["claims"][n]["verdict"] for n in exact
    }


def test_the_page_is_what_the_json_says(tmp_path):
    script("--render", "--page", tmp_path / "claims.md")
    assert (ROOT / "docs" / "claims.md").read_text() == (tmp_path / "claims.md").read_text()


@pytest.mark.parametrize("name", sorted(RESULTS["claims"]))
def test_the_tests_that_a_claim_names_exist(name):
    for path, test in re.findall(r"(tests/\S+?\.py)(?:::(\w+))?", RESULTS["claims"][name]["also"]):
        text = (ROOT / path).read_text()
        assert not test or f"def {test}(" in text, test


def test_the_page_quotes_the_labs_table_as_it_is():
    page = (ROOT / "docs" / "claims.md").read_text()
    section = page.split("## vip-accuracy\n")[1].split("\n## ")[0]
    for regime, figures in json.loads(LAB.read_text())["regimes"].items():
        gap = figures["strategies"]["vip"]["difference_to_reference"]
        (shown,) = re.findall(
            rf"{regime}: final accuracy of `vip` minus `uniform`, points \| (\S+) ± (\S+)", section
        )
        assert float(shown[0]) == pytest.approx(100 * gap["mean"], abs=0.051)
        assert float(shown[1]) == pytest.approx(100 * (gap["high"] - gap["mean"]) / 2.776, rel=0.1)
        names_a_winner = gap["low"] > 0 or gap["high"] < 0
        assert not (names_a_winner and "**Undecided.**" in section)
