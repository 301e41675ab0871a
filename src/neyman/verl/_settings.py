"""The section ``neyman`` of verl's configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from typing import Any

from neyman._checks import integer, real
from neyman.errors import ArgumentError
from neyman.presets import imported, strategy_by_name
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
        success: the name of the number that decides whether a rollout succeeded: "reward", or one that the reward
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
                else f"options of the strategy go below options, for example ++neyman.options.{unknown[0]}=..."
            )
            raise ArgumentError(
                f"neyman has no setting {', '.join(unknown)} in verl, which are {', '.join(names)}; {way_out}"
            )
        return cls(**{str(name): value for name, value in values.items()})

    def build_strategy(self, group_size: int | None = None) -> Strategy:
        """Make the strategy, with bounds that fit the average rollouts per prompt.

        Raises:
            ArgumentError: no such preset or function, options that it does not take, or no strategy came of it.
        """
        return strategy_by_name(
            self.strategy,
            self.options,
            group_size=group_size,
            field="neyman.strategy",
            options_field="++neyman.options",
        )

    def resolved_features(self) -> Any:
        """Return the name of a model, or the function that the setting names.

        Raises:
            ArgumentError: there is no such function.
        """
        is_path = self.features is not None and ":" in self.features
        return imported("neyman.features", str(self.features)) if is_path else self.features
