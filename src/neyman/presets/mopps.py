"""MoPPS: a Beta per prompt, and the candidates whose drawn success rate is nearest to a target.

Source: MoPPS, arXiv 2507.04632.
"""

from __future__ import annotations

from neyman import beliefs, rules
from neyman.presets._preset import Preset
from neyman.strategy import Strategy


def build(
    *,
    group_size: int | None = None,
    among: float = 8.0,
    target: float = 0.5,
    explore: str = "thompson",
    band: tuple[float, float] | None = None,
    discount: float = 0.5,
    fade: float = 0.99,
) -> Strategy:
    """Return `mopps`.

    Args:
        group_size: rollouts per prompt; None divides the budget by the number of prompts.
        among: candidates per prompt that is chosen (the public code's ``ts_ratio``).
        target: the success rate looked for.
        explore: "thompson" draws from the posterior, "mean" takes its mean.
        band: success rates that are all as good, e.g. (.3, .7) as in the public code's "threshold" mode; what is left
            goes to those nearest to the target.
        discount: what earlier evidence keeps at a prompt's next visit (the public code's ``lambda``).
        fade: what all evidence keeps per step. The public code decays on visits only, so what it believed of a
            prompt that it stopped drawing never widens (``fade=1.0``).
    """
    return Strategy(
        name="mopps",
        select=rules.ClosestTo(target, among=among, explore=explore, band=band),
        allocate=rules.Each(group_size),
        belief=beliefs.Counts(discount=discount, fade=fade, prior=(1.0, 1.0)),
    )


PRESET = Preset(
    name="mopps",
    build=build,
    place=50,
    parts=("drawn rate nearest to 1/2", "discounted Beta", "the same", "none"),
    source="arXiv 2507.04632",
    # Evidence fades by a hundredth a step, so a settled prompt looks open again after some hundred steps.
    exceptions={"any": {"retest_within": 600}},
)
