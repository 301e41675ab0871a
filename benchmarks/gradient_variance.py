"""Measure gradient variance under VIP's counts over uniform ones, at the lab's starting policies: RLOO, 32 prompts x 4.

``python benchmarks/gradient_variance.py --out FILE`` takes about two minutes of one core once the policies exist.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from neyman.lab import REGIMES, Experiment, starting_policy
from neyman.lab.gradient_variance import variance_ratio
from neyman.lab.task import draw_prompts


def main() -> None:
    """Measure every regime and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--replicates", type=int, default=60)
    parser.add_argument("--batches", type=int, default=4)
    parser.add_argument("--group-sizes", type=int, nargs="+", default=[4])
    arguments = parser.parse_args()
    rows = []
    for regime in REGIMES:
        prompts, _ = draw_prompts(1024, 1)
        for size in arguments.group_sizes:
            experiment = Experiment(regime=regime, group_size=size)
            found = variance_ratio(
                starting_policy(experiment.warm_start),
                prompts,
                experiment=experiment,
                batches=arguments.batches,
                replicates=arguments.replicates,
            )
            rows.append(
                {
                    "regime": regime,
                    "group_size": size,
                    "measured": found.measured,
                    "error": found.error,
                    "predicted": found.predicted,
                    "bias_z": found.bias,
                }
            )
            print(
                f"{regime} n={size}: {found.measured:.3f} +- {found.error:.3f}, predicted {found.predicted:.3f}, "
                f"bias |z| <= {found.bias:.1f}",
                flush=True,
            )
    if arguments.out is not None:
        arguments.out.write_text(json.dumps({"rows": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
