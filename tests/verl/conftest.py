"""Real verl trainings on the CPU: its own trainer, Ray workers, queue, FSDP engines and critic, on a tiny policy."""

from __future__ import annotations

import os
import sys
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

HOST = Path(__file__).parent / "host"
# verl, its Ray cluster and its pins have an environment of their own: `make test-verl`.
# Not by find_spec alone: this folder is a namespace of the same name wherever `tests` is on the path.
HAS_VERL = (spec := find_spec("verl")) is not None and spec.origin is not None
collect_ignore_glob = ["host/*"] if HAS_VERL else ["*.py", "host/*"]

if HAS_VERL:
    sys.path.insert(0, str(HOST))
    os.environ |= {
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join([str(HOST), *filter(None, [os.environ.get("PYTHONPATH")])]),
        "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
        "TOKENIZERS_PARALLELISM": "false",
        "VERL_ENGINE_DEVICE": "cuda",  # the FSDP engines, which run on what the platform names
        "VERL_PLATFORM": "cpu",
        "VERL_USE_EXTERNAL_MODULES": "neyman_cpu_host",
    }

PROMPTS = 24


def _babble(rng: np.random.Generator, size: int) -> list[tuple[str, str]]:
    pairs = []
    for length in rng.integers(1, 6, size):
        prompt = f"A{''.join(map(str, rng.integers(0, 10, 3)))}="
        pairs.append((prompt, "".join(map(str, rng.integers(0, 10, length)))))
    return pairs


def rows(count: int = PROMPTS) -> list[dict[str, Any]]:
    """Return prompts of every success rate from 0 to 1; ``index`` is 0 for all, as in datasets that do not set it."""
    return [
        {
            "prompt": [{"role": "user", "content": f"A{i % 10}{i // 10}{i * 7 % 10}="}],
            "data_source": "babble",
            "reward_model": {"style": "rule", "ground_truth": f"{i * 7 % 10}:{i}"},
        }
        for i in range(count)
    ]


@dataclass
class Step:
    """What a step trained.

    Args:
        numbers: the prompt of each row, by its place in the dataset; -1 for verl's padding.
        rewards: of each row.
        stock: [rows, tokens], verl's own advantages over groups by prompt.
        advantages: [rows, tokens], as the actor gets them.
        entropies: [rows, tokens], of the policy that drew them.
        logps: [rows, tokens], likewise.
        mask: [rows, tokens] that the loss counts.
        metrics: what verl logs of the step.
        groups: the controller's reports; none without neyman.
    """

    numbers: list[int]
    rewards: np.ndarray
    stock: np.ndarray
    advantages: np.ndarray
    entropies: np.ndarray
    logps: np.ndarray
    mask: np.ndarray
    metrics: dict[str, float]
    groups: tuple[Any, ...]


@dataclass
class Run:
    """What a training left behind."""

    steps: list[Step] = field(default_factory=list)
    trainer: Any = None


