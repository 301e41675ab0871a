"""Measure the cost of a step's decisions under load, and check that memory stays bounded.

    python benchmarks/load.py --out load.json

Drives the real controller with scripted outcomes: a success rate per prompt, drawn once from Beta(0.4, 0.4), and
Bernoulli rewards, all by seed 0. The host brings 512 prompts a step and trains 4,096 rollouts; strategies that choose
consider further prompts of the pool, which are counted. Each case runs in a process of its own with one thread, and
its times are process CPU time: they exclude other cases and other jobs, though a busy machine still makes them
longer. Linux only: resident memory is read from /proc.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import os
import pstats
import resource
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

import neyman
from neyman.randomness import PromptId
from neyman.rules import Select, StepView

PROMPTS, SIZE, SEED = 512, 8, 0
# Columns of features by pool. A million rows of 384 are 1.5 GB: the host's memory, not neyman's.
COLUMNS = {17_000: 384, 1_000_000: 64}
STEPS = {17_000: 300, 1_000_000: 1_000}  # the small pool has been seen completely long before
CASES: dict[str, dict[str, Any]] = {
    "vip": {},
    "dynamo": {"modulation": None},
    "sara": {"group_size": SIZE},
    "neyman": {},
    "neyman, full groups": {"group_size": SIZE},
}
WARM, EARLY, PROFILED = 5, 100, 20  # steps not timed; step from which memory is compared; steps profiled

Run = Callable[..., Any]  # run(name, call, *arguments) makes a call of the controller


@dataclass
class Counted:
    """A selection rule that counts the candidates offered to it."""

    inner: Select
    seen: int = 0

    def pick(self, view: StepView, count: int) -> list[PromptId]:
        """Return the inner rule's picks."""

        def counted(offer: Callable[[int], list[PromptId]]) -> Callable[[int], list[PromptId]]:
            def offered(wanted: int) -> list[PromptId]:
                ids = offer(wanted)
                self.seen += len(ids)
                return ids

            return offered

        self.seen += len(view.candidates)
        return self.inner.pick(replace(view, fresh=counted(view.fresh), browse=counted(view.browse)), count)


class Host:
    """A host that brings prompts and generates scripted outcomes."""

    def __init__(self, case: str, pool: int) -> None:
        strategy = neyman.preset(case.partition(",")[0], **CASES[case])
        self.select = Counted(strategy.select)
        fills = strategy.close == "fixed_train"  # from twice the rollouts
        self.controller = neyman.Controller(
            strategy.with_options(select=self.select),
            neyman.Budget(rollouts=PROMPTS * SIZE * (2 if fills else 1)),
            train_rows=PROMPTS * SIZE if fills else None,
            pool=range(pool),
            seed=SEED,
        )
        self.pool, self.rng = pool, np.random.default_rng(SEED)
        belief = self.controller.strategy.belief
        if getattr(belief, "uses_features", True):
            belief.register(range(pool), self.rng.standard_normal((pool, COLUMNS[pool]), dtype=np.float32))
        self.rates = self.rng.beta(0.4, 0.4, pool)

    def step(self, run: Run) -> None:
        """Make a step's calls through ``run``."""
        controller = self.controller
        run("begin", controller.begin, self.rng.choice(self.pool, PROMPTS, replace=False).tolist())
        while not controller.is_done:
            run("tell", controller.tell, self.generate(run("ask", controller.ask)))
        run("finish", controller.finish)

    def generate(self, requests: list[neyman.Request]) -> list[neyman.Outcome]:
        """Return an outcome for every requested rollout."""
        pairs = [(rollout, request.prompt_id) for request in requests for rollout in request.rollout_ids]
        draws = self.rng.random(len(pairs)).tolist()
        return [
            neyman.Outcome(rollout_id=rollout, prompt_id=owner, reward=float(draw < self.rates[owner]))
            for (rollout, owner), draw in zip(pairs, draws, strict=True)
        ]


