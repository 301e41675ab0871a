"""Measure every figure of RESULTS.md and render it: ``make bench DATA=folder-with-the-trace``.

The trace is `dsr_sub_trace.parquet` (see benchmarks/beliefs.py); without DATA its table is left as it was. Each
benchmark writes benchmarks/results/NAME.json; ``--render`` renders what is there without measuring.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
# The demo again under other conditions: file name -> (heading, command of neyman).
VARIANTS: dict[str, tuple[str, list[str]]] = {
    "demo_other_seeds": ("The demo on five other seeds", ["train", "--seeds", "10", "11", "12", "13", "14"]),
    "demo_twice_as_long": (
        "The demo at twice the budget, with `vip`",
        ["train", "--trainer.steps", "96", "--baselines", "uniform", "vip"],
    ),
    "hard": (
        "The hard regime, 16 prompts x 8 rollouts a step",
        ["train", "--task.regime", "hard", "--trainer.steps", "80"],
    ),
    "hard_small_groups": (
        "The hard regime, 32 prompts x 4 rollouts a step",
        ["train", "--task.regime", "hard", "--trainer.steps", "80", "--trainer.prompts-per-step", "32",
         "--trainer.group-size", "4"],
    ),
}  # fmt: skip


def measure(data: str | None, demo: Path) -> None:
    """Run every benchmark, one thread each."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    commands = [
        [sys.executable, str(HERE / "allocation.py"), "--out", str(RESULTS / "allocation.json")],
        [sys.executable, str(HERE / "overhead.py"), "--out", str(RESULTS / "overhead.json")],
        [
            sys.executable,
            str(HERE / "gradient_variance.py"),
            "--out",
            str(RESULTS / "gradient_variance.json"),
        ],
        [sys.executable, "-m", "neyman.cli", "demo", "--out", str(demo)],
    ]
    for name, (_, words) in VARIANTS.items():
        commands.append([sys.executable, "-m", "neyman.cli", *words, "--out", str(demo.parent / name)])
    if data:
        out = str(RESULTS / "beliefs.json")
        commands.append([sys.executable, str(HERE / "beliefs.py"), "--data", data, "--out", out])
    for command in commands:
        print("$", *command, flush=True)
        subprocess.run(command, check=True, env=environment)
    shutil.copy(demo / "summary.json", RESULTS / "demo.json")
    for name in VARIANTS:
        shutil.copy(demo.parent / name / "summary.json", RESULTS / f"{name}.json")
    picture(demo, HERE.parent / "docs" / "demo.svg")


def picture(demo: Path, out: Path) -> None:
    """Draw the demo's accuracy against cumulative rollouts, as in its report, for the README."""
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


def _load(name: str) -> dict[str, Any] | None:
    path = RESULTS / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else None


def _table(header: list[str], rows: list[list[str]]) -> list[str]:
    return ["| " + " | ".join(row) + " |" for row in [header, ["---"] * len(header), *rows]]


def _interval(value: dict[str, Any] | None, scale: float = 1.0, digits: int = 1) -> str:
    if not value or value.get("mean") is None:
        return "-"
    mean = f"{scale * value['mean']:,.{digits}f}"
    if value.get("is_lower_bound"):
        return f"at least {mean} ({value['reached']} of {value['seeds']} seeds)"
    if value.get("low") is None:
        return mean
    return f"{mean} ({scale * value['low']:,.{digits}f} to {scale * value['high']:,.{digits}f})"


def _comparison(figures: dict[str, Any]) -> list[str]:
    """Render accuracy at equal rollouts, and rollouts to uniform's, with the verdict."""
    rows = []
    for name, strategy in figures["strategies"].items():
        against = strategy["against_reference"].get("rollouts")
        rows.append(
            [
                f"`{name}`",
                str(len(strategy["seeds"])),
                _interval(strategy["final_accuracy"], 100),
                _interval(against, 100) if against else "reference",
                _interval(strategy["rollouts_to_target"], digits=0),
                _interval(strategy["effective_groups_per_1000_rollouts"]),
            ]
        )
    header = ["strategy", "seeds", "final accuracy, %", "paired difference, points",
              f"rollouts to uniform's final {100 * figures['target_accuracy']:.1f} %",
              "effective groups per 1,000 rollouts"]  # fmt: skip
    return [*_table(header, rows), "", f"> {figures['verdict']}"]


def demo(figures: dict[str, Any]) -> list[str]:
    """Render the demo."""
    return [
        "## The demo: training a small language model under TRL",
        "",
        f"`make demo` (task {figures['task']}, 16 prompts x 8 rollouts a step, compared at "
        f"{figures['compared_at']['rollouts']:,.0f} rollouts; 95 % intervals over seeds, which vary sampling and "
        "order on one warm-started policy)",
        "",
        *_comparison(figures),
        *variants(),
    ]


def variants() -> list[str]:
    """Render the demo's variants, those that help and those that do not."""
    lines = []
    for name, (title, words) in VARIANTS.items():
        figures = _load(name)
        if figures is not None:
            lines += [
                "",
                f"### {title}",
                "",
                f"`neyman {' '.join(words)} --out DIR`",
                "",
                *_comparison(figures),
            ]
    return lines


