"""Speed of exact allocation, as ratios to the papers' own solvers, and the cost of a million prompts.

    python benchmarks/allocation.py --out allocation.json

Rivals are timed in turns with neyman in one run, so that the ratio of the medians does not depend on the
machine's load: SciPy's SLSQP on the continuous relaxation (VIP), and a dynamic program over the budget in
NumPy (Knapsack). The objective column is the rival's relative to ours: the relaxation may be below it, because its
counts are not yet whole; the dynamic program must reach the same optimum, or the run fails.
"""

from __future__ import annotations

import argparse
import json
import platform
import resource
import statistics
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy
from scipy.optimize import minimize

from neyman import allocate, gradient_variance

LOWER, UPPER, PER_PROMPT = 3, 32, 8
ESTIMATORS = ("rloo", "dr_grpo", "grpo")


def slsqp(rates: np.ndarray, budget: int) -> np.ndarray:
    """Solve the relaxed RLOO problem by sequential quadratic programming with exact derivatives, without rounding."""
    a = rates * (1 - rates)
    result = minimize(
        lambda n: (a / (n - 1)).sum(),
        np.full(len(a), budget / len(a)),
        jac=lambda n: -a / (n - 1) ** 2,
        bounds=[(LOWER, UPPER)] * len(a),
        constraints={"type": "eq", "fun": lambda n: n.sum() - budget, "jac": np.ones_like},
        method="SLSQP",
        options={"maxiter": 1000},
    )
    return result.x


def dynamic_program(rates: np.ndarray, budget: int) -> np.ndarray:
    """Solve the integer RLOO problem by dynamic programming over the budget, O(prompts x budget x width)."""
    spare, width = budget - LOWER * len(rates), UPPER - LOWER
    cost = (rates * (1 - rates))[:, None] / (np.arange(LOWER, UPPER + 1) - 1.0)
    padded = np.full(spare + 1 + width, np.inf)
    padded[width] = 0.0
    choice = np.empty((len(rates), spare + 1), dtype=np.int8)
    for q in range(len(rates)):
        # windows[c, j]: the least cost with c - j spent before, and j on this prompt
        windows = np.lib.stride_tricks.sliding_window_view(padded, width + 1)[:, ::-1] + cost[q]
        choice[q] = windows.argmin(axis=1)
        padded[width:] = windows[np.arange(spare + 1), choice[q]]
    counts, left = np.empty(len(rates), dtype=np.int64), spare
    for q in range(len(rates) - 1, -1, -1):
        taken = int(choice[q, left])
        counts[q] = LOWER + taken
        left -= taken
    return counts


def timed(call: Callable[[], Any]) -> tuple[float, Any]:
    """Return the CPU seconds of one call, and its result."""
    start = time.process_time()
    result = call()
    return time.process_time() - start, result


def against(rival: Callable[[np.ndarray, int], np.ndarray], prompts: int, repeats: int) -> dict[str, Any]:
    """Time a rival and neyman in turns on the same problems."""
    ours, theirs, gaps = [], [], []
    for seed in range(repeats):
        rates = np.random.default_rng(seed).beta(0.6, 0.6, prompts)
        budget = PER_PROMPT * prompts
        seconds, counts = timed(lambda: allocate(rates, budget, LOWER, UPPER))  # noqa: B023 - called at once
        ours.append(seconds)
        seconds, other = timed(lambda: rival(rates, budget))  # noqa: B023 - called at once
        theirs.append(seconds)
        best, reached = ((rates * (1 - rates) / (n - 1)).sum() for n in (counts, other))
        gaps.append(float(reached / best - 1))
        assert rival is not dynamic_program or abs(gaps[-1]) < 1e-9
    return {
        "prompts": prompts,
        "repeats": repeats,
        "neyman_ms": 1e3 * statistics.median(ours),
        "rival_ms": 1e3 * statistics.median(theirs),
        "ratio": statistics.median(theirs) / max(statistics.median(ours), 1e-9),
        "rival_objective_minus_ours": statistics.median(gaps),
    }


def million(estimator: str, prompts: int, repeats: int) -> dict[str, Any]:
    """Measure CPU seconds and traced memory of one exact allocation over many prompts."""
    rates = np.random.default_rng(0).random(prompts)
    budget = PER_PROMPT * prompts
    seconds = [timed(lambda: allocate(rates, budget, LOWER, UPPER, estimator))[0] for _ in range(repeats)]
    tracemalloc.start()
    counts = allocate(rates, budget, LOWER, UPPER, estimator)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert counts.sum() == budget
    return {
        "estimator": estimator,
        "prompts": prompts,
        "seconds": statistics.median(seconds),
        "seconds_max": max(seconds),
        "peak_bytes_per_prompt": peak / prompts,
        "summed_variance": float(np.sum(gradient_variance(rates, counts, estimator))),
    }


def main() -> None:
    """Measure, print, and write JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, help="where to write the figures as JSON")
    parser.add_argument("--prompts", type=int, default=1_000_000, help="size of the large problem")
    parser.add_argument("--repeats", type=int, default=5, help="repeats; medians are reported")
    arguments = parser.parse_args()
    figures: dict[str, Any] = {
        "machine": {"python": platform.python_version(), "numpy": np.__version__, "scipy": scipy.__version__},
        "setting": {"lower": LOWER, "upper": UPPER, "budget_per_prompt": PER_PROMPT, "estimator": "rloo"},
        "slsqp": [against(slsqp, prompts, arguments.repeats) for prompts in (32, 128, 512)],
        "dynamic_program": [against(dynamic_program, n, arguments.repeats) for n in (32, 128, 512, 2048)],
        "large": [million(estimator, arguments.prompts, arguments.repeats) for estimator in ESTIMATORS],
        "peak_resident_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }
    for rival in ("slsqp", "dynamic_program"):
        for row in figures[rival]:
            print(
                f"{rival:16} {row['prompts']:6} prompts: {row['rival_ms']:10.2f} ms, neyman {row['neyman_ms']:8.3f} ms,"
                f" ratio {row['ratio']:8.1f}, objective {row['rival_objective_minus_ours']:+.2e}"
            )
    for row in figures["large"]:
        print(
            f"{row['estimator']:16} {row['prompts']:6} prompts: {row['seconds']:.2f} s (slowest "
            f"{row['seconds_max']:.2f}), {row['peak_bytes_per_prompt']:.0f} bytes per prompt at the peak"
        )
    if arguments.out:
        arguments.out.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
