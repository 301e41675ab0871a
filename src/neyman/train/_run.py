"""One training run: TRL's trainer under one strategy and seed, from its last complete checkpoint."""

from __future__ import annotations

import difflib
import gc
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PrinterCallback
from trl import GRPOConfig, GRPOTrainer, RLOOConfig, RLOOTrainer

from neyman.config import Config
from neyman.errors import ArgumentError
from neyman.strategy import Strategy
from neyman.tasks import Task, Verifier, reward_function, to_dataset
from neyman.train._evaluate import evaluation
from neyman.train._folder import RunFolder
from neyman.train._policy import policy_path
from neyman.train._recorder import Recorder
from neyman.trl import adaptive

# Two, so that the one before survives a kill in the middle of writing the next.
_CHECKPOINTS = 2


def run_one(config: Config, out: Path, strategy_name: str, seed: int) -> None:
    """Train one strategy with one seed, to the end, in ``out / <strategy>-seed<seed>``.

    Args:
        config: the settings.
        out: the training's directory; the starting policy is in it (`make_policy`).
        strategy_name: one of ``config.arms``.
        seed: of the prompts' order and of all sampling.

    Raises:
        NeymanError: settings that contradict each other, or a run that cannot go on; the message names the cause.

    Guarantee: killed at any moment and called again, it ends with the same weights and metrics (apart from times)
    as if never interrupted. Voided by non-deterministic kernels (GPUs) and by another number of threads.
    """
    folder = RunFolder(out / RunFolder.name(strategy_name, seed))
    strategy, task, verifier = (
        config.build_strategy(strategy_name),
        config.build_task(),
        config.task.build_verifier(),
    )
    folder.begin(_head(config, strategy_name, seed, task))
    progress = folder.rewind(save_every=_save_every(config))
    if progress.is_last:
        folder.finish(progress.seconds)
        return
    trainer = build_trainer(config, out, strategy, task, verifier, seed, folder)
    tokenizer = trainer.processing_class
    recorder = Recorder(
        folder,
        trainer,
        evaluation(config, task, verifier, tokenizer, seed),
        eval_every=config.trainer.eval_every,
        steps=config.trainer.steps,
        rollouts=config.trainer.steps * config.trainer.budget,
        progress=progress,
    )
    trainer.add_callback(recorder)
    # The trainer collects garbage in every step; a look through all imported modules takes longer than a tiny
    # policy's step.
    gc.freeze()
    trainer.train(resume_from_checkpoint=None if progress.checkpoint is None else str(progress.checkpoint))
    folder.finish(round(recorder.seconds, 3))


def _save_every(config: Config) -> int | None:
    """Return the steps between checkpoints; None where the trainer's own options decide when to save."""
    options = config.trainer.options
    return None if {"save_strategy", "save_steps"} & set(options) else config.trainer.save_every


def _head(config: Config, strategy_name: str, seed: int, task: Task) -> dict[str, Any]:
    return {
        "strategy": strategy_name,
        "seed": seed,
        "task": task.name,
        "budget_rollouts_per_step": config.trainer.budget,
        "steps": config.trainer.steps,
        "estimator": config.estimator,
        "config": config.model_dump(mode="json"),
    }


def build_trainer(
    config: Config,
    out: Path,
    strategy: Strategy,
    task: Task,
    verifier: Verifier,
    seed: int,
    folder: RunFolder,
) -> Any:
    """Return TRL's trainer, adapted, with all settings."""
    path = policy_path(config, out)
    tokenizer: Any = AutoTokenizer.from_pretrained(path, padding_side="left")
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    # RLOO loads its reference policy anew by the model's own name, so this must be a path that exists.
    model: Any = AutoModelForCausalLM.from_pretrained(path, dtype=getattr(torch, config.model.dtype))
    base = RLOOTrainer if config.trainer.algorithm == "rloo" else GRPOTrainer
    extra = {} if config.trainer.max_rollouts is None else {"max_rollouts": config.trainer.max_rollouts}
    if strategy.close != "fixed_train":
        extra = {}
    trainer: Any = adaptive(base)(
        model=model,
        args=_arguments(config, seed, folder),
        train_dataset=to_dataset(task.train),
        processing_class=tokenizer,
        reward_funcs=reward_function(verifier),
        strategy=strategy,
        features=config.build_features(task, strategy),
        **extra,
    )
    trainer.remove_callback(PrinterCallback)
    return trainer


def _arguments(config: Config, seed: int, folder: RunFolder) -> Any:
    settings, cuda = config.trainer, torch.cuda.is_available()
    rows = settings.micro_batch or settings.budget
    values: dict[str, Any] = {
        "output_dir": str(folder.path),
        "run_name": folder.path.name,
        "seed": seed,
        "max_steps": settings.steps,
        "per_device_train_batch_size": rows,
        "gradient_accumulation_steps": settings.budget // rows,
        "num_generations": settings.group_size,
        "learning_rate": settings.learning_rate,
        "lr_scheduler_type": "constant",
        "max_completion_length": settings.max_completion_length,
        "temperature": settings.temperature,
        "beta": settings.beta,
        "use_cpu": not cuda,
        "bf16": cuda and config.model.dtype == "bfloat16",
        "gradient_checkpointing": not config.model.is_tiny and cuda,
        "dataloader_pin_memory": cuda,
        "logging_steps": 1,
        "logging_strategy": "steps",
        "save_strategy": "steps",
        "save_steps": settings.save_every,
        "save_total_limit": _CHECKPOINTS,
        "report_to": list(settings.report_to) or "none",
        "disable_tqdm": True,
    }
    kind: Any = RLOOConfig if settings.algorithm == "rloo" else GRPOConfig
    if settings.algorithm != "rloo":
        values["loss_type"] = settings.loss_type
        values["scale_rewards"] = "none" if config.estimator == "dr_grpo" else "group"
    legal = {field.name for field in fields(kind)}
    for name in settings.options:
        if name not in legal:
            close = difflib.get_close_matches(name, legal, n=1, cutoff=0.5)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            raise ArgumentError(f"trainer.options: TRL's {kind.__name__} has no field {name!r}{hint}")
    return kind(**{**values, **settings.options})
