"""Real TRL trainers on a policy of 0.1M parameters that writes digit strings of random length."""

from __future__ import annotations

import gc
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import pytest
from packaging.version import Version

from neyman import Strategy
from neyman.rules import Allocate

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")

# The adapter needs the extra "train"; without it these tests are left out, and the core's go on.
HAS_TRL = find_spec("torch") is not None and find_spec("trl") is not None
collect_ignore_glob = [] if HAS_TRL else ["test_*.py"]
# Measured in seconds, so never equal between two runs.
CLOCKS = ("step_time", "runtime", "per_second", "profiling")


def babble(rng: np.random.Generator, size: int) -> list[tuple[str, str]]:
    """Draw demonstrations whose answers are digits of random number, so that completions differ in length."""
    pairs = []
    for length in rng.integers(1, 7, size):
        prompt = f"A{''.join(map(str, rng.integers(0, 10, 3)))}="
        pairs.append((prompt, "".join(map(str, rng.integers(0, 10, length)))))
    return pairs


def grade(prompt: str, completion: str) -> float:
    """Return 1 or 0, always the same for the same words; right in about (first digit)/9 of all completions."""
    return float(crc32(f"{prompt}|{completion}".encode()) % 9 < int(prompt[1]))


def prompt_rows(count: int = 40) -> list[dict[str, Any]]:
    """Return distinct prompts of every success rate from 0 to 1."""
    return [
        {"prompt": f"{'ABCDEFGH'[i % 8]}{i * 7 % 10}{i % 10}{i // 10}=", "answer": f"answer {i}", "number": i}
        for i in range(count)
    ]


@dataclass(frozen=True)
class Given(Allocate):
    """Allocates fixed counts, in the order of the candidates."""

    sizes: tuple[int, ...]
    probe: int = 0

    def group_size(self, average: int) -> int:
        return average

    def counts(self, evidence: Any, budget: int) -> Any:
        assert sum(self.sizes) == budget
        return np.array(self.sizes, dtype=np.int64)


