"""The tables of every strategy on the recorded run."""

from __future__ import annotations

from typing import Any

import numpy as np

from asked import FRONTIER, PUBLISHED, REPLAY
from marks import kept, plus_minus, table

Figures = dict[str, Any]
NEAR = 3.2  # passes: "within about 3" is a floor of 2.8 plus the length of a step


def replay(figures: Figures) -> list[str]:
    """Render every strategy on the real trace, variants as published, and the cost of a floor."""
    ours = figures["strategies"]["neyman"]
    sections = [
        "## Every strategy on a real GRPO training trace",
        "",
        f"`neyman replay DIR/dsr_sub_trace.parquet {' '.join(REPLAY)} --out replay`: groups of 8, 95 % intervals over "
        "seeds (orders of prompts and of recorded rollouts). Replay judges spending and prediction, not accuracy; "
        "requests beyond the recorded rollouts of a visit are drawn from its neighbours. `*`: trains groups of several "
        "sizes, so mixed groups of any size count (docs/replay.md), and no difference is given. A negative difference "
        "means that `neyman` wastes less; read it with the longest gap.",
        "",
        *_strategies(figures, ours),
    ]
    if (published := kept("replay_published")) is not None:
        sections += [
            "",
            "Strategies whose default here is not the published rule, as published or in another form: "
            f"`neyman replay DIR/dsr_sub_trace.parquet {' '.join(PUBLISHED)} --out replay_published`",
            "",
            *_strategies(published, ours),
        ]
    if (floors := kept("replay_frontier")) is not None:
        sections += ["", *_frontier(figures, published, floors)]
    return sections


def _strategies(figures: Figures, ours: Figures) -> list[str]:
    rows = [
        [f"`{name}`", plus_minus(s["effective_ratio"]), plus_minus(s["effective_groups_per_1000_rollouts"], 1),
         plus_minus(s["waste_factor"]) + (" *" if s.get("waste_factor_counts") == "any" else ""),
         "-" if s is ours else _less(ours, s), plus_minus(s["signal_kept"]), plus_minus(s["coverage"]),
         plus_minus(s["max_revisit_gap"], 1), plus_minus(s["log_loss"]), plus_minus(s["rounds_per_step"], 1),
         plus_minus(s["beyond_share"], 2)]
        for name, s in figures["strategies"].items()
    ]  # fmt: skip
    header = ["strategy", "effective ratio", "effective groups per 1,000 rollouts", "waste factor",
              "`neyman`'s minus it, paired", "signal kept", "coverage", "longest gap, passes", "log-loss",
              "rounds a step", "beyond the record"]  # fmt: skip
    return table(header, rows)


def _less(ours: Figures, other: Figures) -> str:
    """Return the waste factor of `neyman` minus another's, paired by seed, with Student's interval."""
    from neyman.report._stats import paired_difference

    if other.get("waste_factor_counts") == "any":
        return "-"
    mine, its = (
        {int(seed): value for seed, value in s["waste_factor_by_seed"].items()} for s in (ours, other)
    )
    paired = paired_difference(mine, its, np.random.default_rng(0))
    if paired is None:
        return "-"
    found = paired.interval
    return f"{found.mean:+.3f} ({found.low:+.3f} to {found.high:+.3f})"


def _frontier(figures: Figures, published: Figures | None, floors: Figures) -> list[str]:
    """Render waste against the longest gap, shortest gap first: strategies of full groups below `sara`'s waste."""
    named = {
        **figures["strategies"],
        **(published or {"strategies": {}})["strategies"],
        **floors["strategies"],
    }
    limit = figures["strategies"]["sara"]["waste_factor"]["mean"]
    shown = {
        name: s
        for name, s in named.items()
        if s["waste_factor_counts"] == "full" and s["waste_factor"]["mean"] < limit
    }
    rows = [
        [f"`{name}`", plus_minus(s["max_revisit_gap"], 1), plus_minus(s["waste_factor"]), plus_minus(s["coverage"]),
         plus_minus(s["beyond_share"], 2)]
        for name, s in sorted(shown.items(), key=lambda item: item[1]["max_revisit_gap"]["mean"])
    ]  # fmt: skip
    least = min(shown, key=lambda name: shown[name]["waste_factor"]["mean"])
    least_near = min(
        (name for name, s in shown.items() if s["max_revisit_gap"]["mean"] <= NEAR),
        key=lambda name: shown[name]["waste_factor"]["mean"],
    )
    return [
        "Waste against neglect: the strategies of these tables that waste less than `sara`, shortest gap first, and "
        f"`neyman replay DIR/dsr_sub_trace.parquet {' '.join(FRONTIER)} --out replay_frontier`, which moves "
        f"the floors. Among those that revisit every prompt within about 3 passes `{least_near}` wastes least "
        f"({shown[least_near]['waste_factor']['mean']:.3f}), among all `{least}` "
        f"({shown[least]['waste_factor']['mean']:.3f}, at a gap of {shown[least]['max_revisit_gap']['mean']:.1f}).",
        "",
        *table(
            ["strategy", "longest gap, passes", "waste factor", "coverage", "beyond the record"],
            rows,
        ),
    ]
