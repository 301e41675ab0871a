"""What the adapter holds for one trainer: the controller, the rollouts drawn, and how they become TRL's batch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any, final

import numpy as np
import torch
from accelerate.utils import gather_object
from numpy.typing import NDArray

from neyman import formulas
from neyman.controller import Controller
from neyman.errors import ArgumentError, ContractError, RunFailedError
from neyman.hosts.identity import describe
from neyman.modulation.rivals import WReinforce
from neyman.randomness import fingerprint
from neyman.step.batch import Batch
from neyman.step.messages import Budget, Request
from neyman.step.missing import MissingReward
from neyman.strategy import Strategy
from neyman.trl._advantages import (
    aggregation,
    check_baseline,
    estimator,
    grpo_advantages,
    reward_of,
    rloo_advantages,
    total_reward,
    w_reinforce,
)
from neyman.trl._alarms import Alarms
from neyman.trl._behaviour import check_carry_over, note_behaviour, restore_behaviour
from neyman.trl._checkpoint import Checkpoint
from neyman.trl._features import register_features
from neyman.trl._fit import budget_of, check_fit, check_prompt_column
from neyman.trl._generation import Generation, outcome
from neyman.trl._guard import Guard
from neyman.trl._logging import log_step
from neyman.trl._prompts import Prompts
from neyman.trl._ranks import Ranks
from neyman.trl._store import Rollout
from neyman.trl._success import Success
from neyman.trl._token_shaping import token_factor

Float = NDArray[np.float64]


@final
class Session:
    """One trainer's run under a strategy.

    Args:
        trainer: the adapted TRL trainer, initialised.
        strategy: the strategy.
        success: how the verified outcome is read (see `neyman.trl.adaptive`).
        max_rollouts: the most rollouts per generation batch for strategies that close with fixed train.
        retries: re-draws of rollouts without a reward, as a share of the budget, in [0, 1].
        id_column: the dataset column with prompt ids.
        hide_ids: whether that column is ours alone, so that reward functions must not see it.
        features: prompt features for beliefs that use them.
        modulation: settings of the token factor, or None.
        accepts_strategy_change: whether a checkpoint of another strategy may be resumed.
        reward_timeout: seconds that one call of a reward function may take; None sets no limit.

    Raises:
        ArgumentError: settings that contradict each other or the trainer; the message has the way out.
    """

    def __init__(
        self,
        trainer: Any,
        strategy: Strategy,
        *,
        success: Any,
        max_rollouts: int | None,
        retries: float,
        id_column: str,
        hide_ids: bool,
        features: Any,
        modulation: Any,
        accepts_strategy_change: bool = False,
        reward_timeout: float | None = None,
    ) -> None:
        self.trainer = trainer
        self.accepts_strategy_change = accepts_strategy_change
        self.is_rloo = not hasattr(trainer, "loss_type")
        rows = int(trainer.args.generation_batch_size)
        self.budget = budget_of(strategy, max_rollouts, rows)
        check_prompt_column(trainer)
        kept = trainer._signature_columns if trainer.args.remove_unused_columns else None  # noqa: SLF001
        self.prompts = Prompts(trainer.train_dataset, id_column, hide_ids=hide_ids, kept=kept)
        self.ranks, self.guard = Ranks(trainer), Guard(trainer, reward_timeout)
        judge = Success(success, trainer, self.guard)
        self.generation = Generation(trainer, self.prompts, judge, self.guard, self.ranks)
        self._w_reinforce = modulation if isinstance(modulation, WReinforce) else None
        self.token_factor = token_factor(self, modulation)
        world = int(trainer.accelerator.num_processes)
        self._aggregation = aggregation(trainer, strategy, is_rloo=self.is_rloo)
        named = estimator(
            trainer, strategy, is_rloo=self.is_rloo, scores_itself=self._w_reinforce is not None
        )
        strategy = strategy.with_options(estimator=named)
        self.identity = describe(strategy.with_options(modulation=modulation))
        self.controller = Controller(
            strategy,
            Budget(rollouts=self.budget),
            train_rows=rows,
            divisor=world,
            pool=self.prompts.ids,
            retries=0.0 if self.needs_direct_path else retries,
            seed=int(trainer.args.seed),
            aggregation=self._aggregation,
        )
        if self.needs_direct_path and (strategy.verdict is not None or strategy.allocate.probe):
            raise ArgumentError(
                f"strategy {strategy.name!r} draws in several rounds, which tools, environments and images do not "
                "allow here: TRL sets them up once per batch. Use a strategy of one round, such as 'vip', 'dynamo' or "
                "'uniform'"
            )
        check_carry_over(self)
        check_baseline(trainer, strategy, is_rloo=self.is_rloo)
        check_fit(trainer, strategy, self.prompts, self.budget, self._aggregation)
        register_features(trainer, self.controller.strategy.belief, self.prompts, features)
        self.checkpoint = Checkpoint(self)
        self._alarms = Alarms(self)
        self.sampler: Any = None
        self.batch: Batch | None = None
        self.generation_seconds = 0.0  # of the last batch, verification included
        self.matrix: Any = None
        self.scored: tuple[Any, ...] | None = None
        self._rollouts: list[Rollout] | None = None
        self._spares: list[list[float]] = []  # rewards of rollouts that are in a baseline and do not train
        self._direct: list[Request] = []
        self._logps: list[torch.Tensor] | None = None

    @property
    def needs_direct_path(self) -> bool:
        """Whether TRL must generate the whole batch in its own single call."""
        trainer = self.trainer
        environments = getattr(trainer, "environment_factories", None) or getattr(
            trainer, "environments", None
        )
        columns = getattr(trainer.train_dataset, "column_names", None) or ()
        return bool(getattr(trainer, "tools", None) or environments or {"image", "images"} & set(columns))

    def _begin(self, inputs: list[dict[str, Any]]) -> None:
        self.generation.kept.forget()
        if self.prompts.ids is None:
            keys = self.prompts.bring(gather_object(list(inputs)), int(self.trainer.num_generations))
        else:
            keys = self.ranks.exchange("reading prompts", lambda: [self.prompts.key(row) for row in inputs])
        self.controller.begin(list(dict.fromkeys(keys)), policy_version=int(self.trainer.state.global_step))

    @cached_property
    def prompts_digest(self) -> str:
        """A hash of ids and texts of all training prompts, to refuse a checkpoint of another dataset."""
        if self.prompts.ids is None:
            return "stream"
        return fingerprint([*map(str, self.prompts.ids), *self.prompts.texts()])

    def modulation_state(self) -> dict[str, Any]:
        """Return what the token factor carries from batch to batch, JSON-safe."""
        return {} if self.token_factor is None else self.token_factor.state_dict()

    def load_modulation_state(self, state: dict[str, Any]) -> None:
        """Restore what the token factor carries from batch to batch."""
        if self.token_factor is not None:
            self.token_factor.load_state_dict(state)

    def skip_epochs(self, epochs: int) -> None:
        """Bring the prompts' order to an epoch: TRL's sampler starts every process with the first one's."""
        generator = getattr(self.sampler, "generator", None)
        for _ in range(epochs if generator is not None else 0):
            torch.randperm(len(self.sampler.data_source), generator=generator)

    def draw(self, inputs: list[dict[str, Any]]) -> tuple[list[Rollout], list[dict[str, Any]]]:
        """Draw a step's rollouts round by round.

        Returns:
            The rollouts of the batch (all ranks' rows) and this rank's dataset rows.
        """
        self._begin(inputs)
        width = int(self.trainer.args.generation_batch_size)
        with self._awake():
            while not self.controller.is_done:
                requests = self.controller.ask(capacity=width)
                if not requests:
                    break
                outcomes, filler, filler_tokens = self.generation.run(requests)
                self.controller.tell(outcomes)
                if filler:
                    self.controller.record_padding(filler, filler_tokens)
        self.batch = self.controller.finish()
        if len(self.batch) == 0:
            raise RunFailedError(
                "no rollout of this step could be used: "
                + (self.controller.first_error or self.batch.stop_reason.value)
            )
        self._alarms.hear(self.batch)
        self._rollouts = [self.generation.store[i] for i in self.batch.rollout_ids.tolist()]
        self._spares = [self.generation.store[i].rewards for i in self.batch.spare_ids.tolist()]
        self.generation.store.keep(self.controller.held_rollouts)
        note_behaviour(self, list(self.generation.store))
        return self._rollouts, self.prompts.rows(self._local(list(self.batch.prompt_ids)))

    def _local(self, rows: list[Any]) -> list[Any]:
        share = len(rows) // self.ranks.world
        return rows[self.ranks.index * share : (self.ranks.index + 1) * share]

    def plan_direct(self, inputs: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Plan a step of one round and return this rank's rows for TRL to generate."""
        self._begin(inputs)
        self._direct = self.controller.ask()
        wanted = [(i, request.prompt_id) for request in self._direct for i in request.rollout_ids]
        if len(wanted) != int(self.trainer.args.generation_batch_size):
            raise ContractError(
                f"the plan has {len(wanted)} rows, TRL's generation batch {len(inputs)} per process"
            )
        return self.generation.agreed_rows(wanted, self._local([prompt_id for _, prompt_id in wanted]))

    def tell_direct(self, rows: list[dict[str, Any]]) -> None:
        """Report what TRL generated and scored in its single call, and close the step."""
        assert self.scored is not None
        _, prompts, completions, completion_ids = self.scored[:4]
        judge, local = self.generation.success, self._local(self.matrix.tolist())

        def judged() -> list[tuple[int, bool | None, MissingReward | None]]:
            self.generation.kept.release()
            verdicts = judge(rows, prompts, completions, completion_ids, local)
            faults = self.guard.faults
            return [
                (len(ids), verdict, faults.get(row))
                for row, (ids, verdict) in enumerate(zip(completion_ids, verdicts, strict=True))
            ]

        told = self.ranks.exchange("judging completions", judged)
        wanted = [(i, request.prompt_id) for request in self._direct for i in request.rollout_ids]
        rewards = [reward_of(self.trainer, row) for row in self.matrix.tolist()]
        self.controller.tell(
            outcome(
                *place,
                reward,
                verdict,
                n_tokens,
                fault,
                is_undecided=judge.is_undecided(verdict),
            )
            for place, reward, (n_tokens, verdict, fault) in zip(wanted, rewards, told, strict=True)
        )
        self.batch = self.controller.finish()
        self._alarms.hear(self.batch)
        self._rollouts = None
        if self.batch.rollout_ids.tolist() != [rollout_id for rollout_id, _ in wanted]:
            raise ContractError("the batch's rows are not the generated rows: rows are out of line")

    def finish_output(self, output: dict[str, Any]) -> None:
        """Replace TRL's equal-group advantages by those of the ragged groups, and log the step."""
        batch = self.batch
        assert batch is not None
        if self._rollouts is None:
            matrix: Float = self.matrix.double().cpu().numpy()
        else:
            matrix = np.array([rollout.rewards for rollout in self._rollouts], dtype=np.float64)
            local_ages = self._local(batch.age.tolist())
            restore_behaviour(self, self._local(self._rollouts), local_ages, output)
        matrix = np.where(np.isnan(batch.rewards)[:, None], np.nan, matrix)
        rewards: Float | None = None
        if not self.is_stock(batch):
            rewards = self.final_rewards(matrix, output)
            advantages = self.advantages(matrix, rewards) * self._weights(batch, output)
            local = output["advantages"]
            share = len(local)
            mine = advantages[self.ranks.index * share : (self.ranks.index + 1) * share]
            output["advantages"] = torch.as_tensor(mine, dtype=local.dtype, device=local.device)
            logged = self.trainer._logs["advantages"]  # noqa: SLF001 (TRL's completions table)
            for place, value in enumerate(advantages.tolist(), start=-len(advantages)):
                logged[place] = value
        log_step(self, batch, rewards if self._scales_by_group else None)

    @property
    def _scales_by_group(self) -> bool:
        """Whether TRL's share of rows without spread is about groups, not about the whole batch."""
        sums = (
            getattr(self.trainer, "multi_objective_aggregation", "sum_then_normalize") == "sum_then_normalize"
        )
        return sums and getattr(self.trainer, "scale_rewards", "group") != "batch"

    def final_rewards(self, matrix: Float, output: dict[str, Any]) -> Float:
        """Return each row's reward [all ranks' rows], with the KL penalty that RLOO folds in; NaN where missing."""
        rewards = total_reward(self.trainer, matrix)
        return rewards - self.trainer.beta * self._kl(output) if self.is_rloo else rewards

    def advantages(self, matrix: Float, rewards: Float) -> Float:
        """Return the advantages [all ranks' rows] over ragged groups: the trainer's own, or REINFORCE++'s.

        Rollouts that do not train but are in their group's baseline count in every statistic of it.
        """
        assert self.batch is not None
        if self._w_reinforce is not None:
            return w_reinforce(self.batch.success, self._w_reinforce.positive)
        rows, groups = len(rewards), self.batch.groups
        if self._spares:
            spares = np.array(self._spares, dtype=np.float64)
            matrix = np.concatenate([matrix, spares])
            rewards = np.concatenate([rewards, total_reward(self.trainer, spares)])
            groups = np.concatenate([groups, self.batch.spare_groups])
        if self.controller.strategy.estimator == "reinforce++":
            return formulas.group_advantages(rewards, groups, estimator="reinforce++")[:rows]
        if self.is_rloo:
            return rloo_advantages(self.trainer, rewards, groups)[:rows]
        return grpo_advantages(self.trainer, matrix, groups)[:rows]

    def _weights(self, batch: Batch, output: dict[str, Any]) -> Float:
        """Return the prompt weights by the tokens that the loss counts: without tool results and masked rows."""
        if self._aggregation != "token_mean" or not batch.weights.any():
            return batch.weights
        mask = output["completion_mask"]
        if "tool_mask" in output:
            mask = mask * output["tool_mask"]
        tokens = self.trainer.accelerator.gather(mask.sum(1)).cpu().numpy()
        return formulas.prompt_weights(
            batch.groups,
            tokens,
            prompt_weight=self.controller.strategy.prompt_weight,
            aggregation=self._aggregation,
            trained=batch.weights > 0.0,
            copies=batch.copies if (batch.copies > 1).any() else None,
        )

    def _kl(self, output: dict[str, Any]) -> Float | float:
        """Return each row's summed log-ratio to the reference policy, which RLOO folds into the reward."""
        if self.trainer.beta == 0.0 or self._logps is None:
            return 0.0
        old, reference = self._logps[:2]
        local = ((old - reference) * output["completion_mask"]).sum(-1)
        gathered: Float = self.trainer.accelerator.gather(local).double().cpu().numpy()
        return gathered

    def is_stock(self, batch: Batch) -> bool:
        """Whether TRL's own equal-group view of the batch is right to the bit, so that nothing is replaced."""
        size = int(self.trainer.num_generations)
        equal = np.repeat(np.arange(len(batch) // size), size)
        if self._w_reinforce is not None or batch.estimator == "reinforce++":
            return False
        whole = bool((batch.age == 0).all()) and not len(batch.spare_ids)
        return bool(np.array_equal(batch.groups, equal) and (batch.weights == 1.0).all() and whole)

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Record the log-probabilities that TRL computes while it builds a batch."""
        self._logps = []
        yield

    def heard(self, logps: torch.Tensor) -> None:
        """Take note of log-probabilities that TRL computed; only while listening."""
        if self._logps is not None and len(self._logps) < 2 and not logps.requires_grad:
            self._logps.append(logps)

    def share_failures(self, doing: str) -> None:
        """Let all processes raise what was kept on one of them."""

        def release() -> list[None]:
            self.generation.kept.release()
            return []

        self.ranks.exchange(doing, release)

    @contextmanager
    def one_generation_per_row(self) -> Iterator[None]:
        """Make engines that repeat prompts themselves treat every row as its own prompt."""
        trainer = self.trainer
        stock = trainer.num_generations
        trainer.num_generations = 1
        try:
            yield
        finally:
            trainer.num_generations = stock

    @contextmanager
    def _awake(self) -> Iterator[None]:
        """Keep a colocated vLLM engine awake between rounds: each sleep would cost a push of all weights."""
        engine = getattr(self.trainer, "vllm_generation", None)
        if engine is None or not getattr(engine, "enable_sleep_mode", False) or engine.mode != "colocate":
            yield
            return
        engine.llm.wake_up()
        engine.enable_sleep_mode = False
        try:
            yield
        finally:
            engine.enable_sleep_mode = True
            engine.llm.sleep(level=2)
            if hasattr(engine, "_llm_weights_sleeping"):
                engine._llm_weights_sleeping = True  # noqa: SLF001
