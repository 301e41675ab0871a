"""neyman's settings as a TRL config, so that `TrlParser`, YAML files and the command line can set them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from trl import GRPOConfig, RLOOConfig

from neyman._files.json import loads
from neyman.errors import ArgumentError
from neyman.presets import PRESETS, strategy_by_name
from neyman.strategy import Strategy


@dataclass
class _Settings:
    """The fields that both configs add."""

    strategy: str = field(
        default="uniform",
        metadata={"help": f"How rollouts are allocated: {', '.join(PRESETS)}, or package.module:function."},
    )
    strategy_options: str = field(
        default="{}", metadata={"help": 'Options of the preset as JSON, e.g. \'{"lower": 4, "upper": 32}\'.'}
    )
    success_reward: str | None = field(
        default=None, metadata={"help": "Reward function whose value decides success, where several train."}
    )
    success_threshold: float = field(
        default=0.5, metadata={"help": "Value of success_reward from which a completion counts as solved."}
    )
    max_rollouts: int | None = field(
        default=None, metadata={"help": "Most rollouts per generation batch for presets that discard groups."}
    )

    def build_strategy(self) -> Strategy:
        """Return the strategy that the fields describe.

        Raises:
            ArgumentError: the options are no JSON object, or the preset refuses them.
        """
        try:
            options: Any = loads(self.strategy_options)
        except ValueError as error:
            raise ArgumentError(
                f"strategy_options must be JSON, got {self.strategy_options!r}: {error}"
            ) from error
        if not isinstance(options, dict):
            raise ArgumentError(f"strategy_options must be a JSON object, got {self.strategy_options!r}")
        return strategy_by_name(
            self.strategy,
            options,
            group_size=self.num_generations,  # type: ignore[attr-defined]
            options_field="strategy_options",
        )

    def trainer_arguments(self) -> dict[str, Any]:
        """Return the keyword arguments for the adaptive trainer."""
        success = None if self.success_reward is None else (self.success_reward, self.success_threshold)
        return {"strategy": self.build_strategy(), "success": success, "max_rollouts": self.max_rollouts}


@dataclass
class AdaptiveGRPOConfig(_Settings, GRPOConfig):  # type: ignore[misc]
    """`GRPOConfig` with neyman's settings: ``adaptive(GRPOTrainer)(args=args, **args.trainer_arguments(), ...)``."""


@dataclass
class AdaptiveRLOOConfig(_Settings, RLOOConfig):  # type: ignore[misc]
    """`RLOOConfig` with neyman's settings."""
