"""Measure every figure of RESULTS.md and render it: ``make bench DATA=folder-with-the-trace``.

The trace is `dsr_sub_trace.parquet` (see benchmarks/beliefs.py); without DATA its tables stay unchanged. Each
benchmark writes benchmarks/results/NAME.json; ``--render`` renders these files without measuring.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
from pathlib import Path

from asked import LABS, REPLAYS, VARIANTS
from marks import HERE, RESULTS
from render import render


def measure(data: str | None, demo: Path) -> None:
    """Run every benchmark, one thread each."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    commands = [
        [sys.executable, str(HERE / "allocation.py"), "--out", str(RESULTS / "allocation.json")],
        [sys.executable, str(HERE / "overhead.py"), "--out", str(RESULTS / "overhead.json")],
        [sys.executable, str(HERE / "load.py"), "--out", str(RESULTS / "load.json")],
        [
            sys.executable,
            str(HERE / "gradient_variance.py"),
            "--out",
            str(RESULTS / "gradient_variance.json"),
        ],
        [sys.executable, str(HERE / "gradient_bias.py"), "--out", str(RESULTS / "gradient_bias.json")],
        [sys.executable, "-m", "neyman", "demo", "--out", str(demo)],
    ]
    for name, (_, words) in VARIANTS.items():
        commands.append([sys.executable, "-m", "neyman", *words, "--out", str(demo.parent / name)])
    for name, words in LABS.items():
        commands.append([sys.executable, "-m", "neyman", "compare", *words, "--out", str(demo.parent / name)])
    if data:
        trace = str(Path(data) / "dsr_sub_trace.parquet")
        for name, words in REPLAYS.items():
            out = str(demo.parent / name)
            commands.append([sys.executable, "-m", "neyman", "replay", trace, *words, "--out", out])
        out = str(RESULTS / "beliefs.json")
        commands.append([sys.executable, str(HERE / "beliefs.py"), "--data", data, "--out", out])
    claims = [sys.executable, str(HERE / "claims.py")]
    commands.append([*claims, "--out", str(RESULTS / "claims.json"), *(["--data", data] if data else [])])
    commands.append([*claims, "--render"])
    for command in commands:
        print("$", *command, flush=True)
        subprocess.run(command, check=True, env=environment)
    shutil.copy(demo / "summary.json", RESULTS / "demo.json")
    for name in VARIANTS:
        shutil.copy(demo.parent / name / "summary.json", RESULTS / f"{name}.json")
    for name in LABS:
        keep(demo.parent / name, "regimes")
    if data:
        for name in REPLAYS:
            keep(demo.parent / name, "strategies")
    picture(demo, HERE.parent / "docs" / "demo.svg")


def keep(run: Path, part: str) -> None:
    """Keep the figures of a summary, without its paths and settings.

    For a replay ("strategies") each seed's waste factor is kept too, so that two strategies can be compared in pairs.
    """
    summary = json.loads((run / "summary.json").read_text())
    figures = summary[part]
    if part == "strategies":
        for strategy in figures.values():
            strategy["waste_factor_by_seed"] = dict.fromkeys(map(str, summary["seeds"]))
        for path in sorted((run / "runs").glob("*.json")):
            one = json.loads(path.read_text())
            strategy = figures.get(one["strategy"])
            if strategy is not None and str(one["seed"]) in strategy["waste_factor_by_seed"]:
                waste = one["figures"][f"waste_factor_{strategy['waste_factor_counts']}"]
                strategy["waste_factor_by_seed"][str(one["seed"])] = waste
        for name, strategy in figures.items():
            found, mean = strategy["waste_factor_by_seed"].values(), strategy["waste_factor"]["mean"]
            if None in found or abs(statistics.fmean(found) - mean) > 1e-9:
                sys.exit(
                    f"{run}: the runs of {name} are not those of the summary; replay into an empty folder"
                )
    (RESULTS / f"{run.name}.json").write_text(json.dumps({part: figures}, indent=1) + "\n")


def picture(demo: Path, out: Path) -> None:
    """Draw the demo's accuracy against cumulative rollouts, as in its report."""
    import matplotlib as mpl
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    from neyman.report import load_runs
    from neyman.report._figures import draw_accuracy
    from neyman.report._findings import analyse, costs_of
    from neyman.report._looks import looks

    findings = analyse(load_runs(demo))
    names = [strategy.strategy for strategy in findings.strategies]
    with mpl.rc_context({"svg.hashsalt": "neyman", "font.size": 9}):
        figure = Figure(figsize=(6.4, 3.4), layout="constrained")
        axes = draw_accuracy(
            figure.add_subplot(),
            {s.strategy: s.curves["rollouts"] for s in findings.strategies},
            {
                s.strategy: [(costs_of(run, "rollouts"), run.accuracy) for run in s.runs]
                for s in findings.strategies
            },
            looks(names, findings.reference),
            x_label="cumulative rollouts",
            target=findings.target,
        )
        axes.legend(loc="lower right", frameon=False)
        FigureCanvasSVG(figure).print_svg(out, metadata={"Date": None, "Creator": None})


def main() -> None:
    """Measure, unless ``--render`` is given, and render."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default=os.environ.get("NEYMAN_DATA"))
    parser.add_argument("--demo", type=Path, default=Path("runs/demo"))
    parser.add_argument("--render", action="store_true")
    options = parser.parse_args()
    RESULTS.mkdir(exist_ok=True)
    if not options.render:
        measure(options.data, options.demo)
    render()


if __name__ == "__main__":
    main()
