"""The process that is killed: a real GRPO training under neyman that goes on from its last whole checkpoint.

It tells its parent where it is through a pipe and waits for a word after each message, so that the parent can kill it
at exactly that place, or any time later.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
sys.path.insert(0, str(Path(__file__).parents[1] / "trl"))

import torch
from datasets import Dataset
from phases import Phases
from transformers import TrainerCallback
from trl import GRPOConfig, GRPOTrainer

import neyman
from conftest import CLOCKS, babble, grade, prompt_rows
from neyman.tasks import tiny_policy
from neyman.trl import adaptive, last_checkpoint

# Several rounds a step and a belief in each; between them what is carried over, what is replayed, and recounts.
STRATEGIES = {
    "sara, carried over": lambda: neyman.preset("sara", max_age=2),
    "ar3po, replayed": lambda: neyman.preset("ar3po"),
    "neyman, recounted": lambda: neyman.preset("neyman", recounts=2),
}
STEPS = 12
PROMPTS = 20  # so that the run passes the end of an epoch


def build(strategy: str, out: Path, policies: Path) -> Any:
    """Return the trainer: two optimiser steps to a generation, a checkpoint after each, and only the last one kept."""
    torch.set_num_threads(1)
    config = tiny_policy.PolicyConfig(steps=25, batch=64)
    policy = tiny_policy.build_policy(config, babble, name="babble", cache=policies)
    model, tokenizer = tiny_policy.load_policy(policy)

    def reward(prompts: list[str], completions: list[str], **columns: Any) -> list[float]:
        return [grade(prompt, words) for prompt, words in zip(prompts, completions, strict=True)]

    args = GRPOConfig(
        output_dir=str(out),
        per_device_train_batch_size=16,
        steps_per_generation=2,
        num_generations=8,
        max_completion_length=6,
        learning_rate=1e-3,
        max_steps=STEPS,
        logging_steps=1,
        save_strategy="steps",
        save_steps=1,
        save_total_limit=1,
        report_to="none",
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        disable_tqdm=True,
        seed=3,
    )
    return adaptive(GRPOTrainer)(
        model=model,
        reward_funcs=reward,
        args=args,
        train_dataset=Dataset.from_list(prompt_rows(PROMPTS)),
        processing_class=tokenizer,
        strategy=STRATEGIES[strategy](),
    )


def outcome(trainer: Any) -> dict[str, Any]:
    """Return all that a run ends with, apart from what a clock measured; tensors by their bytes."""
    tensors, rollouts = trainer._neyman.generation.store.pack()
    logs = [
        {
            name: value
            for name, value in entry.items()
            if not any(clock in name for clock in (*CLOCKS, "seconds"))
        }
        for entry in trainer.state.log_history
        if "loss" in entry
    ]
    return {
        "weights": {name: digest(value) for name, value in trainer.model.state_dict().items()},
        "optimizer": digests(trainer.optimizer.state_dict()),
        "scheduler": digests(trainer.lr_scheduler.state_dict()),
        "random numbers": digest(torch.get_rng_state()),
        "metrics": logs,
        "belief": trainer.controller.state_dict()["belief"],
        "ledger": trainer.controller.ledger.state_dict(),
        "controller": trainer.controller.state_dict(),
        "rollouts held": [digests(tensors), rollouts],
        "generation in use": [trainer._step, digests(trainer._buffered_inputs)],
    }


def digests(value: Any) -> Any:
    """Return nested containers with each tensor as a digest."""
    if isinstance(value, torch.Tensor):
        return digest(value)
    if isinstance(value, dict):
        return {str(key): digests(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [digests(item) for item in value]
    return value


def digest(tensor: torch.Tensor) -> str:
    """Return a hash of a tensor's type, shape and bytes."""
    content = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    return hashlib.sha256(f"{tensor.dtype} {tuple(tensor.shape)} ".encode() + content).hexdigest()


def train(strategy: str, out: Path, policies: Path, speak: int, hear: int) -> None:
    """Train to the end from the last whole checkpoint, as a user's script would, and write ``outcome.json``."""
    checkpoint = last_checkpoint(out)
    phases = Phases(speak, hear)
    phases.enter("start", Path(checkpoint).name if checkpoint else "nothing")
    trainer = build(strategy, out, policies)
    phases.follow(trainer)
    trainer.add_callback(Steps(phases))
    trainer.train(resume_from_checkpoint=checkpoint)
    phases.enter("end")
    (out / "outcome.json").write_text(json.dumps(outcome(trainer)))


class Steps(TrainerCallback):
    """Says when a step begins."""

    def __init__(self, phases: Phases) -> None:
        self.phases = phases

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.phases.enter("update", "begins")


if __name__ == "__main__":
    strategy, out, policies, speak, hear = sys.argv[1:]
    train(strategy, Path(out), Path(policies), int(speak), int(hear))
