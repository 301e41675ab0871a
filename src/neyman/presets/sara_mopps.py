"""SARA's verdicts over MoPPS's order of prompts.

Source: SARA, arXiv 2607.26253, which reports its verdicts over this order.
"""

from __future__ import annotations

from neyman.presets import sara
from neyman.strategy import Strategy


def build(
    *,
    group_size: int | None = None,
    threshold: float = 0.45,
    schedule: tuple[int, ...] | None = None,
    min_probe: int = 2,
    after_commit: str = "complete",
    speculate: bool = False,
    variant: str = "calibrated",
) -> Strategy:
    """Return `sara+mopps`; the options are those of `sara`."""
    return sara.build(
        group_size=group_size,
        threshold=threshold,
        schedule=schedule,
        min_probe=min_probe,
        after_commit=after_commit,
        speculate=speculate,
        order="mopps",
        variant=variant,
    )
