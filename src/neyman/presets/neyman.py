"""Our own: choose prompts by the belief, look at each, and give the rest of the budget where it is worth most.

Two forms of one idea. With a fixed spend, groups may have any size: posterior sampling over the pool, a probe of
every chosen prompt, then counts by marginal value, over the prompts in play and fresh ones. With ``group_size``
only full groups of that size train: the cheapest groups by the belief, given up once their rollouts buy more
elsewhere.
"""

from __future__ import annotations

from neyman import beliefs, rules
from neyman.beliefs import Belief
from neyman.presets._objective import objective
from neyman.presets._preset import Preset
from neyman.strategy import Strategy


def build(
    *,
    group_size: int | None = None,
    upper: int = 32,
    noise: float = 3.0,
    recounts: int = 1,
    schedule: tuple[int, ...] = (1, 2, 4),
    among: float = 8.0,
    prompts: float = 1.5,
    revisit: float = 2.8,
    belief: Belief | None = None,
    estimator: str = "rloo",
) -> Strategy:
    """Return `neyman`.

    Args:
        group_size: train full groups of this size only; None lets every group have its own.
        upper: most rollouts per prompt, where groups have their own size.
        noise: of a prompt's gradient from two rollouts (`neyman.rules.MarginalValue`).
        recounts: times that the rest of the budget is given out, each in the light of all results so far.
        schedule: prefix lengths at which a group of ``group_size`` may be given up.
        among: candidates per prompt that is chosen.
        prompts: prompts probed, as a multiple of those that the host brings.
        revisit: passes over the pool within which every prompt is looked at again.
        belief: what is thought of each prompt; None takes the default.
        estimator: how advantages are computed.
    """
    if group_size is not None:
        cheapest = rules.LeastWaste(among=among, looks=schedule)
        return Strategy(
            name="neyman",
            select=rules.Revisit(cheapest, passes=revisit),
            belief=beliefs.default() if belief is None else belief,
            allocate=rules.Each(group_size),
            verdict=rules.WorthVerdict(schedule=schedule),
            close="fixed_train",
            over_provision="belief",
            estimator=estimator,
        )
    least = 2 if objective(estimator) == "rloo" else 3
    promising = rules.HighestVariance(among=among)
    return Strategy(
        name="neyman",
        select=rules.Revisit(promising, passes=revisit),
        belief=beliefs.default() if belief is None else belief,
        allocate=rules.MarginalValue(noise=noise, lower=least, upper=upper, probe=least, recounts=recounts),
        prompts=prompts,
        estimator=estimator,
    )


PRESET = Preset(
    name="neyman",
    build=build,
    place=210,
    parts=("most promising, none lost", "default", "by marginal value", "by worth"),
    source="ours",
    small={"upper": 64},
)
