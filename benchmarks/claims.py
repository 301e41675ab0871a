"""Check the claims that the methods rest on, and give each a verdict with its figures.

python benchmarks/claims.py --out benchmarks/results/claims.json   # a minute of one core
python benchmarks/claims.py --only sara-signal                     # one of them, printed
python benchmarks/claims.py --render                               # docs/claims.md from the JSON
"""

from __future__ import annotations

import argparse
import json
import os
import time
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from claims_of import CLAIMS, Claim
from claims_of.claim import UNTESTED, Run

HERE = Path(__file__).resolve().parent
DEFAULT = HERE / "results" / "claims.json"
PAGE = HERE.parent / "docs" / "claims.md"


def judge(claim: Claim, seed: int, scale: float, data: str | None) -> dict[str, Any]:
    """Return a claim's verdict and figures; its draws depend only on the seed and its name."""
    rng = np.random.default_rng([seed, zlib.crc32(claim.name.encode())])
    found = claim.check(Run(rng, scale, data))
    return {
        "claim": claim.says,
        "source": claim.source,
        "verdict": found.verdict,
        "why": found.why,
        "also": claim.also,
        "figures": [
            dict(zip(("what", "value", "error", "expected"), row, strict=True)) for row in found.figures
        ],
    }


def _number(value: Any, error: float | None = None) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    if error is None and float(value).is_integer():
        return f"{value:.0f}"
    digits = 4 if error is None else int(np.clip(1 - np.floor(np.log10(max(error, 1e-12))), 1, 6))
    if error is None and abs(value) < 5e-4:
        return f"{value:.1e}"
    return f"{value:.{digits}f}" + ("" if error is None else f" ± {error:.{digits}f}")


def _table(header: list[str], rows: list[list[str]]) -> list[str]:
    return [
        "| " + " | ".join(c.replace("|", "\\|") for c in row) + " |"
        for row in [header, ["---"] * len(header), *rows]
    ]


def quoted(results: dict[str, Any]) -> dict[str, Any]:
    """Return the claims that quote other results, judged by the current ones."""
    chosen = [claim for claim in CLAIMS if claim.quotes and claim.name in results["claims"]]
    return {claim.name: judge(claim, results["seed"], results["scale"], None) for claim in chosen}


def page(results: dict[str, Any]) -> str:
    """Return the page; each of its figures is in the JSON."""
    claims = {**results["claims"], **quoted(results)}
    lines = [
        "# Which claims hold",
        "",
        "Claims of the papers that neyman builds on, and of its own derivations, in our words, each with a "
        "check that runs"
        " in seconds. Rendered by `python benchmarks/claims.py --render` from `benchmarks/results/claims.json`, which"
        " `python benchmarks/claims.py --out benchmarks/results/claims.json` writes (with `--data DIR` for pass "
        "counts)."
        f" Seed {results['seed']}, one generator per claim; ± is one Monte Carlo or sampling standard error, a figure"
        ' without it is exact or quoted; "expected" is the formula\'s value, or a prediction. Claims that need training'
        " are judged by the lab's tables where these cover them (undecided: their intervals leave both possible);"
        " otherwise the page names the run that would test them.",
        "",
        *_table(
            ["claim", "source", "verdict"],
            [[f"[{one['claim']}](#{name})", one["source"], one["verdict"]] for name, one in claims.items()],
        ),
    ]
    for name, one in claims.items():
        commands = [f"`python benchmarks/claims.py --only {name}`"] if one["figures"] else []
        commands += [f"`{one['also']}`"] if one["also"] else []
        lines += ["", f"## {name}", "", f"{one['claim']} ({one['source']})", ""]
        shown = "To test it" if one["verdict"] == UNTESTED else "Shown by"
        lines += [f"**{one['verdict'].capitalize()}.** {one['why']}", "", f"{shown}: {', '.join(commands)}"]
        if one["figures"]:
            rows = [
                [f["what"], _number(f["value"], f["error"]), _number(f["expected"])] for f in one["figures"]
            ]
            lines += ["", *_table(["figure", "found", "expected"], rows)]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Judge the claims, or render earlier verdicts."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=[claim.name for claim in CLAIMS], metavar="NAME")
    parser.add_argument(
        "--out", type=Path, help=f"default: print only; the page is rendered from {DEFAULT.name}"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--scale", type=float, default=1.0, help="factor on the sample sizes")
    parser.add_argument("--data", default=os.environ.get("NEYMAN_DATA"))
    parser.add_argument(
        "--render", action="store_true", help="write the page from the JSON, and measure nothing"
    )
    parser.add_argument("--page", type=Path, default=PAGE, help="where --render writes")
    options = parser.parse_args()
    if options.render:
        options.page.write_text(page(json.loads((options.out or DEFAULT).read_text())))
        return
    results: dict[str, Any] = {"seed": options.seed, "scale": options.scale, "claims": {}}
    for claim in CLAIMS:
        if options.only and claim.name not in options.only:
            continue
        began = time.process_time()
        one = results["claims"][claim.name] = judge(claim, options.seed, options.scale, options.data)
        print(f"{claim.name}: {one['verdict']} ({time.process_time() - began:.1f} s)", flush=True)
        for figure in one["figures"] if options.only else []:
            print(
                "   ",
                figure["what"],
                _number(figure["value"], figure["error"]),
                _number(figure["expected"]),
                sep="  ",
            )
    if options.out is not None:
        options.out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
