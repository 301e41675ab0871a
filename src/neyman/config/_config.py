"""All settings of a training together, and the objects that they make."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pydantic import Field, field_validator

from neyman.config._settings import Section, as_flags, checked, dump
from neyman.config._strategy import StrategyConfig, checked_name
from neyman.config._tasks import DataTask, ReasoningGymTask, RulesTask
from neyman.config._trainer import ModelConfig, TrainerConfig
from neyman.errors import ArgumentError
from neyman.presets import strategy_by_name
from neyman.strategy import Strategy

if TYPE_CHECKING:
    from neyman.tasks import Task


class Config(Section):
    """All settings that decide a training's result."""

    model: ModelConfig = Field(default_factory=ModelConfig)
    task: RulesTask | ReasoningGymTask | DataTask = Field(default_factory=RulesTask, discriminator="type")
    strategy: StrategyConfig = Field(default_factory=StrategyConfig)
    trainer: TrainerConfig = Field(default_factory=TrainerConfig)
    seeds: tuple[int, ...] = Field(
        default=(0, 1, 2, 3, 4), min_length=1, description="one run for each, of every strategy"
    )
    baselines: tuple[str, ...] = Field(
        default=("uniform",),
        description="strategies with their own defaults to compare with, at the same budget",
    )

    @field_validator("task", mode="before")
    @classmethod
    def _is_rules_by_default(cls, task: Any) -> Any:
        return {"type": "rules", **task} if isinstance(task, dict) else task

    @field_validator("baselines")
    @classmethod
    def _are_known(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(checked_name(name) for name in names)

    def check(self) -> Config:
        """Check settings against each other.

        Raises:
            ArgumentError: names both, and the remedy.
        """
        if len(set(self.seeds)) < len(self.seeds) or min(self.seeds) < 0:
            raise ArgumentError(f"seeds must be different and >= 0, got {list(self.seeds)}")
        if self.model.is_tiny and self.task.type != "rules":
            raise ArgumentError(
                f"model.path 'tiny' can read and write the task 'rules' only, got task.type {self.task.type!r}; "
                "give --model the folder or name of a causal language model"
            )
        return self

    @property
    def arms(self) -> tuple[str, ...]:
        """The strategies that run, each once."""
        return tuple(dict.fromkeys([self.strategy.name, *self.baselines]))

    @property
    def is_exact(self) -> bool:
        """Whether accuracy can be computed without sampling."""
        return self.model.is_tiny

    @property
    def estimator(self) -> str:
        """Name the gradient estimator whose variance strategies minimise."""
        if self.trainer.algorithm != "grpo":
            return self.trainer.algorithm
        scale = self.trainer.options.get("scale_rewards", self.trainer.loss_type != "dr_grpo")
        return "grpo" if scale in (True, "group") else "dr_grpo"

    def build_strategy(self, name: str) -> Strategy:
        """Make a strategy: the configured one by its options, a baseline by its defaults, with bounds that fit.

        Raises:
            ArgumentError: unknown names or options; the message lists the legal ones.
        """
        own = name == self.strategy.name
        options = dict(self.strategy.options) if own else {}
        belief = self.strategy.build_belief() if own else None
        if belief is not None:
            options["belief"] = belief
        made = strategy_by_name(
            name,
            options,
            group_size=self.trainer.group_size,
            defaults={"estimator": self.estimator},
            field="--strategy" if own else "--baselines",
            options_field="--strategy.options",
        )
        return self._with_own_advantages(made)

    def _with_own_advantages(self, made: Strategy) -> Strategy:
        """Return the strategy with the advantages of trainer.algorithm, where no trainer of TRL brings them.

        Raises:
            ArgumentError: the strategy names REINFORCE++, trainer.algorithm another.
        """
        whitened = self.trainer.algorithm == "reinforce++"
        if made.estimator == "reinforce++" and not whitened:
            raise ArgumentError(
                f"strategy {made.name!r} asks for estimator='reinforce++', but trainer.algorithm is "
                f"{self.trainer.algorithm!r}: set --trainer.algorithm reinforce++ and leave estimator out of "
                "strategy.options"
            )
        return made.with_options(estimator="reinforce++") if whitened else made

    def build_task(self) -> Task:
        """Make the training and test problems.

        Raises:
            ArgumentError: a fault of the data, with the flag that mends it.
        """
        try:
            return self.task.build()
        except ArgumentError as error:
            raise ArgumentError(as_flags("task", str(error), type(self.task))) from error

    def build_features(self, task: Task, strategy: Strategy) -> Any:
        """Return the features of the training prompts for a strategy's belief: an array, a model's name or None.

        A belief that makes no use of features gets those that were set by name all the same, so that the trainer warns
        of it, unless the strategy is a baseline.
        """
        asked = strategy.name not in self.baselines and self.strategy.features not in ("auto", "none")
        if not strategy.belief.uses_features and not asked:
            return None
        if self.strategy.features != "auto":
            return None if self.strategy.features == "none" else self.strategy.features
        if self.task.type != "rules":
            return None
        from neyman.tasks import rules  # noqa: PLC0415 - loads SciPy's statistics

        return rules.features(task.train)


def from_mapping(values: Mapping[str, Any], *, partial: bool = False) -> Config:
    """Check settings and fill in the defaults.

    Args:
        values: settings by section.
        partial: leave out the checks of settings against each other, as more settings follow.

    Raises:
        ArgumentError: names each setting that is unknown (with the nearest legal one) or out of range.

    >>> from_mapping({"trainer": {"steps": 3}}).trainer.budget
    128
    """
    config = checked(Config, values)
    return config if partial else config.check()


def to_toml(config: Config) -> str:
    """Return the resolved settings as TOML with each field's description, for `from_mapping` to read back."""
    return dump(config)
