"""Run by torchrun on several gloo ranks: trains one trainer per scenario and writes what each rank saw."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"
sys.path.insert(0, str(Path(__file__).parent))

import torch
from datasets import Dataset, IterableDataset
from rank_faults import Fault
from trl import GRPOConfig, GRPOTrainer, RLOOConfig, RLOOTrainer

import neyman
from conftest import grade, prompt_rows
from neyman.tasks.tiny_policy import load_policy
from neyman.trl import adaptive

TRAINERS = {"grpo": (GRPOTrainer, GRPOConfig), "rloo": (RLOOTrainer, RLOOConfig)}


def stream():
    """Return an endless-enough stream whose batches hold equal prompts."""
    rows = prompt_rows()
    order = [0, 1, 0, 2, 3, 3, 3, 4, 5, 6, 7, 5]
    return IterableDataset.from_generator(lambda: (rows[i] for i in order * 8))


def digest(model):
    """Return the SHA-256 of all weights: each one's name, kind, shape and bytes, in order of name."""
    found = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        found.update(f"{name} {tensor.dtype} {list(tensor.shape)}".encode())
        found.update(tensor.detach().cpu().reshape(-1).contiguous().view(torch.uint8).numpy().tobytes())
    return found.hexdigest()


def run(
    policy: str,
    out: Path,
    *,
    trainer="grpo",
    strategy=None,
    options=None,
    resume=None,
    save_steps=0,
    streams=False,
    fault=Fault(),  # noqa: B008 - none, and immutable
    **more,
):
    trainer_class, config_class = TRAINERS[trainer]
    rows: list[list[str]] = []

    def reward(prompts, completions, **columns):
        rows.append([f"{p}|{c}" for p, c in zip(prompts, completions, strict=True)])
        return fault.scored([grade(p, c) for p, c in zip(prompts, completions, strict=True)])

    model, tokenizer = load_policy(policy)
    defaults = {
        "output_dir": str(out),
        "per_device_train_batch_size": 8,
        "steps_per_generation": 2,
        "num_generations": 8,
        "max_completion_length": 6,
        "learning_rate": 1e-3,
        "max_steps": 4,
        "logging_steps": 1,
        "report_to": "none",
        "use_cpu": True,
        "bf16": False,
        "beta": 0.0,
        "gradient_checkpointing": False,
        "disable_tqdm": True,
        "seed": 3,
        "save_strategy": "steps" if save_steps else "no",
        "save_steps": save_steps or 500,
    }
    args = config_class(**{**defaults, **more})
    ours = {} if strategy is None else {"strategy": neyman.preset(strategy, **(options or {}))}
    host = (adaptive(trainer_class) if ours else trainer_class)(
        model=model,
        reward_funcs=fault.reward(reward),
        args=args,
        train_dataset=stream() if streams else Dataset.from_list(prompt_rows()),
        processing_class=tokenizer,
        **ours,
        **fault.host(prompt_rows()[:4]),
    )
    fault.applied(host)
    host.train(resume_from_checkpoint=resume)
    return {
        "logs": [entry for entry in host.state.log_history if "loss" in entry],
        "rows": rows,
        "weights": digest(host.model),
        "state": host.controller.state_dict() if ours else None,
        "requested": host.controller.ledger.requested if ours else None,
    }


def main() -> None:
    policy, out, scenarios = sys.argv[1], Path(sys.argv[2]), json.loads(sys.argv[3])
    torch.set_num_threads(1)
    seen = {name: run(policy, out / name, **scenario) for name, scenario in scenarios.items()}
    (out / f"rank{os.environ['RANK']}.json").write_text(json.dumps(seen))


if __name__ == "__main__":
    main()
