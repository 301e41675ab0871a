"""Advice of a replay: one sentence on early verdicts, with the condition under which it holds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from neyman.report._stats import Interval, mean_interval

_PROBING, _FULL = "sara", "dynamic-sampling"


def saving(runs: Mapping[str, Mapping[int, Mapping[str, Any]]]) -> Interval | None:
    """Share of rollouts per effective group that early verdicts saved against dynamic sampling.

    1 - waste(sara) / waste(dynamic sampling), paired by seed, from strategy -> seed -> figures. None where not both
    were replayed, or one bought no group.
    """
    waste = [
        {seed: one["waste_factor_full"] for seed, one in runs.get(name, {}).items()}
        for name in (_PROBING, _FULL)
    ]
    shared = [seed for seed in sorted(waste[0]) if waste[0][seed] and waste[1].get(seed)]
    return mean_interval([1.0 - waste[0][seed] / waste[1][seed] for seed in shared]) if shared else None


def advice(
    runs: Mapping[str, Mapping[int, Mapping[str, Any]]],
    difficulty: Mapping[str, Any] | None,
    *,
    group_size: int,
) -> str:
    """Advise whether early verdicts pay on these prompts, from the replay where it has both strategies.

    Without them the advice follows from the difficulty of the recorded prompts: `neyman.replay.SizePlan` at this group
    size, as a dict; None where the record's visits are smaller than a group.
    """
    measured = saving(runs)
    if difficulty is None:
        if measured is None:
            return (
                f"No visit holds {group_size} rollouts, so groups of that size cannot be judged: choose a group size "
                "that was recorded."
            )
        would = _would(measured, "in this replay")
        return f"No visit holds {group_size} rollouts, so the yield condition is unknown: early verdicts {would}."
    pool = (
        f"{100 * difficulty['never']['mean']:.0f} % of your groups of {group_size} are never solved and "
        f"{100 * difficulty['always']['mean']:.0f} % always solved"
    )
    condition = f"the yield condition {'holds' if difficulty['yield_holds'] else 'fails'}"
    if measured is not None:
        return f"{pool}: early verdicts {_would(measured, 'against dynamic sampling')}; {condition}."
    expected = difficulty["ways"]["sara"]["saving"]
    mean, low, high = (
        np.nan if expected[name] is None else expected[name] for name in ("mean", "low", "high")
    )
    against = "against dynamic sampling, as expected from the counts"
    return f"{pool}: early verdicts {_would(Interval(mean, low, high, 1), against)}; {condition}."


def _would(share: Interval, against: str) -> str:
    if not np.isfinite(share.mean):
        return f"would find no effective group {against}"
    half = (share.high - share.low) / 2.0
    digits = 1 if half < 0.005 else 0  # a small error is no zero
    error = f" ± {100 * half:.{digits}f} %" if np.isfinite(half) else ""
    if half > 0 and not share.excludes_zero:
        unsure = "which is not distinguishable from no saving"
        return f"would save {100 * share.mean:.{digits}f} %{error} of rollouts {against}, {unsure}"
    verb, rest = ("save", "of") if share.mean >= 0 else ("cost", "more")
    return f"would {verb} {100 * abs(share.mean):.{digits}f} %{error} {rest} rollouts {against}"