@dataclass
class Run:
    """What a training left behind.

    Args:
        trainer: the trainer.
        logs: the trainer's logs of each optimiser step.
        calls: (prompts, completions) of every call of the default reward function.
        batches: TRL's training batches, with the controller's batch of the same step (None for stock).
    """

    trainer: Any
    logs: list[dict[str, Any]] = field(default_factory=list)
    calls: list[tuple[list[Any], list[Any]]] = field(default_factory=list)
    batches: list[tuple[dict[str, Any], Any]] = field(default_factory=list)

    def comparable_logs(self) -> list[dict[str, Any]]:
        """Return the logs that a stock trainer writes too, without clocks."""
        return [
            {k: v for k, v in log.items() if not k.startswith("neyman/") and not any(c in k for c in CLOCKS)}
            for log in self.logs
        ]

    def drawn(self) -> Counter[tuple[str, str]]:
        """Return how often each (prompt, completion) was scored."""
        return Counter(
            (str(p), str(c))
            for prompts, completions in self.calls
            for p, c in zip(prompts, completions, strict=True)
        )

    def trained(self) -> list[list[tuple[str, str]]]:
        """Return (prompt, completion) of every row of every training batch, read from the token ids."""
        tokenizer = self.trainer.processing_class
        steps = []
        for batch, _ in self.batches:
            prompts = tokenizer.batch_decode(batch["prompt_ids"], skip_special_tokens=True)
            ids = [
                row[mask.bool()]
                for row, mask in zip(batch["completion_ids"], batch["completion_mask"], strict=True)
            ]
            steps.append(
                list(zip(prompts, tokenizer.batch_decode(ids, skip_special_tokens=True), strict=True))
            )
        return steps

    def weights(self) -> dict[str, Any]:
        """Return the policy's weights."""
        return {name: value.clone() for name, value in self.trainer.model.state_dict().items()}


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what the installed TRL does not have, saying so."""
    for mark in item.iter_markers("since_trl"):
        version, what = mark.args
        if HAS_TRL and Version(metadata.version("trl")) < Version(version):
            pytest.skip(f"TRL {metadata.version('trl')} has no {what}")


class Bench:
    """Builds and runs trainers on the tiny policy."""

    grade = staticmethod(grade)
    babble = staticmethod(babble)

    def __init__(self, folder: Path, scratch: Path) -> None:
        self.folder, self._scratch = folder, scratch
        self._made = 0

    @staticmethod
    def ragged(sizes: tuple[int, ...], **options: Any) -> Strategy:
        """Return a strategy of one round with these group sizes at every step."""
        return Strategy(name="given", allocate=Given(sizes), **options)

    def dataset(self, count: int = 40) -> Any:
        """Return the default prompts as a map-style dataset."""
        from datasets import Dataset

        return Dataset.from_list(prompt_rows(count))

    def tokenizer(self) -> Any:
        """Return a fresh tokenizer of the policy."""
        from transformers import AutoTokenizer

        return AutoTokenizer.from_pretrained(self.folder, local_files_only=True)

    def args(self, cls: Any, **options: Any) -> Any:
        """Return the trainer's configuration: 4 prompts x 8 rollouts a step, unless told otherwise."""
        self._made += 1
        defaults: dict[str, Any] = {
            "output_dir": str(self._scratch / f"run-{self._made}"),
            "per_device_train_batch_size": 32,
            "num_generations": 8,
            "max_completion_length": 6,
            "learning_rate": 1e-3,
            "max_steps": 3,
            "logging_steps": 1,
            "report_to": "none",
            "save_strategy": "no",
            "use_cpu": True,
            "bf16": False,
            "beta": 0.0,
            "gradient_checkpointing": False,
            "disable_tqdm": True,
            "seed": 3,
        }
        from trl import GRPOConfig, RLOOConfig, RLOOTrainer

        config = RLOOConfig if issubclass(cls, RLOOTrainer) else GRPOConfig
        return config(**{**defaults, **options})

    def build(
        self,
        cls: Any = None,
        strategy: Any = None,
        *,
        rewards: Any = None,
        dataset: Any = None,
        tokenizer: Any = None,
        host: dict[str, Any] | None = None,
        ours: dict[str, Any] | None = None,
        **options: Any,
    ) -> Run:
        """Build a trainer: stock without a strategy, adapted with one.

        Args:
            cls: GRPOTrainer (the default) or RLOOTrainer.
            strategy: the strategy.
            rewards: reward functions in place of the default one.
            dataset: training data in place of the default prompts.
            tokenizer: in place of the policy's.
            host: further arguments of the trainer itself, or others in place of the defaults.
            ours: further arguments of the adapter.
            **options: fields of the trainer's configuration.
        """
        from trl import GRPOTrainer

        from neyman.trl import adaptive

        cls = cls or GRPOTrainer
        run = Run(trainer=None)

        def reward(prompts: list[Any], completions: list[Any], **columns: Any) -> list[float]:
            run.calls.append((list(prompts), list(completions)))
            return [grade(p, c) for p, c in zip(prompts, completions, strict=True)]

        adapted = {} if strategy is None else {"strategy": strategy, **(ours or {})}
        arguments = {
            "model": str(self.folder),
            "reward_funcs": reward if rewards is None else rewards,
            "args": self.args(cls, **options),
            "train_dataset": self.dataset() if dataset is None else dataset,
            "processing_class": tokenizer or self.tokenizer(),
            **(host or {}),
        }
        run.trainer = (cls if strategy is None else adaptive(cls))(**arguments, **adapted)
        self._record(run)
        return run

    def train(self, cls: Any = None, strategy: Any = None, **options: Any) -> Run:
        """Build a trainer, train it and return what it left; arguments as for `build`."""
        run = self.build(cls, strategy, **options)
        run.trainer.train()
        run.logs = [log for log in run.trainer.state.log_history if "loss" in log]
        return run

    @staticmethod
    def _record(run: Run) -> None:
        """Keep a copy of every training batch that TRL builds."""
        import torch

        trainer = run.trainer
        original = trainer._generate_and_score_completions

        def recorded(inputs: Any) -> Any:
            output = original(inputs)
            if trainer.model.training:
                copy = {k: v.clone() if isinstance(v, torch.Tensor) else v for k, v in output.items()}
                run.batches.append((copy, trainer._neyman.batch if hasattr(trainer, "_neyman") else None))
            return output

        trainer._generate_and_score_completions = recorded


@pytest.fixture(scope="session")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """Return the bench; its policy is built once and shared between the workers of a run."""
    import torch

    from neyman.tasks import tiny_policy

    torch.set_num_threads(1)
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    config = tiny_policy.PolicyConfig(steps=25, batch=64)
    folder = tiny_policy.build_policy(config, babble, name="babble", cache=shared / "policies")
    # Every training ends in a full collection; what is imported by now is never garbage, and half the time.
    gc.collect()
    gc.freeze()
    yield Bench(folder, tmp_path_factory.mktemp("trainers"))
    gc.unfreeze()
