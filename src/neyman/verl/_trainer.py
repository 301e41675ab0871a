"""verl's synchronous trainer under a strategy: four overrides around its own step, and nothing of it copied.

``_init_dataloader`` numbers the prompts and makes the controller, ``prepare_step`` opens a step instead of submitting
``rollout.n`` sessions for every prompt, the replay buffer's ``sample`` draws it round by round, ``_compute_advantage``
groups by prompt and weighs. Two more keep state in the checkpoint.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, final

import numpy as np
import ray
import torch
import transfer_queue as tq
from omegaconf import OmegaConf
from ray.exceptions import RayError
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.v1 import PPOTrainerSync, register_trainer
from verl.utils import tensordict_utils as tu
from verl.workers.utils.padding import response_to_nested

from neyman.controller import Batch, Controller, Request
from neyman.errors import ContractError, RunFailedError
from neyman.verl import _checkpoint
from neyman.verl._advantages import estimator_of, mini_batches_of, row_factors, with_spares, without_signal
from neyman.verl._fit import check_config, open_run
from neyman.verl._prompts import NUMBER, Prompts, distinct, numbered
from neyman.verl._rounds import PARTITION, Rounds
from neyman.verl._settings import Settings
from neyman.verl._success import Success
from neyman.verl._tokens import modulation_of, token_factor


@register_trainer("neyman_sync")
class NeymanTrainerSync(PPOTrainerSync):  # type: ignore[misc]  # verl is not typed
    """verl's ``sync`` trainer whose rollouts a strategy allocates; see `neyman.verl`.

    ``data.train_batch_size * actor_rollout_ref.rollout.n`` is the budget of a step, and ``rollout.n`` the *average*
    group size. Strategies with fixed train draw up to ``neyman.max_rollouts`` and train as many rows.

    Raises:
        ArgumentError: settings that contradict each other or verl's configuration; the message has the way out.

    Guarantee: under ``neyman.strategy=uniform`` every prompt of verl's batch gets ``rollout.n`` sessions, and
    advantages are verl's own, but for groups of equal rewards, which get 0 and not their mean's rounding error.
    """

    @property
    def trainer_mode(self) -> str:
        """The mode whose configuration and behaviour this trainer has: verl compares it with names of its own."""
        return "sync"

    @trainer_mode.setter
    def trainer_mode(self, value: str) -> None:
        """Take no notice of the registered name, which verl sets."""

    def _init_dataloader(self) -> None:
        config = self.config
        section = config.get("neyman")
        plain = OmegaConf.to_container(section, resolve=True) if OmegaConf.is_config(section) else section
        self._settings = Settings.from_mapping(plain)
        check_config(config)
        super()._init_dataloader()
        self.train_dataloader = numbered(self.train_dataloader)  # type: ignore[has-type]
        self._prompts = Prompts(self.train_dataset)
        strategy = self._settings.build_strategy(group_size=int(config.actor_rollout_ref.rollout.n))
        self._modulation = modulation_of(config, strategy)  # refuses before anything is computed from prompts
        self._run = open_run(config, self._settings, strategy, self._prompts)
        self._rounds = Rounds(
            self.controller,
            self._submit,
            Success(self._settings.success, self._settings.threshold),
            self._check_alive,
            barrier=self._settings.barrier,
        )
        self._drawn: Batch | None = None
        self._places: dict[str, int] = {}
        self._began = 0.0

    @property
    def controller(self) -> Controller:
        """The controller of the run: its ledger, the belief, the last step's groups."""
        return self._run.controller

    def _build_replay_buffer(self) -> Any:
        return _Buffer(super()._build_replay_buffer(), self)

    def prepare_step(self) -> dict[str, Any]:
        """Open the step and submit its first round."""
        self._began = time.monotonic()
        self._begin()
        return {}

    def _begin(self) -> None:
        numbers = [int(number) for number in tu.get(self._next_train_batch(), NUMBER)]
        # verl counts steps from 1; its first rollouts are of version 0 of the weights.
        self._rounds.begin(distinct(numbers, len(self._prompts.ids)), policy_version=self.global_steps - 1)

    def _check_alive(self) -> None:
        """Raise when an agent loop is gone: its rollouts would be waited for without an end."""
        try:
            ray.get([worker.__ray_ready__.remote() for worker in self.agent_loop_manager.agent_loop_workers])
        except RayError as error:
            raise RunFailedError(
                f"an agent loop of verl's is gone, with the rollouts it had: {error}"
            ) from error

    def _submit(self, requests: Sequence[Request], uids: Sequence[str]) -> None:
        rows = self._prompts.rows([int(request.prompt_id) for request in requests])
        batch = tu.get_tensordict({**rows, "uid": np.array(uids, dtype=object)})
        tu.assign_non_tensor_data(batch, "global_steps", self.global_steps)
        # Read by verl's agent loops in the place of ``rollout.n``, as validation does.
        tu.assign_non_tensor_stack(batch, "__rollout_n__", [len(request.rollout_ids) for request in requests])
        self._submit_batch_to_rollout(batch)

    def draw(self) -> tuple[KVBatchMeta, dict[str, float]]:
        """Draw the open step to its end; return verl's rows to train on and the step's numbers.

        Raises:
            RunFailedError: ten steps in a row without any rollout to train on.
        """
        while True:
            batch = self._rounds.finish()
            taken = self._rounds.take(batch)
            self._run.check(batch)
            if len(batch):
                break
            self._begin()  # verl's step cannot go on without a row
        self._drawn = batch
        self._places = {
            key: place
            for place, rollout_id in enumerate(batch.rollout_ids.tolist())
            for key in self._rounds.drawn.keys[rollout_id]
        }
        return taken, self._run.metrics(batch, time.monotonic() - self._began)

    def _compute_advantage(self, batch: KVBatchMeta, metrics: dict[str, Any]) -> KVBatchMeta:
        drawn = self._drawn
        if drawn is None:
            raise ContractError("verl computes advantages of a step that was not drawn")
        places = np.array([self._places.get(key, -1) for key in batch.keys], dtype=np.int64)
        self._group(batch, drawn, places)
        # Before verl's own: its estimators compare rows of one uid, and a prompt has one for each request.
        batch = super()._compute_advantage(batch, metrics)
        needed = ["advantages", "response_mask"]
        if self._modulation is not None:
            needed += ["entropy", "old_log_probs"]
        data = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=needed)
        nested, padded = data["response_mask"], data.to_padded_tensor()
        stock = padded["advantages"]
        advantages = self._weighed(drawn, places, stock, padded)
        if advantages is stock:
            return batch
        changed = tu.get_tensordict({"advantages": response_to_nested(advantages, nested)})
        return tq.kv_batch_put(keys=batch.keys, partition_id=batch.partition_id, fields=changed)

    def _weighed(self, drawn: Batch, places: np.ndarray, advantages: torch.Tensor, rows: Any) -> torch.Tensor:
        """Return the advantages [rows, tokens] that train; verl's own tensor where nothing is to be changed."""
        mask = rows["response_mask"]
        if len(drawn.spare_ids):
            values = np.where(places < 0, 0.0, with_spares(drawn, estimator_of(self.config))[places])
            advantages = torch.as_tensor(values, dtype=advantages.dtype)[:, None] * mask
        factors = row_factors(
            drawn,
            places,
            mask.sum(-1).numpy(),
            self.controller.strategy,
            self._run.terms.aggregation,
            silent=without_signal(drawn, self.config),
            mini_batches=self._mini_batches(len(places)),
        )
        # Without a change the tensor is verl's own, and is not written back: stock runs stay equal to the bit.
        if (factors != 1.0).any():
            advantages = advantages * torch.as_tensor(factors, dtype=advantages.dtype)[:, None]
        if self._modulation is not None:
            advantages = advantages * token_factor(
                self._modulation,
                logps=rows["old_log_probs"],
                entropies=rows["entropy"],
                advantages=advantages,
                mask=mask,
            )
        return advantages

    def _mini_batches(self, rows: int) -> np.ndarray | None:
        config = self.config.actor_rollout_ref
        ranks = 1 + max(self.actor_rollout_wg._dispatch_info["actor"])  # noqa: SLF001 (as verl's own _balance_batch)
        return mini_batches_of(rows, int(config.actor.ppo_mini_batch_size) * int(config.rollout.n), ranks)

    def _group(self, batch: KVBatchMeta, drawn: Batch, places: np.ndarray) -> None:
        """Let verl see one group per prompt: its rollouts of several rounds came under several uids."""
        real = [(key, place) for key, place in zip(batch.keys, places.tolist(), strict=True) if place >= 0]
        groups = np.array([f"group{drawn.groups[place]}" for _, place in real], dtype=object)
        fields = tu.get_tensordict({"uid": groups})
        tq.kv_batch_put(keys=[key for key, _ in real], partition_id=batch.partition_id, fields=fields)

    def _save_checkpoint(self) -> None:
        _checkpoint.save(_checkpoint.folder_of(self.config, self.global_steps), self._run)
        super()._save_checkpoint()

    def _load_checkpoint(self) -> None:
        super()._load_checkpoint()
        if self.global_steps:
            folder = _checkpoint.resumed_folder(self.config, self.global_steps)
            _checkpoint.load(folder, self._run, accepts_stock=self._settings.accept_strategy_change)


@final
class _Buffer:
    """verl's replay buffer for validation; for training, the step that the strategy draws."""

    def __init__(self, stock: Any, trainer: NeymanTrainerSync) -> None:
        self._stock, self._trainer = stock, trainer

    def sample(
        self, global_steps: int, partition_id: str, batch_size: int
    ) -> tuple[KVBatchMeta, dict[str, Any]]:
        """Return a batch of rows and the metrics of how it came."""
        if partition_id != PARTITION:
            return self._stock.sample(  # type: ignore[no-any-return]
                global_steps=global_steps, partition_id=partition_id, batch_size=batch_size
            )
        return self._trainer.draw()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stock, name)
