"""MoPPS: selection of the candidates whose posterior draw of the success rate is nearest to a target.

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
        among: candidates per chosen prompt (the public code's ``ts_ratio``).
        target: success rate to aim at.
        explore: "thompson" draws from the posterior, "mean" takes its mean.
        band: success rates that count as equally good, e.g. (.3, .7) as in the public code's "threshold" mode; other
            prompts follow by their distance to the target.
        discount: share of a prompt's evidence that its next visit leaves (the public code's ``lambda``).
        fade: share of all evidence that a step leaves. The public code decays at visits only (``fade=1.0``), so that
            its posterior of a prompt that is not drawn any more never widens.
    """
    return Strategy(
        name="mopps",
        select=rules.ClosestTo(target, among=among, explore=explore, band=band),
        allocate=rules.Each(group_size),
        belief=beliefs.Counts(discount=discount, fade=fade, prior=(1.0, 1.0)),
    )


PRESET = Preset(
    "mopps",
    build,
    "drawn rate nearest to 1/2 | discounted Beta | the same | none | arXiv 2507.04632",
    place=50,
    # Evidence fades by a hundredth a step, so a settled prompt looks open again after some hundred steps.
    exceptions={"any": {"retest_within": 600}},
)
