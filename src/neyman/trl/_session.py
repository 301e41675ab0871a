"""The adapter's state for one trainer: the strategy's run, the rollouts drawn, and how they become TRL's batch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, final

import numpy as np
import torch
from accelerate.utils import gather_object
from numpy.typing import NDArray

from neyman.controller import Batch, Controller, Request
from neyman.errors import ContractError, RunFailedError
from neyman.hosts.outcomes import outcome
from neyman.hosts.run import HostRun
from neyman.hosts.weights import row_weights
from neyman.modulation import WReinforce
from neyman.strategy import Strategy
from neyman.trl import _host as host
from neyman.trl._advantages import (
    dead_share,
    estimator_of,
    reward_of,
    row_advantages,
    total_reward,
)
from neyman.trl._behaviour import note_behaviour, restore_behaviour
from neyman.trl._checkpoint import Checkpoint
from neyman.trl._fit import check_fit, terms_of
from neyman.trl._generation import Generation
from neyman.trl._guard import Guard
from neyman.trl._kept import KeptErrors
from neyman.trl._prompts import Prompts, check_prompt_column
from neyman.trl._ranks import Ranks
from neyman.trl._store import Rollout
from neyman.trl._success import Success, Verdict
from neyman.trl._token_factor import token_mask_of
from neyman.trl._token_shaping import token_factor

Float = NDArray[np.float64]


@final
class Session:
    """One trainer's run under a strategy.

    The arguments are those of `neyman.trl.adaptive`, for a trainer that is initialised; ``hide_ids`` is whether the
    column with ids is ours alone, so that reward functions must not see it.

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
        self.trainer, self.is_rloo = trainer, host.is_rloo(trainer)
        check_prompt_column(trainer)
        self.prompts = Prompts(
            trainer.train_dataset, id_column, hide_ids=hide_ids, kept=host.kept_columns(trainer)
        )
        self.ranks = Ranks(trainer)
        kept = KeptErrors(trainer, self.prompts, self.ranks)
        self.guard = Guard(trainer, reward_timeout, kept)
        judge = Success(success, trainer, self.guard)
        self.generation = Generation(trainer, self.prompts, judge, self.guard, kept, self.ranks)
        self._positive = modulation.positive if isinstance(modulation, WReinforce) else None
        self.token_factor = token_factor(trainer, modulation)
        terms = terms_of(trainer, strategy)
        named = estimator_of(trainer, strategy, scores_itself=self._positive is not None)
        check_fit(trainer, strategy, self.prompts, terms)
        self.run = HostRun(
            strategy.with_options(estimator=named, modulation=modulation),
            terms,
            self.prompts,
            host.warner(trainer),
            max_rollouts=max_rollouts,
            features=features,
            accepts_change=accepts_strategy_change,
            retries=0.0 if self.needs_direct_path else retries,
            seed=int(trainer.args.seed),
            divisor=self.ranks.world,
        )
        self.checkpoint = Checkpoint(trainer, self.run, self.ranks, self.generation.store, self.token_factor)
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
    def controller(self) -> Controller:
        """The controller of the run."""
        return self.run.controller

    @property
    def needs_direct_path(self) -> bool:
        """Whether TRL must generate the whole batch in its own single call."""
        return host.generates_once(self.trainer)

    def _begin(self, inputs: list[dict[str, Any]]) -> None:
        self.generation.kept.forget()
        if self.prompts.ids is None:
            keys = self.prompts.bring(gather_object(list(inputs)), int(self.trainer.num_generations))
        else:
            keys = self.ranks.exchange("reading prompts", lambda: [self.prompts.key(row) for row in inputs])
        self.controller.begin(list(dict.fromkeys(keys)), policy_version=int(self.trainer.state.global_step))

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
        with host.awake(self.trainer):
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
        self.run.check(self.batch)
        self._rollouts = [self.generation.store[i] for i in self.batch.rollout_ids.tolist()]
        self._spares = [self.generation.store[i].rewards for i in self.batch.spare_ids.tolist()]
        self.generation.store.keep(self.controller.held_rollouts)
        note_behaviour(self.trainer, list(self.generation.store))
        return self._rollouts, self.prompts.rows(self.ranks.share(list(self.batch.prompt_ids)))

    def plan_direct(self, inputs: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Plan a step of one round and return this rank's rows for TRL to generate."""
        self._begin(inputs)
        self._direct = self.controller.ask()
        wanted = [(i, request.prompt_id) for request in self._direct for i in request.rollout_ids]
        if len(wanted) != int(self.trainer.args.generation_batch_size):
            raise ContractError(
                f"the plan has {len(wanted)} rows, TRL's generation batch {len(inputs)} per process"
            )
        return self.generation.agreed_rows(wanted, self.ranks.share([prompt_id for _, prompt_id in wanted]))

    def tell_direct(self, rows: list[dict[str, Any]]) -> None:
        """Report the results of TRL's single call, and close the step."""
        assert self.scored is not None
        _, prompts, completions, completion_ids = self.scored[:4]
        rewards = self.ranks.share(self.matrix.tolist())

        def judged() -> list[tuple[int, Verdict]]:
            verdicts = self.generation.judge(rows, prompts, completions, completion_ids, rewards)
            return [(len(ids), verdict) for ids, verdict in zip(completion_ids, verdicts, strict=True)]

        everyone = self.ranks.exchange("judging completions", judged)
        wanted = [(i, request.prompt_id) for request in self._direct for i in request.rollout_ids]
        self.controller.tell(
            outcome(*place, reward_of(self.trainer, row), verdict, n_tokens)
            for place, row, (n_tokens, verdict) in zip(wanted, self.matrix.tolist(), everyone, strict=True)
        )
        self.batch = self.controller.finish()
        self.run.check(self.batch)
        self._rollouts, self._spares = None, []
        if self.batch.rollout_ids.tolist() != [rollout_id for rollout_id, _ in wanted]:
            raise ContractError("the batch's rows are not the generated rows: rows are out of line")

    def finish_output(self, output: dict[str, Any]) -> None:
        """Replace TRL's equal-group advantages by those of the ragged groups, and log the step."""
        batch, trainer = self.batch, self.trainer
        assert batch is not None
        if self._rollouts is None:
            matrix: Float = self.matrix.double().cpu().numpy()
        else:
            matrix = np.array([rollout.rewards for rollout in self._rollouts], dtype=np.float64)
            ages = self.ranks.share(batch.age.tolist())
            restore_behaviour(trainer, self.ranks.share(self._rollouts), ages, output)
        # A result that the controller counts as missing must not come back through TRL's own sum over functions.
        matrix = np.where(np.isnan(batch.rewards)[:, None], np.nan, matrix)
        share: float | None = None
        if not self.is_stock(batch):
            rewards = total_reward(trainer, matrix)
            if self.is_rloo:
                rewards = rewards - trainer.beta * self._kl(output)
            spares = np.array(self._spares, dtype=np.float64).reshape(-1, matrix.shape[1])
            advantages = row_advantages(trainer, batch, matrix, rewards, spares, positive=self._positive)
            advantages = advantages * self._weights(batch, output)
            local = output["advantages"]
            output["advantages"] = torch.as_tensor(
                self.ranks.share(advantages), dtype=local.dtype, device=local.device
            )
            host.set_logged_advantages(trainer, advantages.tolist())
            share = dead_share(trainer, batch, rewards)
        host.log_metrics(trainer, self.run.metrics(batch, self.generation_seconds), share)

    def _weights(self, batch: Batch, output: dict[str, Any]) -> Float:
        """Return the prompt weights by the tokens that the loss counts: without tool results and masked rows."""
        terms = self.run.terms
        if terms.aggregation != "token_mean" or not batch.weights.any():
            return batch.weights
        tokens = self.trainer.accelerator.gather(token_mask_of(output).sum(1)).cpu().numpy()
        return row_weights(batch, tokens, self.run.strategy, terms.aggregation)

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
        if self._positive is not None or batch.estimator == "reinforce++":
            return False
        whole = bool((batch.age == 0).all()) and not len(batch.spare_ids)
        return bool(np.array_equal(batch.groups, equal) and (batch.weights == 1.0).all() and whole)

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Record the log-probabilities that TRL computes while it builds a batch."""
        self._logps = []
        yield

    def note_logps(self, logps: torch.Tensor) -> None:
        """Note log-probabilities that TRL computed; only while listening."""
        if self._logps is not None and len(self._logps) < 2 and not logps.requires_grad:
            self._logps.append(logps)

    def share_failures(self, doing: str) -> None:
        """Let all processes raise an error that was kept on one of them."""
        self.ranks.exchange(doing, self.generation.kept.release)