def timed(host: Host) -> dict[str, float]:
    """Run a step and return the CPU milliseconds of each kind of call."""
    spent: dict[str, float] = defaultdict(float)

    def run(name: str, call: Run, *arguments: Any) -> Any:
        start = time.process_time()
        result = call(*arguments)
        spent[name] += 1e3 * (time.process_time() - start)
        return result

    host.step(run)
    return {**spent, "all": sum(spent.values())}


def profiled(host: Host, top: int = 8) -> list[dict[str, Any]]:
    """Return the functions with the most own time in the controller's calls, with their share."""
    profiler = cProfile.Profile()
    for _ in range(PROFILED):
        host.step(lambda _, call, *arguments: profiler.runcall(call, *arguments))
    found = pstats.Stats(profiler).stats  # (file, line, name): (primitive calls, calls, own time, ...)
    total = sum(entry[2] for entry in found.values())
    return [
        {
            "function": name if file == "~" else f"{Path(file).name}: {name}",
            "calls_a_step": entry[1] / PROFILED,
            "share": entry[2] / total,
        }
        for (file, _, name), entry in sorted(found.items(), key=lambda item: -item[1][2])[:top]
    ]


def resident() -> float:
    """Return the resident memory of this process in MB."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def saved_and_loaded(host: Host) -> dict[str, float]:
    """Save and load the controller's state, through JSON as a checkpoint would."""
    start = time.process_time()
    text = json.dumps(host.controller.state_dict())
    saved = time.process_time()
    host.controller.load_state_dict(json.loads(text))
    loaded = time.process_time()
    return {"megabytes": len(text) / 1e6, "save_seconds": saved - start, "load_seconds": loaded - saved}


def measure(case: str, pool: int, steps: int) -> dict[str, Any]:
    """Run a case in this process and return its figures."""
    start = resident()
    host = Host(case, pool)
    built = resident()
    times, memory = [], []
    for _ in range(steps):
        times.append(timed(host))
        memory.append(resident())
    candidates = host.select.seen / steps
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6
    return {
        "steps": steps,
        "candidates_a_step": candidates,
        "prompts_visited": host.controller.ledger.prompts_visited,
        "milliseconds": {
            name: {
                quantile: float(np.quantile(values, q)) for quantile, q in (("median", 0.5), ("p95", 0.95))
            }
            for name in times[0]
            for values in [[spent[name] for spent in times[WARM:]]]
        },
        "resident_megabytes": {
            "start": start,
            "built": built,
            "early": memory[min(EARLY, steps) - 1],
            "last": memory[-1],
            "peak": peak,
        },
        "state": saved_and_loaded(host),
        "profile": profiled(host),
    }


def main() -> None:
    """Measure every case, each in a process of its own, print and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument(
        "--steps", type=int, help="of every case; by default 300 for the small pool, 1,000 for the large"
    )
    parser.add_argument("--case", nargs=2, metavar=("CASE", "POOL"), help="this case alone, in this process")
    options = parser.parse_args()
    if options.case:
        case, pool = options.case
        options.out.write_text(json.dumps(measure(case, int(pool), options.steps or STEPS[int(pool)])))
        return
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    cases: dict[str, dict[str, Any]] = {case: {} for case in CASES}
    for pool in COLUMNS:
        for case in CASES:
            command = [
                sys.executable,
                __file__,
                "--out",
                str(options.out),
                "--steps",
                str(options.steps or STEPS[pool]),
            ]
            subprocess.run([*command, "--case", case, str(pool)], check=True, env=environment)
            cases[case][str(pool)] = json.loads(options.out.read_text())
            print(case, pool, json.dumps(cases[case][str(pool)]["milliseconds"]["all"]), flush=True)
    result = {
        "command": "python benchmarks/load.py --out load.json",
        "prompts": PROMPTS,
        "rollouts": PROMPTS * SIZE,
        "columns": {str(pool): columns for pool, columns in COLUMNS.items()},
        "cases": cases,
    }
    options.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
