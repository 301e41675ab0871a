"""Render gradient_bias.json: a section of RESULTS.md, and the table of docs/methods/neyman.md."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np


def gradient_bias(figures: dict[str, Any]) -> list[str]:
    """Render the effect of strategies on a prompt's expected gradient."""
    cases = figures["cases"]
    first, last = figures["pool_steps"]
    noise = [[_name(case), *_numbers(found["noise"])] for case, found in cases.items()]
    chosen = [
        [_name(case), kind, *_pair(_relative(found[kind]))]
        for case, found in cases.items()
        for kind in ("weight", "rollouts")
    ]
    return [
        "## What strategies do to a prompt's expected gradient",
        "",
        f"`{figures['command']}`: the real controller, Bernoulli rewards with fixed rates p, RLOO, equal prompt "
        f"weights. First, all {figures['prompts']} prompts are opened, with {figures['size']} rollouts each on average "
        "(probes alone: 2). The table shows a prompt's expected gradient over its true one, "
        f"{figures['seeds']} seeds. 1 is unbiased; a factor that all rates share is only a learning rate. ± is the "
        "largest standard error of a row.",
        "",
        *ratios(figures, list(cases)),
        "",
        "The noise at the first step of that setting: E of the sum of squares of the factors of a prompt's rows, over "
        "that of `uniform`. Scores that are independent between rollouts add this noise to the gradient.",
        "",
        *_table(["strategy", *_rates(figures)], noise),
        "",
        f"Then, prompts are chosen: the host brings {figures['prompts']} of {figures['pool']} a step, steps "
        f"{first} to {last}, {figures['pool_seeds']} seeds. The table shows the weight of a prompt of rate p in the "
        "batch's expected gradient, and its rollouts, relative to the mean over the rates.",
        "",
        *_table(["strategy", "quantity", *_rates(figures), "±"], chosen),
    ]


def ratios(figures: dict[str, Any], cases: Sequence[str]) -> list[str]:
    """Return the table of expected over true gradients of some strategies."""
    steps = {"ratio": "first step", "ratio_later": f"after {figures['history']} steps"}
    rows = [
        [_name(case), when, *_pair(figures["cases"][case][kind])]
        for case in cases
        for kind, when in steps.items()
    ]
    return _table(["strategy", "when", *_rates(figures), "±"], rows)


def _relative(found: dict[str, list[float]]) -> dict[str, list[float]]:
    scale = float(np.mean(found["mean"]))
    return {name: [value / scale for value in values] for name, values in found.items()}


def _pair(found: dict[str, list[float]]) -> list[str]:
    return _numbers([*found["mean"], max(found["error"])])


def _numbers(values: Sequence[float]) -> list[str]:
    return [f"{value:.2f}" for value in values]


def _rates(figures: dict[str, Any]) -> list[str]:
    return [f"p = {rate:g}" for rate in figures["rates"]]


def _name(case: str) -> str:
    preset, comma, rest = case.partition(",")
    return f"`{preset}`{comma}{rest}"


def _table(header: list[str], rows: list[list[str]]) -> list[str]:
    return ["| " + " | ".join(row) + " |" for row in [header, ["---"] * len(header), *rows]]
