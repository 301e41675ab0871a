"""What neyman costs beside the training: TRL's step time with and without it, and a step's decisions alone.

    python benchmarks/overhead.py --out overhead.json

Trainers take turns in one run, so that the ratio of the medians does not depend on the machine's load. The
policy is the tiny one, whose steps are so short that the ratio is an upper bound for any real model.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import numpy as np

import neyman

ROUNDS, STEPS = 5, 12


def step_seconds(strategy: str | None) -> float:
    """Train a few steps and return the median step time; None is the stock trainer."""
    import torch
    from trl import GRPOConfig, GRPOTrainer

    from neyman.tasks import ExactMatch, reward_function, to_dataset
    from neyman.tasks.rules import rules_task
    from neyman.tasks.tiny_policy import load_policy, rules_policy
    from neyman.trl import adaptive

    torch.set_num_threads(1)
    model, tokenizer = load_policy(rules_policy("hard"))
    with tempfile.TemporaryDirectory() as out:
        args = GRPOConfig(
            output_dir=out, per_device_train_batch_size=128, num_generations=8, max_completion_length=6,
            learning_rate=1e-4, max_steps=STEPS, logging_steps=1, report_to="none", save_strategy="no",
            use_cpu=True, bf16=False, disable_tqdm=True,
        )  # fmt: skip
        extra: dict[str, Any] = {} if strategy is None else {"strategy": neyman.preset(strategy)}
        trainer = (GRPOTrainer if strategy is None else adaptive(GRPOTrainer))(
            model=model, reward_funcs=reward_function(ExactMatch()), args=args, processing_class=tokenizer,
            train_dataset=to_dataset(rules_task("hard").train), **extra,
        )  # fmt: skip
        trainer.train()
    times = [entry["step_time"] for entry in trainer.state.log_history if "step_time" in entry]
    return statistics.median(times[2:])  # the first steps warm caches


def decisions(pool: int, prompts: int = 512, size: int = 8) -> dict[str, float]:
    """Return the milliseconds that a step's decisions take, by call, for the default belief with features."""
    rng = np.random.default_rng(0)
    strategy = neyman.preset("vip", lower=4, upper=32)
    controller = neyman.Controller(strategy, neyman.Budget(rollouts=prompts * size), pool=range(pool))
    controller.strategy.belief.register(list(range(pool)), rng.normal(size=(pool, 384)))
    rates = rng.beta(0.4, 0.4, pool)
    spent: dict[str, list[float]] = {"begin": [], "ask": [], "tell": [], "finish": []}

    def timed(name: str, call: Any, *arguments: Any) -> Any:
        start = time.perf_counter()
        result = call(*arguments)
        spent[name].append(1e3 * (time.perf_counter() - start))
        return result

    for _ in range(8):
        timed("begin", controller.begin, rng.choice(pool, prompts, replace=False).tolist())
        requests = timed("ask", controller.ask)
        outcomes = [
            neyman.Outcome(
                rollout_id=i, prompt_id=q.prompt_id, reward=float(rng.random() < rates[q.prompt_id])
            )
            for q in requests
            for i in q.rollout_ids
        ]
        timed("tell", controller.tell, outcomes)
        timed("finish", controller.finish)
    return {name: statistics.median(values[2:]) for name, values in spent.items()}


def import_seconds(module: str) -> float:
    """Return the median time to import a module in a fresh interpreter, the interpreter's own start taken off."""

    def once(code: str) -> float:
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True)
        return time.perf_counter() - start

    return statistics.median(once(f"import {module}") - once("pass") for _ in range(ROUNDS))


def main() -> None:
    """Measure, print and write everything."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    times: dict[str, list[float]] = {"stock": [], "uniform": [], "vip": []}
    for _ in range(ROUNDS):
        for name, values in times.items():
            values.append(step_seconds(None if name == "stock" else name))
    stock = statistics.median(times["stock"])
    result = {
        "command": "python benchmarks/overhead.py --out overhead.json",
        "step_time_ratio": {name: statistics.median(values) / stock for name, values in times.items()},
        "stock_step_seconds": stock,
        "decision_milliseconds": {str(pool): decisions(pool) for pool in (1_000, 17_000)},
        "import_seconds": {name: import_seconds(name) for name in ("numpy", "neyman")},
    }
    options.out.write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
