"""Score how well each belief predicts the next visit of a real training trace.

Replays the trace 128 prompts a step, each pass over the pool in a fresh random order. Before the belief gets a visit,
its predicted success rate is scored by the log-loss per rollout. Orders are paired: every belief sees the
same ones. Embeddings are cached under --cache, so that the second run takes seconds.

    OMP_NUM_THREADS=1 python benchmarks/beliefs.py --data DIR --orders 5 --out beliefs.json
"""

from __future__ import annotations

import argparse
import json
import platform
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from pyarrow import parquet
from scipy import stats

from neyman import beliefs
from neyman.beliefs.embeddings import embed_prompts, prompt_features

ROLLOUTS, BATCH, REFERENCE = 8, 128, "plain counts"


def load_trace(path: Path, passes: int) -> tuple[np.ndarray, list[str]]:
    """Return successes per prompt and visit, shape (P, passes), and the prompts."""
    table = parquet.read_table(path).to_pandas()
    table = table[table.visit < passes]
    if set(table.trials.unique()) != {ROLLOUTS}:
        raise SystemExit(f"{path} must have {ROLLOUTS} rollouts in every visit")
    wide = table.pivot(index="prompt_id", columns="visit", values="successes").dropna()
    prompts = table.drop_duplicates("prompt_id").set_index("prompt_id").prompt
    return wide.to_numpy(np.int64), [str(prompts[item]) for item in wide.index]


def replay(belief: beliefs.Belief, successes: np.ndarray, seed: int) -> tuple[np.ndarray, float]:
    """Return the mean log-loss per rollout of each pass, and milliseconds per step."""
    rng = np.random.default_rng(seed)
    n, passes = successes.shape
    losses, steps, spent = np.zeros((passes, n)), 0, 0.0
    for visit in range(passes):
        order = rng.permutation(n)
        for start in range(0, n, BATCH):
            rows = order[start : start + BATCH]
            ids, s = rows.tolist(), successes[rows, visit]
            began = time.process_time()
            mean = np.clip(belief.predict(ids)[0], 1e-12, 1 - 1e-12)
            belief.update(ids, s, np.full(len(rows), ROLLOUTS))
            belief.advance()
            spent, steps = spent + time.process_time() - began, steps + 1
            losses[visit, rows] = -(s * np.log(mean) + (ROLLOUTS - s) * np.log1p(-mean)) / ROLLOUTS
    return losses.mean(axis=1), 1000.0 * spent / steps


def candidates(prompts: list[str], cache: Path) -> dict[str, Callable[[], beliefs.Belief]]:
    """Return a factory per belief; each registers the pool's features."""
    plain = embed_prompts(prompts, cache_dir=cache)
    full = prompt_features(prompts, cache_dir=cache)
    ids = list(range(len(prompts)))

    def make(kind: Any, features: np.ndarray | None, **options: Any) -> Callable[[], beliefs.Belief]:
        def build() -> beliefs.Belief:
            belief: beliefs.Belief = kind(**options)
            belief.register(ids, features)
            return belief

        return build

    return {
        "published GP (median bandwidth, eps .05)": make(beliefs.PublishedGP, plain),
        "published GP (bandwidth .4)": make(beliefs.PublishedGP, plain, bandwidth=0.4),
        "published GP (median, low rank)": make(beliefs.PublishedGP, plain, dense_limit=0),
        "ridge regression (penalty 1)": make(beliefs.Ridge, plain),
        # The best of 1, 10, 30, 100, 300 and 1,000 on this trace's first pass: chosen in hindsight.
        "ridge regression (penalty 30)": make(beliefs.Ridge, plain, penalty=30.0),
        REFERENCE: make(beliefs.Counts, None, fade=1.0),
        "counts with GP prior": make(beliefs.CountsWithGP, full),
        "binomial residual, no features": make(beliefs.BinomialResidual, None),
        "binomial residual, embeddings only": make(beliefs.BinomialResidual, plain),
        "binomial residual, embeddings and length": make(beliefs.BinomialResidual, full),
        "default (that, slow and fast drift averaged)": make(beliefs.default, full),
    }


def interval(values: np.ndarray) -> dict[str, float]:
    """Return the mean and a 95 % t interval's half width over orders."""
    half = stats.sem(values) * stats.t.ppf(0.975, len(values) - 1) if len(values) > 1 else float("nan")
    return {"mean": float(values.mean()), "half_width": float(half)}


def summarise(losses: dict[str, np.ndarray], speed: dict[str, float]) -> dict[str, Any]:
    """Return means, and differences to plain counts paired by order."""
    out: dict[str, Any] = {}
    for name, table in losses.items():
        row: dict[str, Any] = {"ms_per_step": speed[name], "per_pass": table.mean(axis=0).round(5).tolist()}
        for part, columns in (("first", slice(0, 1)), ("later", slice(1, None))):
            mine, base = table[:, columns].mean(axis=1), losses[REFERENCE][:, columns].mean(axis=1)
            row[part] = interval(mine)
            row[f"{part}_minus_counts"] = interval(mine - base)
        out[name] = row
    return out


def main() -> None:
    """Run all beliefs over all orders, print the table, write JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="folder with dsr_sub_trace.parquet")
    parser.add_argument("--orders", type=int, default=5)
    parser.add_argument("--passes", type=int, default=20)
    parser.add_argument("--out", type=Path, help="where to write JSON")
    parser.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir()) / "neyman-cache")
    args = parser.parse_args()
    if args.orders < 1 or args.passes < 2:
        parser.error("--orders must be >= 1 and --passes >= 2")
    successes, prompts = load_trace(args.data / "dsr_sub_trace.parquet", args.passes)
    seeds, losses, speed = list(range(args.orders)), {}, {}
    for name, build in candidates(prompts, args.cache).items():
        runs = [replay(build(), successes, seed) for seed in seeds]
        losses[name] = np.array([run[0] for run in runs])
        speed[name] = float(np.mean([run[1] for run in runs]))
    table = summarise(losses, speed)
    print(
        f"{len(prompts)} prompts, {args.passes} passes, orders (seeds) {seeds}; log-loss per rollout, 95 % interval"
    )
    print(
        f"{'belief':52s} {'first pass':>10s} {'later':>8s}   {'first - counts':>17s}   {'later - counts':>17s}  cpu ms"
    )
    for name, row in table.items():
        first, later = row["first_minus_counts"], row["later_minus_counts"]
        print(
            f"{name:52s} {row['first']['mean']:10.4f} {row['later']['mean']:8.4f}   "
            f"{first['mean']:+8.4f} ± {first['half_width']:.4f}   "
            f"{later['mean']:+8.4f} ± {later['half_width']:.4f}  {row['ms_per_step']:6.1f}"
        )
    if args.out:
        record = {
            "command": f"python benchmarks/beliefs.py --data DIR --orders {args.orders} --passes {args.passes}",
            "seeds": seeds,
            "prompts": len(prompts),
            "batch": BATCH,
            "python": platform.python_version(),
            "numpy": np.__version__,
            "beliefs": table,
        }
        args.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
