"""What a person may write in a TOML file or as flags: frozen models, one description per field.

Files and flags are checked before anything heavy is imported; ``build_*`` and ``build`` make the objects.
Paths are relative to the working directory and saved absolute.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from neyman import beliefs
from neyman.config._settings import Options, Section, as_flags, checked, dump
from neyman.config._tasks import DataTask, ReasoningGymTask, RulesTask
from neyman.errors import ArgumentError, missing_extra
from neyman.presets import PRESETS, imported, known_strategy, strategy_by_name
from neyman.strategy import Strategy

try:
    from pydantic import Field, field_validator, model_validator
except ImportError as error:
    raise missing_extra(str(error.name), "cli", "neyman.config") from error

if TYPE_CHECKING:
    from neyman.tasks import Task

BELIEFS: dict[str, Any] = {
    "default": beliefs.default,
    "counts": beliefs.Counts,
    "binomial-residual": beliefs.BinomialResidual,
}

# TRL's fields that follow from settings, or hold a run and its resuming together, with what decides them.
_DECIDED = {
    "output_dir": "--out",
    "run_name": "--out",
    "seed": "seeds",
    "max_steps": "trainer.steps",
    "num_train_epochs": "trainer.steps",
    "per_device_train_batch_size": "trainer.micro_batch",
    "gradient_accumulation_steps": "trainer.micro_batch",
    "num_generations": "trainer.group_size",
    "generation_batch_size": "trainer.prompts_per_step and trainer.group_size",
    "learning_rate": "trainer.learning_rate",
    "max_completion_length": "trainer.max_completion_length",
    "temperature": "trainer.temperature",
    "beta": "trainer.beta",
    "loss_type": "trainer.loss_type",
    "save_steps": "trainer.save_every",
    "save_strategy": "trainer.save_every",
    "report_to": "trainer.report_to",
    "logging_steps": "the run, which writes a line for every step",
    "logging_strategy": "the run, which writes a line for every step",
}


class ModelConfig(Section):
    """The policy."""

    path: str = Field(
        default="tiny",
        description="'tiny' (0.1M parameters, built and warm-started here), or any causal LM's folder or name",
    )
    gguf_file: str | None = Field(
        default=None, description="name of a GGUF file inside path to load the weights from"
    )
    dtype: Literal["float32", "bfloat16"] = Field(default="float32", description="type of the weights")
    warm_start_steps: int = Field(default=600, ge=0, description="'tiny' only: supervised optimiser steps")
    cache: Path | None = Field(
        default=None, description="'tiny' only: folder of built policies [~/.cache/neyman]"
    )

    @property
    def is_tiny(self) -> bool:
        """Whether the policy is the embedded one."""
        return self.path == "tiny"


class StrategyConfig(Section):
    """How rollouts are allocated."""

    name: str = Field(default="neyman", description=f"{', '.join(PRESETS)}, or package.module:function")
    options: Options = Field(default_factory=dict, description="options of the preset, e.g. lower=4 upper=32")
    belief: str = Field(
        default="preset", description=f"'preset' (its own), {', '.join(BELIEFS)}, or package.module:Class"
    )
    belief_options: Options = Field(default_factory=dict, description="options of the belief")
    features: str = Field(
        default="auto",
        description="'auto' (the task's own, if any), 'none', or an embedding model's name or folder",
    )

    @field_validator("name")
    @classmethod
    def _is_known(cls, name: str) -> str:
        return _known_strategy(name)


class TrainerConfig(Section):
    """The training run under TRL."""

    algorithm: Literal["rloo", "grpo", "reinforce++"] = Field(
        default="rloo",
        description="TRL's RLOOTrainer or GRPOTrainer; 'reinforce++': the latter with advantages over the batch",
    )
    prompts_per_step: int = Field(default=16, ge=1, description="prompts the data loader brings to a step")
    group_size: int = Field(
        default=8, ge=2, description="rollouts per prompt on average; times prompts_per_step: the budget"
    )
    steps: int = Field(
        default=48, ge=1, description="optimiser steps; fixed-train strategies end earlier, on the budget"
    )
    learning_rate: float = Field(default=6e-4, gt=0, description="of AdamW, constant")
    max_completion_length: int = Field(default=6, ge=1, description="tokens; longer answers are cut")
    temperature: float = Field(default=1.0, gt=0, description="of sampling")
    loss_type: str = Field(default="grpo", description="not for rloo: grpo, dr_grpo, dapo, ...")
    beta: float = Field(default=0.0, ge=0, description="weight of the KL term to the starting policy")
    max_rollouts: int | None = Field(
        default=None,
        ge=1,
        description="fixed-train strategies only: the most rollouts of a step [4 x the budget]",
    )
    micro_batch: int | None = Field(
        default=None, ge=1, description="rows in one forward pass; divides the budget of a step [all]"
    )
    eval_every: int = Field(default=8, ge=1, description="steps between measurements of held-out accuracy")
    save_every: int = Field(default=16, ge=1, description="steps between checkpoints")
    report_to: tuple[str, ...] = Field(
        default=(), description="trackers, as TRL names them: wandb, trackio, tensorboard"
    )
    options: Options = Field(
        default_factory=dict,
        description="further fields of TRL's GRPOConfig or RLOOConfig, e.g. use_vllm=true",
    )

    @property
    def budget(self) -> int:
        """Rollouts per step."""
        return self.prompts_per_step * self.group_size

    @model_validator(mode="after")
    def _fits(self) -> TrainerConfig:
        if self.micro_batch is not None and self.budget % self.micro_batch:
            raise ValueError(
                f"micro_batch must divide prompts_per_step x group_size = {self.budget}, got {self.micro_batch}"
            )
        if decided := [name for name in self.options if name in _DECIDED]:
            ways = "; ".join(f"{name} is decided by {_DECIDED[name]}" for name in decided)
            raise ValueError(f"options must be further fields, but {ways}: leave them out of the options")
        return self


class Config(Section):
    """Everything that decides a training's result."""

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
        return tuple(_known_strategy(name) for name in names)

    def check(self) -> Config:
        """Check settings against each other.

        Raises:
            ArgumentError: names both, and the way out.
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
        if own and self.strategy.belief != "preset":
            kind = _belief_kind(self.strategy.belief)
            try:
                options["belief"] = kind(**self.strategy.belief_options)
            except TypeError as error:
                raise ArgumentError(f"strategy.belief_options: {error}") from error
        elif own and self.strategy.belief_options:
            raise ArgumentError("strategy.belief_options need a strategy.belief by name, got 'preset'")
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
            ArgumentError: what is wrong with the data, and the flag that mends it.
        """
        try:
            return self.task.build()
        except ArgumentError as error:
            raise ArgumentError(as_flags("task", str(error), type(self.task))) from error

    def build_features(self, task: Task, strategy: Strategy) -> Any:
        """Return what a strategy's belief may know of the training prompts: an array, a model's name or None.

        Where the belief makes nothing of features it gets those that were asked for by name, so that this is said,
        unless the strategy is a baseline.
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


def _belief_kind(name: str) -> Any:
    if name in BELIEFS:
        return BELIEFS[name]
    if ":" not in name:
        raise ArgumentError(
            f"strategy.belief must be one of {', '.join(BELIEFS)} or package.module:Class, got {name!r}"
        )
    return imported("strategy.belief", name)


def _known_strategy(name: str) -> str:
    try:
        return known_strategy(name)
    except ArgumentError as error:  # the section puts the setting's own name in front
        raise ValueError(str(error).removeprefix("strategy ")) from None


def from_mapping(values: Mapping[str, Any], *, partial: bool = False) -> Config:
    """Check settings and fill in the defaults.

    Args:
        values: settings by section.
        partial: leave out the checks of settings against each other, because more settings are to come.

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
