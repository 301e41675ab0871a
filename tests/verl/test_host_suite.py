"""The contract of adapters, kept by `neyman_sync` in one process, and broken on purpose.

Trainer, data loader, replay buffer, advantages and checkpoints are verl's own. Its queue is held in memory, agent loops
answer at once, and no worker is started; `test_training` has the same on a real cluster.
"""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch

from neyman.hosts.run import HostRun
from neyman.testing import BrokenContract, HostCase, HostRecord, HostStep, HostSuite
from neyman.verl import _rounds


class Queue:
    """verl's queue in memory: tags and fields by key."""

    def __init__(self) -> None:
        self.tags: dict[str, dict[str, Any]] = {}
        self.fields: dict[str, dict[str, Any]] = {}

    def kv_list(self, partition_id: str | None = None) -> dict[str, Any]:
        return {"train": dict(self.tags)}

    def kv_batch_get(self, keys: list[str], partition_id: str, select_fields: list[str]) -> Any:
        from verl.utils import tensordict_utils as tu

        names = [name for name in select_fields if name in self.fields[keys[0]]]
        return tu.get_tensordict({name: _column([self.fields[key][name] for key in keys]) for name in names})

    def kv_batch_put(self, keys: list[str], partition_id: str, fields: Any = None, tags: Any = None) -> Any:
        from transfer_queue import KVBatchMeta

        for place, key in enumerate(keys):
            self.tags.setdefault(key, {}).update(tags[place] if tags is not None else {})
            for name in () if fields is None else fields.keys():
                value = fields[name]
                rows = value.unbind() if isinstance(value, torch.Tensor) else value
                self.fields.setdefault(key, {})[name] = getattr(rows[place], "data", rows[place])
        return KVBatchMeta(partition_id=partition_id, keys=keys, tags=[self.tags[key] for key in keys])

    def kv_clear(self, keys: list[str], partition_id: str) -> None:
        for key in keys:
            self.tags.pop(key, None)
            self.fields.pop(key, None)


def _column(values: list[Any]) -> Any:
    if isinstance(values[0], torch.Tensor):
        return torch.nested.as_nested_tensor(values, layout=torch.jagged)
    return np.array(values, dtype=object)


class Loops:
    """Agent loops that answer at once; the n-th answer to a prompt in a step is always the same."""

    def __init__(self, queue: Queue, case: HostCase, texts: dict[str, int]) -> None:
        self._queue, self._case, self._texts = queue, case, texts
        self._asked: Counter[tuple[int, int]] = Counter()
        self.answers: dict[str, tuple[int, str]] = {}
        self.generated: list[tuple[int, str]] = []

    def generate_sequences(self, batch: Any) -> None:
        counts = batch.get("__rollout_n__", None)
        for place, uid in enumerate(batch["uid"]):
            prompt = self._texts[batch["raw_prompt"][place][0]["content"]]
            count = self._case.group_size if counts is None else int(batch["__rollout_n__"][place])
            settled = [self._answer(uid, prompt, s, int(batch["global_steps"])) for s in range(count)]
            self._queue.tags[uid]["status"] = "finished" if all(settled) else "failure"

    def _answer(self, uid: str, prompt: int, session: int, step: int) -> bool:
        self._asked[step, prompt] += 1
        answer = (prompt, f"{step}:{self._asked[step, prompt]}")
        self.generated.append(answer)
        try:
            reward = self._case.reward(*answer)
        except RuntimeError:
            reward = None
        if reward is None:
            return False
        key, tokens = f"{uid}_{session}_0", 1 + len(answer[1]) % 3
        scores = torch.zeros(tokens)
        scores[-1] = reward
        self._queue.tags[key] = {
            "status": "success",
            "response_len": tokens,
            "seq_len": tokens + 2,
            "global_steps": step,
        }
        self._queue.fields[key] = {
            "uid": uid,
            "rm_scores": scores,
            "response_mask": torch.ones(tokens),
            "extra_fields": {"reward_extra_info": {}},
        }
        self.answers[key] = answer
        return True


