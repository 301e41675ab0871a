"""Render RESULTS.md from what the benchmarks wrote: ``python benchmarks/run_all.py --render``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from render_bias import gradient_bias

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

# What the lab and the replay are asked, beside where to.
LAB = ["--regimes", "hard,ushape,easy", "--strategies", "core", "--seeds", "5", "--rates", "6e-4,1.2e-3,2.4e-3",
       "--rollouts", "16000"]  # fmt: skip
ALL = ["--regimes", "hard,ushape", "--strategies", "all", "--seeds", "5", "--rates", "6e-4,1.2e-3,2.4e-3",
       "--rollouts", "16000"]  # fmt: skip
_ALIKE = (
    "In groups of 4 `speed`'s screening of 4 is the whole group, which makes it `dynamic-sampling`; `ridge` without "
    "features is `uniform`."
)
SIZES = ["--strategies", "uniform,dynamic-sampling,neyman,oracle", "--seeds", "5", "--group-sizes", "2,4,8",
         "--rollouts", "16000"]  # fmt: skip
# At two rates that surround each regime's best.
LAB_SIZES = {
    "lab_sizes_hard": ["--regimes", "hard", *SIZES, "--rates", "1.2e-3,2.4e-3"],
    "lab_sizes": ["--regimes", "ushape,easy", *SIZES, "--rates", "3e-4,6e-4"],
}
ASIDE = ["--regimes", "hard,ushape", "--strategies", "uniform,neyman,oracle", "--seeds", "5", "--rates", "6e-4,1.2e-3",
         "--rollouts", "16000"]  # fmt: skip
# The lab under other conditions: file name -> (what is different, flags).
CONDITIONS: dict[str, tuple[str, list[str]]] = {
    "lab_metadata": ("beliefs are told family and first digit", ["--features", "metadata"]),
    "lab_hidden": ("beliefs are told the first policy's state on the prompt", ["--features", "hidden"]),
    "lab_many_epochs": ("256 prompts, each visited many times", ["--pool", "256"]),
    "lab_noise": ("a tenth of all verdicts flipped", ["--reward-noise", "0.1"]),
    "lab_lengths": ("wrong answers cost 4 times the tokens", ["--failure-tokens", "16"]),
    "lab_drift": ("weights also move at random", ["--drift", "0.3"]),
}
LABS = {
    "lab": LAB,
    "lab_all": ALL,
    **LAB_SIZES,
    **{name: [*ASIDE, *flags] for name, (_, flags) in CONDITIONS.items()},
}
REPLAY = ["--seeds", "3", "--passes", "20"]
# As published, where our defaults differ: without a floor, without fading, uncorrected.
PUBLISHED = ["--strategies", "sara:variant=published,dynamo:variant=published,vip:variant=published,dps:revisit=1000,"
             "mopps:fade=1,greso:fade=1,curriculum:revisit=1000", *REPLAY]  # fmt: skip
REPLAYS = {"replay": REPLAY, "replay_published": PUBLISHED}


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
    if value.get("censored"):
        return "not reached"
    if value.get("low") is None:
        return mean
    if value.get("high") is None:
        return f"{mean} ({scale * value['low']:,.{digits}f} to never)"
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


def replay(figures: dict[str, Any]) -> list[str]:
    """Render every strategy on the real trace."""
    published = _load("replay_published")
    sections = [
        "## Every strategy on a real GRPO training trace",
        "",
        f"`neyman replay DIR/dsr_sub_trace.parquet {' '.join(REPLAY)} --out replay`: groups of 8, 95 % intervals over "
        "seeds (orders of prompts and of recorded rollouts). Replay judges spending and prediction, not accuracy; what "
        "is asked beyond the recorded rollouts of a visit comes from its neighbours. `*`: trains groups of several "
        "sizes, so mixed groups of any size count (docs/replay.md).",
        "",
        *_replayed(figures),
    ]
    if published is not None:
        sections += [
            "",
            "The same where a default here is not the published rule, as published: "
            f"`neyman replay DIR/dsr_sub_trace.parquet {' '.join(PUBLISHED)} --out replay_published`",
            "",
            *_replayed(published),
        ]
    return sections


def _replayed(figures: dict[str, Any]) -> list[str]:
    def pm(value: dict[str, float | None], digits: int = 3) -> str:
        if value.get("mean") is None:
            return "-"
        mean = f"{value['mean']:.{digits}f}"
        return (
            mean if value.get("low") is None else f"{mean} ± {(value['high'] - value['low']) / 2:.{digits}f}"
        )

    rows = [
        [f"`{name}`", pm(s["effective_ratio"]), pm(s["effective_groups_per_1000_rollouts"], 1),
         pm(s["waste_factor"]) + (" *" if s.get("waste_factor_counts") == "any" else ""), pm(s["signal_kept"]),
         pm(s["coverage"]), pm(s["max_revisit_gap"], 1), pm(s["log_loss"]), pm(s["rounds_per_step"], 1),
         pm(s["beyond_share"], 2)]
        for name, s in figures["strategies"].items()
    ]  # fmt: skip
    header = ["strategy", "effective ratio", "effective groups per 1,000 rollouts", "waste factor", "signal kept",
              "coverage", "longest gap, passes", "log-loss", "rounds a step", "beyond the record"]  # fmt: skip
    return _table(header, rows)


def lab(figures: dict[str, Any]) -> list[str]:
    """Render learning curves in the lab."""
    sections = [
        "## Learning curves in the lab",
        "",
        f"`neyman compare {' '.join(LAB)} --out lab`: each seed at the learning rate that was best on the other seeds; "
        "the reference is `uniform` at its best; 95 % intervals.",
    ]
    sections += _regimes(figures)
    everything = _load("lab_all")
    if everything is not None:
        sections += [
            "",
            "### Every preset",
            "",
            f"`neyman compare {' '.join(ALL)} --out lab_all`, as above. {_ALIKE}",
            *_regimes(everything, level="####"),
        ]
    return [*sections, *_sizes(), *_conditions()]


def _regimes(figures: dict[str, Any], level: str = "###") -> list[str]:
    """Render a table of strategies for each regime."""
    header = ["strategy", "final accuracy, %", "paired difference, points", "rollouts to uniform's final",
              "rollouts to dynamic sampling's final", "share of the oracle's gain"]  # fmt: skip
    sections = []
    for regime, found in figures["regimes"].items():
        rows = [
            [f"`{name}`", _interval(s["final_accuracy"], 100), _interval(s["difference_to_reference"], 100),
             _interval(s["rollouts_to_reference"], digits=0),
             _interval(s["rollouts_to"]["dynamic-sampling"], digits=0), _interval(s["oracle_gain_captured"], 1, 2)]
            for name, s in found["strategies"].items()
        ]  # fmt: skip
        sections += ["", f"{level} {regime}", "", *_table(header, rows)]
    return sections


def _sizes() -> list[str]:
    """Render every strategy at its best group size, and what each size gave it."""
    rows, commands = [], []
    for name, words in LAB_SIZES.items():
        if (figures := _load(name)) is None:
            continue
        commands.append(f"`neyman compare {' '.join(words)} --out {name}`")
        for regime, found in figures["regimes"].items():
            for strategy, s in found["strategies"].items():
                if strategy == "dynamic-sampling":  # its best rate is not among these
                    continue
                best = {
                    size: max(
                        100 * setting["final_accuracy"]["mean"]
                        for setting in s["settings"] if setting["group_size"] == size
                    )
                    for size in (2, 4, 8)
                }  # fmt: skip
                rows.append(
                    [regime, f"`{strategy}`", *(f"{mean:.1f}" for mean in best.values()),
                     _interval(s["final_accuracy"], 100), _interval(s["difference_to_reference"], 100),
                     _interval(s["rollouts_to_reference"], digits=0), _interval(s["oracle_gain_captured"], 1, 2)]
                )  # fmt: skip
    if not rows:
        return []
    header = ["regime", "strategy", "64 x 2", "32 x 4", "16 x 8", "at the best, %", "paired difference, points",
              "rollouts to uniform's final", "share of the oracle's gain"]  # fmt: skip
    return [
        "",
        "### Every strategy at its best group size",
        "",
        " and ".join(commands)
        + ": prompts x rollouts of a step, final accuracy at the better of two rates (mean over "
        "seeds, %); then each seed at the size and rate that were best on the other seeds, the reference too. "
        "(`dynamic-sampling` learns best at 2.4e-3, which is not here in two regimes: see the tables above.)",
        "",
        *_table(header, rows),
    ]


def _conditions() -> list[str]:
    """Render `neyman` against uniform where something is different."""
    rows = [
        [what, f"`{' '.join(flags)}`", regime,
         *(_interval(found["strategies"][name]["final_accuracy"], 100) for name in ("uniform", "neyman")),
         _interval(s["difference_to_reference"], 100), _interval(s["oracle_gain_captured"], 1, 2)]
        for name, (what, flags) in CONDITIONS.items() if (figures := _load(name))
        for regime, found in figures["regimes"].items() for s in [found["strategies"]["neyman"]]
    ]  # fmt: skip
    if not rows:
        return []
    header = ["condition", "flags", "regime", "`uniform`, %", "`neyman`, %", "paired difference, points",
              "share of the oracle's gain"]  # fmt: skip
    return [
        "",
        "### `neyman` under other conditions",
        "",
        f"`neyman compare {' '.join(ASIDE)} FLAGS --out DIR`: final accuracy.",
        "",
        *_table(header, rows),
    ]


def overhead(figures: dict[str, Any]) -> list[str]:
    """Render what neyman costs."""
    ratios = [[f"`{name}`", f"{ratio:.2f}"] for name, ratio in figures["step_time_ratio"].items()]
    seconds = figures["import_seconds"]
    return [
        "## What neyman costs",
        "",
        f"`python benchmarks/overhead.py --out overhead.json`: median CPU time of a step under TRL relative to the "
        f"stock trainer's ({1e3 * figures['stock_step_seconds']:.0f} ms for the policy of 0.1M parameters, 128 "
        "rollouts: an upper bound for any real model), in turns in one run:",
        "",
        *_table(["strategy", "step time / stock"], ratios),
        "",
        f"`import neyman` takes {seconds['neyman']:.2f} s, of which NumPy takes {seconds['numpy']:.2f} s.",
    ]


def load(figures: dict[str, Any]) -> list[str]:
    """Render what a step's decisions cost under load, and the memory of a long run."""
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
        "which is while the features are registered; the saved state, MB of JSON, and CPU seconds to save and load it.",
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


