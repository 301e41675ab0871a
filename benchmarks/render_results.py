"""docs/results.md: every strategy on the real trace and in the lab."""

from __future__ import annotations

from asked import ALL
from marks import kept
from render_lab import ALIKE, equal_tokens, regimes
from render_replay import replay


def strategies() -> list[str]:
    """Return the lines of docs/results.md."""
    trace, lab_runs = kept("replay"), kept("lab_all")
    lines = [
        "# Every strategy, on a real trace and in the lab",
        "",
        "Rendered by `python benchmarks/run_all.py --render`, like [RESULTS.md](../benchmarks/RESULTS.md), which has "
        "all other measurements. The strategies are described in [methods.md](methods.md). Replay judges spending on "
        "recorded outcomes ([replay.md](replay.md)), the lab the learning of a small policy ([lab.md](lab.md)); "
        "intervals are 95 %. `dynamo` is without its token factor in both: a replay records no tokens' probabilities, "
        "and the lab's answers have four tokens.",
    ]
    if trace is not None:
        lines += ["", *replay(trace)]
    if lab_runs is not None:
        lines += [
            "",
            "## Every strategy in the lab",
            "",
            f"`neyman compare {' '.join(ALL)} --out lab_all`: each seed at the learning rate that was best on the "
            "other seeds; the reference is `uniform` at its best. `neyman-told` and `oracle` use exact success rates, "
            f"which no strategy knows. {equal_tokens(lab_runs)} {ALIKE}",
            *regimes(lab_runs),
        ]
    return lines
