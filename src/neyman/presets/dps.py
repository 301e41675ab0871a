"""DPS: a hidden Markov model per prompt, and the prompts whose next group is most likely to be mixed.

Source: DPS (dynamics-predictive sampling) and its public code.
"""

from __future__ import annotations

from neyman import beliefs, rules
from neyman.presets._preset import Preset
from neyman.rules import Select
from neyman.strategy import Strategy


def order(*, among: float, entropy: float, revisit: float | None) -> Select:
    """Return DPS's selection, with a floor under it unless ``revisit`` is None."""
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
        among: candidates per prompt that is chosen (the public script's ``candidate_ratio``).
        decay: what the transition counts keep per step (the public script's .7).
        prior: of the transitions: "even", "progress", "stability" or "local".
        entropy: weight of the states' entropy in the score; 0 is the public script's mode.
        revisit: passes over the pool within which every prompt is looked at again; None, as published, lets part of
            the pool starve.
    """
    return Strategy(
        name="dps",
        select=order(among=among, entropy=entropy, revisit=revisit),
        allocate=rules.Each(group_size),
        belief=beliefs.StateDynamics(decay=decay, prior=prior, size=group_size or 8),
    )


PRESET = Preset(
    name="dps",
    build=build,
    place=110,
    parts=("most likely mixed", "hidden Markov model", "the same", "none"),
    source="DPS",
)
