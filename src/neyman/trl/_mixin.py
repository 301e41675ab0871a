"""The trainer mixin: four overrides around TRL's own generation, and the session behind them."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from neyman.strategy import Strategy, check_strategy
from neyman.trl._held import held
from neyman.trl._host import keep_column, replaced
from neyman.trl._prompts import ID_COLUMN, with_ids
from neyman.trl._session import Session


class AdaptiveMixin:
    """Adds neyman to a TRL trainer; use `neyman.trl.adaptive`.

    Overrides four methods of TRL, each with one purpose: ``_generate_and_score_completions`` draws the
    rollouts that the strategy asks for and lets TRL build its batch from them, ``_generate_single_turn`` and
    ``_calculate_rewards`` serve drawn rollouts, ``_get_per_token_logps_and_entropies`` is observed (RLOO's
    KL, the token factor). ``_compute_loss`` gives tokens their factor, and five more keep state in the checkpoint
    and find it again.
    """

    _neyman: Session

    def __init__(
        self,
        *args: Any,
        strategy: Strategy | None = None,
        success: Callable[..., list[bool | None]] | tuple[str, float] | None = None,
        max_rollouts: int | None = None,
        retries: float = 0.1,
        id_column: str = ID_COLUMN,
        features: Any = None,
        modulation: Any = "strategy",
        accept_strategy_change: bool = False,
        reward_timeout: float | None = None,
        **kwargs: Any,
    ) -> None:
        strategy = check_strategy(strategy)
        super().__init__(*args, **kwargs)
        dataset = self.train_dataset  # type: ignore[has-type]
        self.train_dataset = with_ids(dataset, id_column)
        keep_column(self, id_column)
        self._neyman = Session(
            self,
            strategy,
            success=success,
            max_rollouts=max_rollouts,
            retries=retries,
            id_column=id_column,
            hide_ids=self.train_dataset is not dataset,
            features=features,
            modulation=strategy.modulation if modulation == "strategy" else modulation,
            accepts_strategy_change=accept_strategy_change,
            reward_timeout=reward_timeout,
        )

    @property
    def controller(self) -> Any:
        """The controller of the run: its ledger, the belief, the last step's groups."""
        return self._neyman.controller

    def base_generate(self, prompts: list[Any]) -> Any:
        """Generate with TRL's own method."""
        return super()._generate(prompts)  # type: ignore[misc]

    def base_calculate_rewards(self, *args: Any) -> Any:
        """Score with TRL's own method; gathers over ranks."""
        self._neyman.guard.clear()
        return super()._calculate_rewards(*args)  # type: ignore[misc]

    def train(self, resume_from_checkpoint: str | bool | None = None, *args: Any, **kwargs: Any) -> Any:
        """Train, from a checkpoint that is found whole before anything of it is loaded.

        Args:
            resume_from_checkpoint: its folder, or True for the newest whole one in ``output_dir``.
            *args: the trainer's own.
            **kwargs: the trainer's own.

        Raises:
            StateError: the checkpoint is unfinished, damaged or foreign; the message names the file and the way out.
            RunFailedError: another training is writing its checkpoints into ``output_dir``; or another process of this
                one failed, has gone or is silent.
        """
        session = self._neyman
        trial = args[0] if args else kwargs.get("trial")
        with session.ranks.failing_together(), held(self, session.ranks, trial):
            checkpoint = session.checkpoint.to_resume(resume_from_checkpoint)
            return super().train(checkpoint, *args, **kwargs)  # type: ignore[misc]

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        if not self.model.training:  # type: ignore[attr-defined]
            return super()._generate_and_score_completions(inputs)  # type: ignore[misc, no-any-return]
        session, started = self._neyman, time.monotonic()
        if session.needs_direct_path:
            rows = session.plan_direct(inputs)
            with session.listening():
                output = super()._generate_and_score_completions(rows)  # type: ignore[misc]
            session.generation_seconds = time.monotonic() - started
            session.tell_direct(rows)
        else:
            rollouts, rows = session.draw(inputs)
            session.generation_seconds = time.monotonic() - started
            with session.listening(), session.generation.serve(rollouts):
                output = super()._generate_and_score_completions(rows)  # type: ignore[misc]
        session.finish_output(output)
        return output  # type: ignore[no-any-return]

    def _generate_single_turn(self, prompt_ids: Any, *args: Any, **kwargs: Any) -> Any:
        session = self._neyman
        if session.generation.serving is not None:
            completion_ids, logprobs = session.generation.served_turn()
            return completion_ids if session.is_rloo else (completion_ids, logprobs)

        def instead(end: int) -> Any:
            ended = [[end] for _ in prompt_ids]
            return ended if session.is_rloo else (ended, None)

        if not self.model.training:  # type: ignore[attr-defined]
            base = super()._generate_single_turn  # type: ignore[misc]
            return session.generation.kept.generated(lambda: base(prompt_ids, *args, **kwargs), instead)
        # An engine that repeats prompts itself must take every row for a prompt of its own.
        with replaced(self, "num_generations", 1):
            signature = inspect.signature(super()._generate_single_turn)  # type: ignore[misc]
            bound = signature.bind(prompt_ids, *args, **kwargs)
            if "num_generations" in signature.parameters:
                bound.arguments["num_generations"] = 1
            base = super()._generate_single_turn  # type: ignore[misc]
            turn = session.generation.kept.generated(lambda: base(*bound.args, **bound.kwargs), instead)
        session.generation.turns.append((turn, None) if session.is_rloo else turn)
        return turn

    def _calculate_rewards(self, *args: Any) -> Any:
        session = self._neyman
        if session.generation.serving is not None:
            return session.generation.served_rewards()
        matrix = self.base_calculate_rewards(*args)
        if self.model.training:  # type: ignore[attr-defined]
            session.matrix, session.scored = matrix, args
        else:
            session.share_failures("evaluating")
        return matrix

    def _get_per_token_logps_and_entropies(self, *args: Any, **kwargs: Any) -> Any:
        result = super()._get_per_token_logps_and_entropies(*args, **kwargs)  # type: ignore[misc]
        session = self._neyman
        session.note_logps(result[0])
        if session.token_factor is None:
            return result
        return (session.token_factor.apply(result[0], result[1]), *result[1:])

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> Any:
        factor = self._neyman.token_factor
        if factor is None or not self.model.training:  # type: ignore[attr-defined]
            return super()._compute_loss(model, inputs)  # type: ignore[misc]
        with factor.applied(model, inputs) as modulated:
            return super()._compute_loss(model, modulated)  # type: ignore[misc]

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        with self._neyman.checkpoint.written(trial):
            super()._save_checkpoint(model, trial)  # type: ignore[misc]

    def _push_from_checkpoint(self, checkpoint_folder: str) -> None:
        self._neyman.checkpoint.finish(Path(checkpoint_folder))  # a copy on the hub must be whole too
        super()._push_from_checkpoint(checkpoint_folder)  # type: ignore[misc]

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        super()._load_optimizer_and_scheduler(checkpoint)  # type: ignore[misc]
        if checkpoint is not None:
            self._neyman.checkpoint.load(checkpoint)
            self._neyman.skip_epochs(int(self.state.epoch or 0))  # type: ignore[attr-defined]

    def _get_train_sampler(self, *args: Any, **kwargs: Any) -> Any:
        self._neyman.sampler = super()._get_train_sampler(*args, **kwargs)  # type: ignore[misc]
        return self._neyman.sampler
