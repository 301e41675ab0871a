"""Measure the cost of neyman beside the training: TRL's step time with and without it, and the import.

    python benchmarks/overhead.py --out overhead.json

Trainers take turns in one run, so that the ratio of the medians depends little on the machine's load. The
policy is the tiny one, whose steps are so short that the ratio is an upper bound for any real model.
benchmarks/load.py measures a step's decisions alone, for pools of any size.
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

import neyman

ROUNDS, STEPS = 5, 12


def step_seconds(strategy: str | None) -> float:
    """Train a few steps and return the CPU seconds of one; None is the stock trainer."""
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
        start = time.process_time()  # wall time would include other jobs
        trainer.train()
        return (time.process_time() - start) / STEPS


def import_seconds(module: str) -> float:
    """Return the median time to import a module in a fresh interpreter, less the interpreter's own start."""

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
        "import_seconds": {name: import_seconds(name) for name in ("numpy", "neyman")},
    }
    options.out.write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