def beliefs(figures: dict[str, Any]) -> list[str]:
    """Render the beliefs on the real trace."""

    def pm(value: dict[str, float]) -> str:
        return f"{value['mean']:.4f} ± {value['half_width']:.4f}"

    rows = [
        [name, pm(b["first"]), pm(b["later"]), pm(b["first_minus_counts"]), pm(b["later_minus_counts"]),
         f"{b['ms_per_step']:.1f}"]
        for name, b in figures["beliefs"].items()
    ]  # fmt: skip
    header = ["belief", "first pass", "passes 2 to 20", "first - counts", "later - counts", "CPU ms a step"]
    return [
        "## Beliefs on a real GRPO training trace",
        "",
        f"`python benchmarks/beliefs.py --data DIR --orders 5 --out beliefs.json`: log-loss per rollout of each "
        f"prompt's next visit, {figures['prompts']} prompts, {figures['batch']} a step, orders (seeds) "
        f"{figures['seeds']}; 95 % intervals, differences paired by order. Lower is better.",
        "",
        *_table(header, rows),
    ]


def allocation(figures: dict[str, Any]) -> list[str]:
    """Render the speed of exact allocation."""
    sections = [
        "## Exact allocation",
        "",
        "`python benchmarks/allocation.py --out allocation.json` (one core, CPU time)",
    ]
    for rival in ("slsqp", "dynamic_program"):
        rows = [[f"{r['prompts']:,}", f"{r['ratio']:,.0f}", f"{r['neyman_ms']:.2f}"] for r in figures[rival]]
        title = {"slsqp": "SLSQP (VIP's authors)", "dynamic_program": "dynamic program (Knapsack)"}[rival]
        sections += ["", *_table(["prompts", f"{title}: time / ours", "ours, ms"], rows)]
    rows = [
        [
            f"`{m['estimator']}`",
            f"{m['prompts']:,}",
            f"{m['seconds']:.2f}",
            f"{m['peak_bytes_per_prompt']:.0f}",
        ]
        for m in figures["large"]
    ]
    return [*sections, "", *_table(["estimator", "prompts", "seconds", "peak bytes per prompt"], rows)]


def gradient_variance(figures: dict[str, Any]) -> list[str]:
    """Render the variance gate."""
    rows = [
        [
            row["regime"],
            str(row["group_size"]),
            f"{row['measured']:.3f} ± {row['error']:.3f}",
            f"{row['predicted']:.3f}",
        ]
        for row in figures["rows"]
    ]
    return [
        "## Gradient variance under VIP's counts, at a frozen policy",
        "",
        "`python benchmarks/gradient_variance.py --out gradient_variance.json`: E||g - E g||² under exact rates over "
        "that under uniform counts, RLOO, 32 prompts a batch, the lab's first policies; Monte Carlo standard errors.",
        "",
        *_table(["regime", "group size", "measured", "predicted"], rows),
    ]


def overhead(figures: dict[str, Any]) -> list[str]:
    """Render what neyman costs."""
    ratios = [[f"`{name}`", f"{ratio:.2f}"] for name, ratio in figures["step_time_ratio"].items()]
    calls = [
        [f"{int(pool):,}", *(f"{milliseconds:.0f}" for milliseconds in spent.values())]
        for pool, spent in figures["decision_milliseconds"].items()
    ]
    names = list(next(iter(figures["decision_milliseconds"].values())))
    seconds = figures["import_seconds"]
    return [
        "## What neyman costs",
        "",
        f"`python benchmarks/overhead.py --out overhead.json`: median step time under TRL relative to the stock "
        f"trainer ({1e3 * figures['stock_step_seconds']:.0f} ms a step for the policy of 0.1M parameters, 128 rollouts:"
        " an upper bound for any real model), in turns in one run:",
        "",
        *_table(["strategy", "step time / stock"], ratios),
        "",
        "Milliseconds of the controller's calls for a step of 512 prompts and 4,096 rollouts (`vip`, default belief, "
        "384-dimensional features):",
        "",
        *_table(["pool", *names], calls),
        "",
        f"`import neyman` takes {seconds['neyman']:.2f} s, of which NumPy takes {seconds['numpy']:.2f} s.",
    ]


def render() -> None:
    """Write RESULTS.md from the JSON files."""
    lines = [
        "# Results",
        "",
        "Rendered from `benchmarks/results/*.json` by `python benchmarks/run_all.py --render`; measured by"
        " `make bench`. Times are from a shared machine with two cores: read ratios.",
    ]
    for name, section in (
        ("demo", demo),
        ("beliefs", beliefs),
        ("allocation", allocation),
        ("overhead", overhead),
        ("gradient_variance", gradient_variance),
    ):
        figures = _load(name)
        if figures is not None:
            lines += ["", *section(figures)]
    (HERE / "RESULTS.md").write_text("\n".join(lines) + "\n")


def main() -> None:
    """Measure, unless told only to render."""
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