class Driver:
    """Runs trainings through ``neyman_sync``.

    Args:
        bench: composes verl's configuration.
        folder: for data and checkpoints.
    """

    def __init__(self, bench: Any, folder: Path) -> None:
        self._bench, self._folder = bench, folder

    def train(self, case: HostCase) -> HostRecord:
        import transfer_queue

        self._folder.mkdir(exist_ok=True)
        out = self._folder / f"run-{len(list(self._folder.iterdir()))}"
        texts = {f"A{i % 10}{i // 10}{i * 7 % 10}=": i for i in case.prompts}
        queue = Queue()
        loops = Loops(queue, case, texts)
        replaced = {
            name: getattr(queue, name) for name in ("kv_list", "kv_batch_get", "kv_batch_put", "kv_clear")
        }
        with patch.multiple(transfer_queue, **replaced), patch(f"{__name__}.STRATEGY", case.strategy):
            trainer = self._trainer(case, out, texts, loops)
            steps = [
                self._step(trainer, number, loops, queue, case) for number in self._numbers(trainer, case)
            ]
        checkpoint = out / f"global_step_{case.save_after}" if case.save_after else None
        return HostRecord(steps=steps, controller=getattr(trainer, "controller", None), checkpoint=checkpoint)

    def _trainer(self, case: HostCase, out: Path, texts: dict[str, int], loops: Loops) -> Any:
        import pyarrow as pa
        from pyarrow import parquet
        from verl.trainer.ppo.v1 import get_trainer_cls

        out.mkdir()
        rows = [{"prompt": [{"role": "user", "content": text}], "data_source": "babble"} for text in texts]
        parquet.write_table(pa.Table.from_pylist(rows), out / "train.parquet")
        ours = {
            "strategy": f"{__name__}:made",
            "max_rollouts": case.max_rollouts,
            "retries": case.retries,
            "accept_strategy_change": case.accepts_change,
            "barrier": True,
        }
        resume = {"trainer__resume_mode": "disable"}
        if case.resume is not None:
            copy = shutil.copytree(case.resume, out / case.resume.name)
            resume = {"trainer__resume_mode": "resume_path", "trainer__resume_from_path": str(copy)}
        config = self._bench.config(
            algorithm__adv_estimator="grpo",
            data__train_files=str(out / "train.parquet"),
            data__train_batch_size=case.prompts_per_step,
            actor_rollout_ref__rollout__n=case.group_size,
            trainer__default_local_dir=str(out),
            neyman=None if case.strategy is None else ours,
            **resume,
        )
        trainer = get_trainer_cls(config.trainer.v1.trainer_mode)(config)
        trainer._init_tokenizer()
        trainer._init_dataloader()
        nothing = lambda *_, **__: None  # noqa: E731
        trainer.agent_loop_manager = loops
        trainer.actor_rollout_wg = SimpleNamespace(
            _dispatch_info={"actor": [0]}, save_checkpoint=nothing, load_checkpoint=nothing
        )
        trainer._load_checkpoint()
        return trainer

    @staticmethod
    def _numbers(trainer: Any, case: HostCase) -> range:
        return range(trainer.global_steps + 1, case.steps + 1)

    @staticmethod
    def _step(trainer: Any, number: int, loops: Loops, queue: Queue, case: HostCase) -> HostStep:
        trainer.global_steps = number
        trainer.prepare_step()
        batch, metrics = trainer.replay_buffer.sample(
            global_steps=number, partition_id="train", batch_size=case.prompts_per_step
        )
        keys = trainer._compute_advantage(batch, metrics).keys
        step = HostStep(
            rows=[loops.answers[key] for key in keys],
            advantages=np.array([float(queue.fields[key]["advantages"][0]) for key in keys]),
            generated=list(loops.generated),
            metrics=metrics,
        )
        loops.generated.clear()
        queue.kv_clear(list(queue.tags), "train")
        if case.save_after == number:
            trainer._save_checkpoint()
        return step


STRATEGY: Any = None


def made() -> Any:
    """Return the strategy of the case, as a function that verl's configuration names."""
    return STRATEGY


class VerlSuite(HostSuite):
    __test__ = False
    group_setting = "actor_rollout_ref.rollout.n"
    eps = 1e-6
    fills_batch = False
    keeps_no_rollouts = "verl's queue is emptied after each step"

    @pytest.fixture(autouse=True)
    def _trainer(self, bench: Any, tmp_path: Path) -> None:
        self._driver = Driver(bench, tmp_path / "runs")

    def make(self) -> Driver:
        return self._driver


class TestNeymanSync(VerlSuite):
    pass


def zeros_for_missing(rollout_id: int, prompt_id: Any, reward: float, success: Any, n_tokens: int) -> Any:
    from neyman.hosts.outcomes import outcome

    is_missing = reward != reward
    return outcome(
        rollout_id, prompt_id, 0.0 if is_missing else reward, False if is_missing else success, n_tokens
    )


BROKEN = {
    "missing is 0": (
        (_rounds, "outcome", zeros_for_missing),
        HostSuite.test_missing_results_are_drawn_again_and_never_become_rewards,
    ),
    "forgets": ((HostRun, "restore", lambda *_: None), HostSuite.test_resumed_equals_never_stopped),
    "by rollouts": (
        ("neyman.verl._trainer.row_factors", lambda *args, **named: np.ones(len(args[1]))),
        HostSuite.test_unequal_groups_weigh_prompts_equally,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_adapter_is_caught(
    bench: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    broken, check = BROKEN[name]
    monkeypatch.setattr(*broken)
    suite = VerlSuite()
    suite._driver = Driver(bench, tmp_path / "runs")
    with pytest.raises(BrokenContract):
        check(suite)
