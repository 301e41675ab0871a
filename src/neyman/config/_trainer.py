"""Settings of the policy, and of its training under TRL."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from neyman.config._settings import Options, Section

# TRL's fields that follow from settings, or that resuming a run depends on, with the settings that decide them.
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