class Bench:
    """Runs verl's own ``TaskRunnerV1`` in this process, so that its trainer can be looked at.

    Args:
        folder: for policies, data and checkpoints.
    """

    def __init__(self, folder: Path) -> None:
        import pyarrow as pa
        from pyarrow import parquet
        from transformers import AutoTokenizer

        from neyman.tasks import rules, tiny_policy

        self.folder = folder
        # The newline, in the byte-level spelling: verl looks it up in every tokenizer of Qwen's kind.
        config = tiny_policy.PolicyConfig(alphabet=rules.ALPHABET + "Ċ", steps=25, batch=64)
        self.policy = tiny_policy.build_policy(config, _babble, name="verl", cache=folder / "policies")
        tokenizer = AutoTokenizer.from_pretrained(self.policy)
        tokenizer.chat_template = "{{ messages[0]['content'] }}"
        tokenizer.save_pretrained(self.policy)
        self.data = folder / "train.parquet"
        parquet.write_table(pa.Table.from_pylist(rows()), self.data)

    def config(self, **overrides: Any) -> Any:
        """Compose verl's own configuration: 4 prompts x 8 rollouts a step, two steps, one worker.

        Args:
            **overrides: verl's keys with ``__`` for the dots; a mapping makes a new section.
        """
        from hydra import compose, initialize_config_module

        policy, data = str(self.policy), str(self.data)
        defaults = {
            "data.train_files": data,
            "data.val_files": data,
            "data.train_batch_size": 4,
            "data.val_batch_size": 8,
            "data.max_prompt_length": 16,
            "data.max_response_length": 6,
            "data.dataloader_num_workers": 0,
            "data.shuffle": False,
            "actor_rollout_ref.model.path": policy,
            "actor_rollout_ref.model.use_remove_padding": False,
            "+actor_rollout_ref.model.override_config.attn_implementation": "sdpa",
            "actor_rollout_ref.rollout.name": "cpu",
            "actor_rollout_ref.rollout.n": 8,
            "actor_rollout_ref.rollout.tensor_model_parallel_size": 1,
            "actor_rollout_ref.rollout.n_gpus_per_node": 1,
            "actor_rollout_ref.rollout.free_cache_engine": False,
            "actor_rollout_ref.rollout.agent.num_workers": 1,
            "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu": 8,
            "+actor_rollout_ref.rollout.custom.engine": f"engine-{uuid.uuid4().hex}",
            "actor_rollout_ref.actor.strategy": "fsdp2",
            "actor_rollout_ref.actor.ppo_mini_batch_size": 4,
            "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu": 8,
            "actor_rollout_ref.actor.use_torch_compile": False,
            "actor_rollout_ref.actor.fsdp_config.use_torch_compile": False,
            "+actor_rollout_ref.actor.fsdp_config.mixed_precision.param_dtype": "fp32",
            "actor_rollout_ref.actor.optim.lr": 1e-3,
            "critic.strategy": "fsdp2",
            "critic.model.path": policy,
            "critic.model.use_remove_padding": False,
            "+critic.fsdp.mixed_precision.param_dtype": "fp32",
            "critic.ppo_mini_batch_size": 4,
            "critic.ppo_micro_batch_size_per_gpu": 8,
            "reward.num_workers": 1,
            "reward.custom_reward_function.path": str(HOST / "neyman_cpu_rewards.py"),
            "reward.custom_reward_function.name": "grade",
            "transfer_queue.backend.SimpleStorage.num_data_storage_units": 1,
            "trainer.device": "cpu",
            "trainer.n_gpus_per_node": 1,
            "trainer.nnodes": 1,
            "trainer.logger": "[]",
            "trainer.val_before_train": False,
            "trainer.test_freq": -1,
            "trainer.save_freq": -1,
            "trainer.total_epochs": 9,
            "trainer.total_training_steps": 2,
            "trainer.default_local_dir": str(self.folder / uuid.uuid4().hex),
        }
        given = {name.replace("__", "."): value for name, value in overrides.items()}
        ours = given.pop("neyman", None)
        with initialize_config_module("verl.trainer.config", version_base=None):
            config = compose("ppo_trainer", [f"{key}={value}" for key, value in (defaults | given).items()])
        return self._with_strategy(config, ours)

    @staticmethod
    def _with_strategy(config: Any, ours: Mapping[str, Any] | None) -> Any:
        from omegaconf import open_dict

        if ours is not None:
            with open_dict(config):
                config.trainer.v1.trainer_mode = "neyman_sync"
                config.neyman = dict(ours)
        return config

    def train(self, **overrides: Any) -> Run:
        """Train and return what it left; arguments as for `config`, ``neyman={...}`` puts it under a strategy."""
        from verl.trainer.main_ppo import TaskRunnerV1

        runner = TaskRunnerV1.__ray_metadata__.modified_class()
        run = Run()
        with _cluster(), _watched(run):
            runner.run(self.config(**overrides))
        run.trainer = runner.trainer
        return run


@contextmanager
def _cluster() -> Iterator[None]:
    """Run a Ray cluster on this machine: verl's names allow for one training in each."""
    import ray

    ray.init(address="local", num_cpus=32, num_gpus=2, include_dashboard=False, log_to_driver=False)
    try:
        yield
    finally:
        ray.shutdown()


@contextmanager
def _watched(run: Run) -> Iterator[None]:
    """Keep what each step trains, and what verl logs of it."""
    import transfer_queue as tq
    from verl.trainer.ppo.v1.trainer_base import PPOTrainer

    update, compute, advantages = (
        PPOTrainer._update_actor,
        PPOTrainer._compute_metrics,
        PPOTrainer._compute_advantage,
    )
    stock = []

    def valued(self: Any, batch: Any, metrics: Any) -> Any:
        result = advantages(self, batch, metrics)
        found = tq.kv_batch_get(batch.keys, batch.partition_id, ["advantages", "response_mask"])
        stock[:] = [found.to_padded_tensor()["advantages"].numpy()]
        return result

    def updated(self: Any, batch: Any, metrics: Any) -> Any:
        fields = ["advantages", "response_mask", "rm_scores", "reward_model", "entropy", "old_log_probs"]
        data = tq.kv_batch_get(batch.keys, batch.partition_id, fields)
        truths = [getattr(item, "data", item)["ground_truth"] for item in data.pop("reward_model")]
        padded = data.to_padded_tensor()
        numbers = [
            -1 if tag.get("is_padding") else int(truth.partition(":")[2])
            for truth, tag in zip(truths, batch.tags, strict=True)
        ]
        run.steps.append(
            Step(
                numbers=numbers,
                rewards=padded["rm_scores"].sum(-1).numpy(),
                stock=stock[0],
                advantages=padded["advantages"].numpy(),
                entropies=padded["entropy"].numpy(),
                logps=padded["old_log_probs"].numpy(),
                mask=padded["response_mask"].numpy(),
                metrics={},
                groups=getattr(self, "controller", None) and self.controller.group_reports,
            )
        )
        return update(self, batch, metrics)

    def computed(self: Any, batch: Any, metrics: Any, *args: Any, **kwargs: Any) -> Any:
        result = compute(self, batch, metrics, *args, **kwargs)
        run.steps[-1].metrics.update(metrics)
        return result

    PPOTrainer._update_actor, PPOTrainer._compute_metrics = updated, computed
    PPOTrainer._compute_advantage = valued
    try:
        yield
    finally:
        PPOTrainer._update_actor, PPOTrainer._compute_metrics = update, compute
        PPOTrainer._compute_advantage = advantages


@pytest.fixture(scope="session")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """Return the bench; its policy is built once."""
    return Bench(tmp_path_factory.mktemp("verl"))
