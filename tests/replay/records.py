"""Hand-made records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from neyman.replay import Trace


def build_trace(visits: Sequence[Sequence[tuple[int, int]]], **options: Any) -> Trace:
    """Return a trace from (successes, trials) of each visit of each prompt; the v-th visit is at v passes."""
    flat = [visit for prompt in visits for visit in prompt]
    lengths = [len(prompt) for prompt in visits]
    return Trace(
        first=np.r_[0, np.cumsum(lengths)],
        time=np.concatenate([np.arange(n, dtype=np.float64) for n in lengths]),
        successes=np.array([s for s, _ in flat], dtype=np.int64),
        trials=np.array([n for _, n in flat], dtype=np.int64),
        passes=len(flat) / len(visits),
        **options,
    )


def drifting(prompts: int = 60, visits: int = 6, trials: int = 8, seed: int = 0) -> Trace:
    """Return a trace of U-shaped success rates that drift upwards."""
    rng = np.random.default_rng(seed)
    rate = rng.beta(0.5, 0.5, (prompts, 1)) + 0.02 * np.arange(visits)
    counts = rng.binomial(trials, np.clip(rate, 0.0, 1.0))
    return build_trace([[(int(s), trials) for s in row] for row in counts])
