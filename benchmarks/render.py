"""Render RESULTS.md from the benchmarks' JSON: ``python benchmarks/run_all.py --render``."""

from __future__ import annotations

from typing import Any

from asked import ELSEWHERE, VARIANTS
from headline import headline
from marks import HERE
from marks import interval as _interval
from marks import kept as _load
from marks import table as _table
from render_bias import gradient_bias
from render_lab import lab
from render_methods import write_index, write_pages
from render_replay import replay
from render_results import strategies


def _comparison(figures: dict[str, Any]) -> list[str]:
    """Render accuracy at equal rollouts, and rollouts to uniform's final accuracy, with the verdict."""
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
    for name, (title, words) in (VARIANTS | ELSEWHERE).items():
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
        "`python benchmarks/gradient_variance.py --out gradient_variance.json`: E||g - E g||² under VIP's counts "
        "at exact rates, over that under uniform counts; RLOO, 32 prompts a batch, the lab's first policies; Monte "
        "Carlo standard errors.",
        "",
        *_table(["regime", "group size", "measured", "predicted"], rows),
    ]


def overhead(figures: dict[str, Any]) -> list[str]:
    """Render the cost of neyman."""
    ratios = [[f"`{name}`", f"{ratio:.2f}"] for name, ratio in figures["step_time_ratio"].items()]
    seconds = figures["import_seconds"]
    return [
        "## What neyman costs",
        "",
        f"`python benchmarks/overhead.py --out overhead.json`: median CPU time of a step under TRL relative to the "
        f"stock trainer's ({1e3 * figures['stock_step_seconds']:.0f} ms for the policy of 0.1M parameters, 128 "
        "rollouts: an upper bound for any real model), measured in turns in one run:",
        "",
        *_table(["strategy", "step time / stock"], ratios),
        "",
        f"`import neyman` takes {seconds['neyman']:.2f} s, {seconds['numpy']:.2f} s of it for NumPy.",
    ]


def load(figures: dict[str, Any]) -> list[str]:
    """Render the cost of a step's decisions under load, and the memory of a long run."""
    times, memory, profiles = [], [], []
    for case, by_pool in figures["cases"].items():
        for pool, found in by_pool.items():
            name = [f"`{case.partition(',')[0]}`{case[len(case.partition(',')[0]) :]}", f"{int(pool):,}"]
            spent = found["milliseconds"]
            medians = [f"{spent[call]['median']:.0f}" for call in ("begin", "ask", "tell", "finish")]
            whole = [f"**{spent['all']['median']:.0f}**", f"{spent['all']['p95']:.0f}"]
            times.append([*name, f"{found['candidates_a_step']:,.0f}", *medians, *whole])
            held, state = found["resident_megabytes"], found["state"]
            memory.append(
                [*name, f"{found['steps']:,}", f"{found['prompts_visited']:,}"]
                + [f"{held[when]:,.0f}" for when in ("built", "early", "last", "peak")]
                + [
                    f"{state['megabytes']:.1f}",
                    f"{state['save_seconds']:.2f}",
                    f"{state['load_seconds']:.2f}",
                ]
            )
            top = "; ".join(f"{100 * row['share']:.0f} % {row['function']}" for row in found["profile"][:5])
            profiles.append([*name, top])
    columns = [f"{int(pool):,} prompts with {wide}" for pool, wide in figures["columns"].items()]
    return [
        "## Load",
        "",
        f"`{figures['command']}`: the host brings {figures['prompts']} prompts a step and trains "
        f"{figures['rollouts']:,} rollouts; scripted outcomes; one thread, milliseconds of process CPU time, without "
        f"the host's own work. Columns of features: {', '.join(columns)}.",
        "",
        *_table(
            ["strategy", "pool", "candidates", "begin", "ask", "tell", "finish", "all", "95th percentile"],
            times,
        ),
        "",
        "Resident memory, MB: when built (features included), after 100 steps (or all), at the end, and at its peak, "
        "reached while the features are registered. The saved state: MB of JSON, and CPU seconds to save and load it.",
        "",
        *_table(
            [
                "strategy",
                "pool",
                "steps",
                "prompts seen",
                "built",
                "step 100",
                "end",
                "peak",
                "state",
                "save",
                "load",
            ],
            memory,
        ),
        "",
        "Where the time goes: functions by their own time in cProfile, which overstates calls of Python functions.",
        "",
        *_table(["strategy", "pool", "share of the controller's calls"], profiles),
    ]


def results() -> list[str]:
    """Return the lines of RESULTS.md."""
    lines = [
        "# Results",
        "",
        "Rendered from `benchmarks/results/*.json` by `python benchmarks/run_all.py --render`; measured by"
        " `make bench`. Times are from a shared machine with two cores: read ratios.",
    ]
    for name, section in (
        ("demo", demo),
        ("lab", lab),
        ("replay", replay),
        ("beliefs", beliefs),
        ("allocation", allocation),
        ("overhead", overhead),
        ("load", load),
        ("gradient_variance", gradient_variance),
        ("gradient_bias", gradient_bias),
    ):
        figures = _load(name)
        if figures is not None:
            lines += ["", *section(figures)]
    return lines


def render() -> None:
    """Write RESULTS.md, docs/results.md, the result on each method's page and the README's picture, from the JSON."""
    docs = HERE.parent / "docs"
    (HERE / "RESULTS.md").write_text("\n".join(results()) + "\n")
    (docs / "results.md").write_text("\n".join(strategies()) + "\n")
    write_pages(docs / "methods")
    write_index(docs / "methods.md")
    headline(docs / "headline.svg")


if __name__ == "__main__":
    render()
