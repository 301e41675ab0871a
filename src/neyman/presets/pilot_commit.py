"""Pilot-Commit: a pilot of each prompt, and the full group for those whose pass rate lies within a band.

Source: Pilot-Commit, arXiv 2605.26606.
"""

from __future__ import annotations

from neyman import beliefs, rules
from neyman.errors import ArgumentError
from neyman.presets._preset import Preset
from neyman.strategy import Strategy


def build(
    *,
    pilot: int | None = None,
    commit: int | None = None,
    pass_lower: float = 0.125,
    pass_upper: float = 0.25,
    solved: float = 1.0,
    rest_failed: bool = True,
    rest: float = 2.0,
) -> Strategy:
    """Return `pilot-commit`.

    With ``max_age=4`` passed pilots that a step does not need are carried over to later steps, as published.

    Args:
        pilot: rollouts of a pilot; None takes a quarter of the group, at least 2. Published: 32 or 16.
        commit: further rollouts of a prompt that passed; None completes the average group of the host's batch.
            Published: 96 or 48.
        pass_lower: least pass rate of a pilot.
        pass_upper: least failure rate of a pilot. Published: pass rates in [.125, .75].
        solved: least pass rate at which a prompt rests.
        rest_failed: whether prompts without a success rest too. The public code pilots them in every epoch.
        rest: length of the rest after a prompt's last visit, in passes over the pool. Other prompts return after
            about one pass.
    """
    if commit is not None and pilot is None:
        raise ArgumentError(f"commit={commit} needs pilot: give both, e.g. pilot=16, commit=48")
    size = None if commit is None or pilot is None else pilot + commit
    return Strategy(
        name="pilot-commit",
        select=rules.Rest(rules.InOrder(), solved=solved, failed=0.0 if rest_failed else -1.0, passes=rest),
        belief=beliefs.Counts(discount=0.0, fade=1.0, prior=(1.0, 1.0)),  # the last visit alone
        allocate=rules.Each(size),
        verdict=rules.Screen(pilot, lower=pass_lower, upper=pass_upper),
        close="fixed_train",
    )


PRESET = Preset(
    "pilot-commit",
    build,
    "those not at rest | last visit | full groups within a band | pass rate of the pilot | arXiv 2605.26606",
    place=100,
    small={"pilot": 4, "commit": 4},
)