def strategies() -> list[str]:
    """Render docs/results.md: every strategy on the real trace and in the lab."""
    trace, lab_runs = _load("replay"), _load("lab_all")
    lines = [
        "# Every strategy, on a real trace and in the lab",
        "",
        "Rendered by `python benchmarks/run_all.py --render`, as [RESULTS.md](../benchmarks/RESULTS.md) is, which "
        "has everything else that was measured. What each strategy does: [methods.md](methods.md). Replay judges what "
        "rollouts bought on recorded outcomes ([replay.md](replay.md)), the lab what a small policy learned "
        "([lab.md](lab.md)); intervals are of 95 %.",
    ]
    if trace is not None:
        lines += ["", *replay(trace)]
    if lab_runs is not None:
        lines += [
            "",
            "## Every strategy in the lab",
            "",
            f"`neyman compare {' '.join(ALL)} --out lab_all`: each seed at the learning rate that was best on the "
            "other seeds; the reference is `uniform` at its best. `neyman-told` and `oracle` are told what no strategy "
            f"knows. {_ALIKE}",
            *_regimes(lab_runs),
        ]
    return lines


def render() -> None:
    """Write RESULTS.md and docs/results.md from the JSON files."""
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
    (HERE / "RESULTS.md").write_text("\n".join(lines) + "\n")
    (HERE.parent / "docs" / "results.md").write_text("\n".join(strategies()) + "\n")
