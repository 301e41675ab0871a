"""SARA: commit a group once its outcomes are mixed, abandon it when it is expected to stay uniform.

Source: SARA, arXiv 2607.26253.
"""

from __future__ import annotations

from neyman import rules
from neyman.strategy import Strategy


def build(
    *,
    group_size: int | None = None,
    threshold: float = 0.45,
    schedule: tuple[int, ...] | None = None,
    min_probe: int = 2,
    after_commit: str = "complete",
    speculate: bool = False,
) -> Strategy:
    """Return `sara`."""
    verdict = rules.EarlyVerdict(
        threshold, schedule=schedule, min_probe=min_probe, after_commit=after_commit, speculate=speculate
    )
    return Strategy(name="sara", allocate=rules.Each(group_size), verdict=verdict, close="fixed_train")
