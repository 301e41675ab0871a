"""Published methods by name, one file each: every one is one choice of the four parts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any

from neyman.errors import ArgumentError
from neyman.presets import (
    ar3po,
    curriculum,
    dps,
    dynamic_sampling,
    dynamo,
    greso,
    inverse_accuracy,
    inverse_variance,
    knapsack,
    mopps,
    moving_average,
    neyman,
    pilot_commit,
    polaris,
    reinforce_ada,
    ridge,
    sara,
    sara_dps,
    sara_mopps,
    speed,
    uniform,
    vip,
)
from neyman.strategy import Strategy

PRESETS: dict[str, Callable[..., Strategy]] = {
    "uniform": uniform.build,
    "vip": vip.build,
    "sara": sara.build,
    "dynamo": dynamo.build,
    "dynamic-sampling": dynamic_sampling.build,
    "mopps": mopps.build,
    "polaris": polaris.build,
    "speed": speed.build,
    "reinforce-ada": reinforce_ada.build,
    "ar3po": ar3po.build,
    "pilot-commit": pilot_commit.build,
    "dps": dps.build,
    "greso": greso.build,
    "curriculum": curriculum.build,
    "inverse-accuracy": inverse_accuracy.build,
    "inverse-variance": inverse_variance.build,
    "ridge": ridge.build,
    "moving-average": moving_average.build,
    "knapsack": knapsack.build,
    "sara+dps": sara_dps.build,
    "sara+mopps": sara_mopps.build,
    "neyman": neyman.build,
}

_COMMON = {item.name for item in fields(Strategy)}


def preset(name: str, **options: Any) -> Strategy:
    """Return a published method by name.

    Args:
        name: one of `PRESETS`, e.g. "uniform", "vip", "sara", "dynamo" or "neyman"; docs/methods.md has them all.
        options: knobs of the method (e.g. ``lower``, ``upper``, ``threshold``), and any part of `Strategy` to
            replace (e.g. ``belief``, ``close``, ``estimator``, ``modulation``).

    Raises:
        ArgumentError: an unknown name or option; the message lists the legal ones.

    Examples:
        >>> preset("sara", group_size=8).verdict.looks(8)
        (4, 8)
    """
    if name not in PRESETS:
        raise ArgumentError(f"preset must be one of {', '.join(map(repr, PRESETS))}, got {name!r}")
    build = PRESETS[name]
    own = set(build.__kwdefaults__ or {})
    unknown = set(options) - own - _COMMON
    if unknown:
        raise ArgumentError(
            f"preset {name!r} has no option {', '.join(sorted(unknown))}; its own are "
            f"{', '.join(sorted(own)) or 'none'}, and every part of Strategy: {', '.join(sorted(_COMMON - {'name'}))}"
        )
    strategy = build(**{key: value for key, value in options.items() if key in own})
    return strategy.with_options(**{key: value for key, value in options.items() if key not in own})
