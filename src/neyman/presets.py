"""Published methods by name: each is one choice of the four parts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any

from neyman import beliefs, rules
from neyman.beliefs import Belief
from neyman.errors import ArgumentError
from neyman.strategy import Strategy

_COMMON = {f.name for f in fields(Strategy)}


def _uniform(*, size: int | None = None) -> Strategy:
    return Strategy(name="uniform", allocate=rules.Each(size))


def _vip(
    *,
    lower: int = 4,
    upper: int = 32,
    belief: Belief | None = None,
    variant: str = "exact",
    probe: int = 0,
    estimator: str = "rloo",
) -> Strategy:
    allocate = rules.VarianceOptimal(
        lower,
        upper,
        estimator=_objective(estimator),
        variant=variant,
        probe=probe,
        plug_in=variant == "published",
    )
    return Strategy(name="vip", allocate=allocate, belief=belief or beliefs.default(), estimator=estimator)


def _objective(estimator: str) -> str:
    """Return the variance that an estimator's allocation minimises: REINFORCE++ has none of its own."""
    return estimator if estimator in ("rloo", "dr_grpo", "grpo") else "rloo"


def _sara(
    *,
    group_size: int | None = None,
    threshold: float = 0.45,
    schedule: tuple[int, ...] | None = None,
    min_probe: int = 2,
    after_commit: str = "complete",
    speculate: bool = False,
) -> Strategy:
    verdict = rules.EarlyVerdict(
        threshold, schedule=schedule, min_probe=min_probe, after_commit=after_commit, speculate=speculate
    )
    return Strategy(name="sara", allocate=rules.Each(group_size), verdict=verdict, close="fixed_train")


def _dynamo(
    *, lower: int = 4, upper: int = 32, variant: str = "sqrt", modulation: Any = "default"
) -> Strategy:
    if modulation == "default":
        from neyman.modulation import Modulation  # noqa: PLC0415 (torch is an extra)

        modulation = Modulation()
    return Strategy(
        name="dynamo",
        allocate=rules.WaterLevel(lower, upper, variant=variant),
        belief=beliefs.Counts(discount=1.0, fade=1.0),
        modulation=modulation,
    )


def _dynamic_sampling(*, group_size: int | None = None) -> Strategy:
    return Strategy(
        name="dynamic-sampling",
        allocate=rules.Each(group_size),
        verdict=rules.FullGroup(),
        close="fixed_train",
    )


def _neyman(
    *,
    lower: int | None = None,
    upper: int = 32,
    probe: int | None = None,
    among: float = 4.0,
    prompts: float = 1.5,
    belief: Belief | None = None,
    estimator: str = "rloo",
) -> Strategy:
    objective = _objective(estimator)
    least = 2 if objective == "rloo" else 3
    first = least if lower is None else lower
    return Strategy(
        name="neyman",
        select=rules.HighestVariance(among=among),
        allocate=rules.VarianceOptimal(
            first, upper, estimator=objective, probe=first if probe is None else probe
        ),
        belief=belief or beliefs.default(),
        prompts=prompts,
        estimator=estimator,
    )


PRESETS: dict[str, Callable[..., Strategy]] = {
    "uniform": _uniform,
    "vip": _vip,
    "sara": _sara,
    "dynamo": _dynamo,
    "dynamic-sampling": _dynamic_sampling,
    "neyman": _neyman,
}


def preset(name: str, **options: Any) -> Strategy:
    """Return a published method by name.

    Args:
        name: "uniform", "vip", "sara", "dynamo", "dynamic-sampling" or "neyman".
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
