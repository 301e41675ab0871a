"""Claims about training, judged by the lab's tables in benchmarks/results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from claims_of.claim import CONDITION, FALSE, HOLDS, UNDECIDED, Finding, Run, pending

RESULTS = Path(__file__).resolve().parents[1] / "results"
_T = 2.776  # half a 95 % interval of five seeds in standard errors: Student's t with 4 degrees of freedom
_SEEDS = 5


def regimes(name: str) -> dict[str, Any]:
    """Return the regimes of a comparison in the lab, whose intervals are of five seeds."""
    found: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text())["regimes"]
    assert all(len(one["seeds"]) == _SEEDS for one in found.values()), (
        f"{name}.json has other seeds than {_SEEDS}"
    )
    return found


def gain(figures: dict[str, Any], strategy: str) -> tuple[float, float]:
    """Return a strategy's final accuracy minus uniform's, paired by seed, in points, and its standard error."""
    difference = figures["strategies"][strategy]["difference_to_reference"]
    return 100.0 * difference["mean"], 100.0 * (difference["high"] - difference["low"]) / 2.0 / _T


def verdict(gaps: list[tuple[float, float]]) -> str:
    """Return the verdict of 95 % intervals on "these are all above zero"."""
    above, below = (sum(sign * value > _T * error for value, error in gaps) for sign in (1.0, -1.0))
    if above and below:
        return CONDITION
    if below:
        return FALSE
    return HOLDS if above == len(gaps) else CONDITION if above else UNDECIDED


def _setting(figures: dict[str, Any]) -> str:
    some = next(iter(figures.values()))
    spent = some["compared_at"]["rollouts"]
    return f"{len(some['seeds'])} seeds, {spent:,.0f} rollouts, each at its best learning rate"


def accuracy(_: Run) -> Finding:
    """Quote VIP and its heuristics against uniform."""
    found, core, every = pending(), regimes("lab"), regimes("lab_all")
    gaps = []
    for regime, figures in core.items():
        gaps.append(gain(figures, "vip"))
        found.add(f"{regime}: final accuracy of `vip` minus `uniform`, points", *gaps[-1])
    for regime, figures in core.items():
        share = figures["strategies"]["vip"]["share_of_reference_rollouts"]
        found.add(f"{regime}: rollouts of `vip` to uniform's final accuracy, over uniform's", share["mean"])
    for regime, figures in every.items():
        for name in ("inverse-accuracy", "inverse-variance"):
            found.add(f"{regime}: final accuracy of `{name}` minus `uniform`, points", *gain(figures, name))
    found.verdict = verdict(gaps)
    low, high = (min(v - _T * e for v, e in gaps), max(v + _T * e for v, e in gaps))
    named = "no winner between `vip` and `uniform` can be named in any regime" if found.verdict == UNDECIDED else (
        "in some regimes a winner can be named")  # fmt: skip
    found.why = (
        f"The lab's table ({_setting(core)}; RESULTS.md has its command): {named}; the 95 % intervals reach from "
        f"{low:+.1f} to {high:+.1f} points. "
        "The variance does fall (independent-scores), by less where beliefs replace exact rates."
    )
    return found


def weaker(_: Run) -> Finding:
    """Quote VIP's gain by how weak the starting policy is."""
    found, core = pending(), regimes("lab")
    order = [name for name in ("hard", "ushape", "easy") if name in core]
    gaps = [gain(core[name], "vip") for name in order]
    for name, gap in zip(order, gaps, strict=True):
        start = core[name]["strategies"]["uniform"]["curve"]["accuracy"][0]
        found.add(f"{name} (accuracy at the start {start:.2f}): `vip` minus `uniform`, points", *gap)
    difference = (gaps[0][0] - gaps[-1][0], float(np.hypot(gaps[0][1], gaps[-1][1])))
    found.add(f"gain in {order[0]} minus gain in {order[-1]}, points", *difference)
    found.verdict = verdict([difference])
    found.why = (
        f"The regimes start from a weak, a medium and a strong policy ({_setting(core)}). They differ in the spread "
        "of difficulty too, and the strong one has little left to gain, so even a difference could not be "
        "attributed to the policy alone."
    )
    return found
