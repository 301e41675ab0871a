"""What a run says under ``neyman`` in verl's configuration."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from typing import Any, cast

from neyman._checks import integer, real
from neyman.errors import ArgumentError
from neyman.presets import PRESETS, preset
from neyman.presets._named import imported
from neyman.strategy import Strategy


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How a strategy drives verl; each field is a key below ``neyman`` in verl's configuration.

    Args:
        strategy: a preset's name, or ``package.module:function``, which is called with ``options`` and returns a
            `neyman.Strategy`.
        options: of the strategy, e.g. ``'+neyman.options={lower: 4, upper: 32}'``.
        max_rollouts: the most rollouts per step for strategies that close with fixed train; by default four times
            ``train_batch_size * rollout.n``.
        retries: re-draws of rollouts that failed, as a share of the budget, in [0, 1].
        success: the name of the number that says whether a rollout succeeded: "reward", or one that the reward
            function returns beside the score (``acc``). None takes a reward of 1 as success, of 0 or -1 as none.
        threshold: the least value of ``success`` that is one.
        features: the name of a sentence-transformers model that embeds the prompts, or ``package.module:function``
            from texts to an array [prompts, dimensions]; None lets the belief do without.
        barrier: whether a round waits for all of its rollouts. Then the same rollouts lead to the same decisions; else
            each prompt goes on as soon as its own are there, which is faster.
        seed: of the strategy's own draws.
        accept_strategy_change: resume a checkpoint of another strategy, or of a run without neyman.

    Raises:
        ArgumentError: a value outside its range.
    """

    strategy: str = "neyman"
    options: Mapping[str, Any] = field(default_factory=dict)
    max_rollouts: int | None = None
    retries: float = 0.1
    success: str | None = None
    threshold: float = 0.5
    features: str | None = None
    barrier: bool = False
    seed: int = 0
    accept_strategy_change: bool = False

    def __post_init__(self) -> None:
        for name in ("strategy", "success", "features"):
            value = getattr(self, name)
            if not isinstance(value, str) and (value is not None or name == "strategy"):
                raise ArgumentError(f"neyman.{name} must be text, got {value!r:.80}")
        if not isinstance(self.options, Mapping):
            raise ArgumentError(
                f"neyman.options must be a mapping, got {self.options!r:.80}; for example "
                "'+neyman.options={lower: 4, upper: 32}'"
            )
        if self.max_rollouts is not None:
            integer("neyman.max_rollouts", self.max_rollouts, low=1)
        real("neyman.retries", self.retries, low=0.0, high=1.0)
        real("neyman.threshold", self.threshold)
        for name in ("barrier", "accept_strategy_change"):
            if not isinstance(getattr(self, name), bool):
                raise ArgumentError(f"neyman.{name} must be true or false, got {getattr(self, name)!r:.80}")
        integer("neyman.seed", self.seed, low=0)

    @classmethod
    def from_mapping(cls, values: Any) -> Settings:
        """Read the settings out of the section of a configuration.

        Args:
            values: the section ``neyman``; None where there is none, which gives the defaults.

        Raises:
            ArgumentError: a key that is no setting, or a value outside its range.
        """
        values = {} if values is None else values
        if not isinstance(values, Mapping):
            raise ArgumentError(
                f"neyman must be a section of settings, got {values!r:.80}: +neyman.strategy={values}"
            )
        names = [item.name for item in fields(cls)]
        if unknown := sorted(set(map(str, values)) - set(names)):
            meant = get_close_matches(unknown[0], names, n=1)
            way_out = (
                f"did you mean neyman.{meant[0]}?"
                if meant
                else f"what belongs to the strategy goes below options, for example ++neyman.options.{unknown[0]}=..."
            )
            raise ArgumentError(
                f"neyman has no setting {', '.join(unknown)} in verl, which are {', '.join(names)}; {way_out}"
            )
        return cls(**{str(name): value for name, value in values.items()})

    def build_strategy(self) -> Strategy:
        """Make the strategy.

        Raises:
            ArgumentError: no such preset or function, options that it does not take, or no strategy came of it.
        """
        name, _, rest = self.strategy.partition(":")
        if name in PRESETS and rest:
            raise ArgumentError(
                f"neyman.strategy={self.strategy} has options behind the name, as replays take them; here they go "
                f"below neyman.options: +neyman.strategy={name} '+neyman.options={{...}}'"
            )
        if not rest:
            if name not in PRESETS:
                meant = get_close_matches(name, PRESETS, n=1)
                raise ArgumentError(
                    f"neyman.strategy must be one of {', '.join(PRESETS)}, or package.module:function, got "
                    f"{self.strategy!r}" + (f"; did you mean {meant[0]}?" if meant else "")
                )
            try:
                return preset(name, **self.options)
            except ArgumentError as error:
                raise type(error)(f"neyman.options {dict(self.options)} of {name}: {error}") from error
        try:
            made = function("neyman.strategy", self.strategy)(**self.options)
        except TypeError as error:
            raise ArgumentError(
                f"neyman.strategy={self.strategy} does not take neyman.options {sorted(map(str, self.options))}: "
                f"{error}"
            ) from error
        if not isinstance(made, Strategy):
            raise ArgumentError(
                f"neyman.strategy={self.strategy} must return a neyman.Strategy, got {made!r:.80}"
            )
        return made


def function(field: str, path: str) -> Callable[..., Any]:
    """Return the function that a setting names.

    Args:
        field: the setting, for the error.
        path: ``package.module:function``.

    Raises:
        ArgumentError: there is none, or it is no function.
    """
    found = imported(field, path)
    if not callable(found):
        raise ArgumentError(f"{field}={path} must be a function, got {found!r:.80}")
    return cast("Callable[..., Any]", found)
