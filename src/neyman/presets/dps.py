"""DPS: selection of the prompts whose next group is most likely mixed, by a hidden Markov model per prompt.

Source: DPS (dynamics-predictive sampling) and its public code.
"""

from __future__ import annotations

from neyman import beliefs, rules
from neyman.presets._preset import Preset
from neyman.rules import Select
from neyman.strategy import Strategy


def order(*, among: float, entropy: float, revisit: float | None) -> Select:
    """Return DPS's selection, which draws every prompt again within ``revisit`` passes unless that is None."""
    most = rules.MostMixed(among=among, entropy=entropy)
    return most if revisit is None else rules.Revisit(most, passes=revisit)


def build(
    *,
    group_size: int | None = None,
    among: float = 32.0,
    decay: float = 0.7,
    prior: str = "even",
    entropy: float = 0.0,
    revisit: float | None = 2.5,
) -> Strategy:
    """Return `dps`.

    Args:
        group_size: rollouts per prompt; None divides the budget by the number of prompts.
        among: candidates per chosen prompt (the public script's ``candidate_ratio``).
        decay: share of the transition counts that a step leaves (the public script's .7).
        prior: of the transitions: "even", "progress", "stability" or "local".
        entropy: weight of the states' entropy in the score; 0 in the public script.
        revisit: passes over the pool within which every prompt is drawn again; None, as published, never returns to
            part of the pool.
    """
    return Strategy(
        name="dps",
        select=order(among=among, entropy=entropy, revisit=revisit),
        allocate=rules.Each(group_size),
        belief=beliefs.StateDynamics(decay=decay, prior=prior, size=group_size or 8),
    )


PRESET = Preset("dps", build, "most likely mixed | hidden Markov model | the same | none | DPS", place=110)
