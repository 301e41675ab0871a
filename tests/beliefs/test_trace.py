"""The figures on the real training trace; skipped where the trace is not at hand."""

import os
from pathlib import Path

import numpy as np
import pytest

from neyman.beliefs import BinomialResidual, Counts

TRACE = Path(os.environ.get("NEYMAN_DATA", "data")) / "dsr_sub_trace.parquet"


def log_losses(belief, successes, seed):
    """Return the log-loss per rollout of the first pass and of the later ones, scored before each update."""
    rng = np.random.default_rng(seed)
    n, passes = successes.shape
    losses = np.zeros((passes, n))
    for visit in range(passes):
        order = rng.permutation(n)
        for start in range(0, n, 128):
            rows = order[start : start + 128]
            s = successes[rows, visit]
            p = np.clip(belief.predict(rows)[0], 1e-12, 1 - 1e-12)
            losses[visit, rows] = -(s * np.log(p) + (8 - s) * np.log1p(-p)) / 8
            belief.update(rows, s, np.full(len(rows), 8))
            belief.advance()
    return losses[0].mean(), losses[1:].mean()


@pytest.mark.slow
def test_without_any_features_the_default_predicts_the_next_visit_better_than_counts():
    # With embeddings: benchmarks/beliefs.py.
    if not TRACE.exists():
        pytest.skip(f"no trace at {TRACE}: set NEYMAN_DATA to the folder that has dsr_sub_trace.parquet")
    parquet = pytest.importorskip("pyarrow.parquet")
    table = parquet.read_table(TRACE, columns=["prompt_id", "visit", "successes"]).to_pandas()
    wide = table[table.visit < 20].pivot(index="prompt_id", columns="visit", values="successes").dropna()
    successes = wide.to_numpy(np.int64)
    mine = np.array([log_losses(BinomialResidual(), successes, seed) for seed in range(3)])
    counts = np.array([log_losses(Counts(), successes, seed) for seed in range(3)])
    assert mine[:, 1].mean() <= 0.3515
    gain = (counts - mine)[:, 1]
    assert gain.mean() - 3 * gain.std(ddof=1) / np.sqrt(3) > 0.001
