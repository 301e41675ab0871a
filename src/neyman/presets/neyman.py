"""Our own: selection by the belief, a probe of each prompt, and the rest of the budget by marginal value.

It has two forms. With a fixed spend, groups may have any size: posterior sampling over the pool, a probe of every
chosen prompt, then counts by marginal value over the probed prompts and further ones. With ``group_size`` only full
groups of that size train: those with the least expected cost, given up once their rollouts buy more elsewhere.
"""

from __future__ import annotations

from neyman import beliefs, rules
from neyman.beliefs import Belief
from neyman.formulas import MINIMUM_GROUP_SIZE
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
        group_size: size of the full groups that train; None lets groups have any size.
        upper: most rollouts per prompt, without ``group_size``.
        noise: variance of a prompt's gradient from two rollouts (`neyman.rules.MarginalValue`).
        recounts: portions in which the rest of the budget is allocated, each with all results so far.
        schedule: prefix lengths at which a group of ``group_size`` may be given up.
        among: candidates per chosen prompt.
        prompts: prompts to probe, as a multiple of those in the host's batch.
        revisit: passes over the pool within which every prompt is drawn again.
        belief: predicts each prompt's success rate; None takes the default.
        estimator: of the advantages; the allocation minimises its variance.
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
    least = MINIMUM_GROUP_SIZE[objective(estimator)]
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
    "neyman", build, "most promising, none lost | default | by marginal value | by worth | ours", place=210
)
