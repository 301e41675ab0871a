"""Requests carried out by TRL: its own generation and reward functions, one round at a time."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, final

import torch

from neyman.errors import ContractError, RunFailedError
from neyman.randomness import PromptId, keyed_hash
from neyman.step.messages import Outcome, Request
from neyman.step.missing import MissingReward
from neyman.trl._advantages import reward_of
from neyman.trl._fit import no_prompt
from neyman.trl._guard import Guard
from neyman.trl._kept import KeptErrors
from neyman.trl._own_prompts import check_own_prompts
from neyman.trl._prompts import Prompts
from neyman.trl._ranks import Ranks
from neyman.trl._store import Rollout, RolloutStore
from neyman.trl._success import Success


@final
class Generation:
    """Draws rollouts with the trainer's own methods and serves drawn ones back to it.

    Args:
        trainer: the adapted trainer.
        prompts: the way from ids to rows.
        success: how the verified outcome is read.
        guard: knows what reward functions could not score.
        ranks: the processes.
    """

    def __init__(self, trainer: Any, prompts: Prompts, success: Success, guard: Guard, ranks: Ranks) -> None:
        self._trainer, self._prompts, self.success, self._guard = trainer, prompts, success, guard
        self._ranks = ranks
        self.kept = KeptErrors(trainer, prompts, ranks)
        self._trainer_rollout: dict[str, Any] | None = None
        self._served: list[Rollout] = []
        self.serving: list[Rollout] | None = None
        self.turns: list[tuple[list[list[int]], list[list[float]] | None]] = []
        self.store = RolloutStore()

    def run(self, requests: list[Request]) -> tuple[list[Outcome], int, int]:
        """Generate and score requests on all ranks.

        Returns:
            The outcomes, the same on every rank, and the rollouts and tokens generated only to fill the round
            to a multiple of the number of processes.

        Raises:
            RunFailedError: ranks disagree on what to generate.
            NeymanError: reading, generating or scoring failed on a rank: the same on all (`Ranks.exchange`).
        """
        wanted = [
            (rollout_id, request.prompt_id) for request in requests for rollout_id in request.rollout_ids
        ]
        padding = -len(wanted) % self._ranks.world
        rows = wanted + [wanted[-1]] * padding
        share, rank = len(rows) // self._ranks.world, self._ranks.index
        mine = rows[rank * share : (rank + 1) * share]
        judged = self._draw(mine, self.agreed_rows(wanted, [prompt_id for _, prompt_id in mine]))
        everyone = self._ranks.exchange("judging completions", judged)
        filler = everyone[len(wanted) :]
        outcomes = [self._outcome(*one) for one in everyone[: len(wanted)]]
        for rollout, _, _ in everyone[: len(wanted)]:
            self.store.add(rollout)
        return outcomes, len(filler), sum(rollout.n_tokens for rollout, _, _ in filler)

    def agreed_rows(
        self, wanted: list[tuple[int, PromptId]], prompt_ids: list[PromptId]
    ) -> list[dict[str, Any]]:
        """Read this rank's rows of the dataset, when all ranks plan the same round.

        Args:
            wanted: the round's rollouts, as this rank plans them.
            prompt_ids: the prompts of its own rows.

        Raises:
            RunFailedError: the plans differ.
            NeymanError: a rank cannot read its rows: the same on all.
        """
        rows: list[dict[str, Any]] = []

        def read() -> list[int]:
            rows.extend(self._prompts.rows(prompt_ids))
            if self._ranks.world == 1:
                return []
            return [keyed_hash(*(f"{rollout}:{prompt!r}" for rollout, prompt in wanted))]

        if len(set(self._ranks.exchange("reading prompts", read))) > 1:
            raise RunFailedError(
                f"the {self._ranks.world} processes planned different rollouts for this round: their beliefs differ. "
                "Use the same NumPy and BLAS and the same number of threads on every node, and the same dataset order"
            )
        return rows

    def _draw(
        self, rows: list[tuple[int, PromptId]], inputs: list[dict[str, Any]]
    ) -> Callable[[], list[Drawn]]:
        """Generate and score this rank's rows of a round; the judging is left to be done without collectives."""
        trainer = self._trainer
        if "prompt" not in inputs[0]:
            raise no_prompt(inputs[0])
        prompts = [row["prompt"] for row in inputs]
        with self._unlogged(), self._recorded_rollout_func(prompts, [prompt_id for _, prompt_id in rows]):
            self.turns = []
            output = trainer.base_generate(prompts)
        completion_ids, logprobs, extra = self._tokens(output)
        _check_rows(len(rows), prompt_ids=output[0], completion_ids=completion_ids, logprobs=logprobs)
        completions = next(part for part in output if _are_completions(part, len(rows)))
        for row, fields in zip(inputs, extra, strict=True):
            row.update({name: value for name, value in fields.items() if name != "env_mask"})
        trainer._pending_extra_logs.clear()  # noqa: SLF001 (TRL's own hook for logged columns)
        matrix = trainer.base_calculate_rewards(inputs, prompts, completions, completion_ids)
        logged = _columns(trainer._pending_extra_logs, len(rows))  # noqa: SLF001
        trainer._pending_extra_logs.clear()  # noqa: SLF001
        rank = self._ranks.index
        rewards = matrix[rank * len(rows) : (rank + 1) * len(rows)].tolist()

        def judged() -> list[Drawn]:
            self.kept.release()
            success = self.success(inputs, prompts, completions, completion_ids, rewards)
            faults = self._guard.faults
            for place in faults:  # what the other functions said is no reward without this one
                rollouts[place].rewards = [math.nan] * len(rewards[place])
            return [(rollout, success[i], faults.get(i)) for i, rollout in enumerate(rollouts)]

        rollouts = [
            Rollout(
                rollout_id=rollout_id,
                prompt_id=prompt_id,
                prompt_tokens=[int(token) for token in output[0][i]],
                completion_ids=[int(token) for token in completion_ids[i]],
                logprobs=None if logprobs is None else logprobs[i],
                extra=extra[i],
                logged=logged[i],
                rewards=rewards[i],
                n_tokens=len(completion_ids[i]),
            )
            for i, (rollout_id, prompt_id) in enumerate(rows)
        ]
        return judged

    def _tokens(self, output: tuple[Any, ...]) -> tuple[Any, Any, list[dict[str, Any]]]:
        """Return completion ids, log-probabilities and extra fields of what was generated."""
        rows = len(output[0])
        if self._trainer_rollout is not None:
            fields = {k: v for k, v in self._trainer_rollout.items() if k not in _ROLLOUT_KEYS}
            extra = _per_row(fields, rows)
            return self._trainer_rollout["completion_ids"], self._trainer_rollout["logprobs"], extra
        completion_ids, logprobs = self.turns[0]
        return completion_ids, logprobs, [{} for _ in range(rows)]

    def _outcome(self, rollout: Rollout, success: bool | None, fault: MissingReward | None) -> Outcome:
        reward = reward_of(self._trainer, rollout.rewards)
        if isinstance(reward, MissingReward):
            rollout.rewards = [math.nan] * len(rollout.rewards)
        return outcome(
            rollout.rollout_id,
            rollout.prompt_id,
            reward,
            success,
            rollout.n_tokens,
            fault,
            is_undecided=self.success.is_undecided(success),
        )

    @contextmanager
    def _recorded_rollout_func(self, asked: list[Any], ids: list[PromptId]) -> Iterator[None]:
        """Keep what the user's rollout function returns, as TRL pops fields from it; rows must be of their prompts."""
        trainer, original = self._trainer, getattr(self._trainer, "rollout_func", None)
        self._trainer_rollout = None
        if original is None:
            yield
            return

        own = copy.deepcopy(asked)  # the function may change what it is given

        def recorded(prompts: Any, host: Any) -> Any:
            def generate() -> dict[str, Any]:
                output = dict(original(prompts, host))
                check_own_prompts(trainer, own, ids, output.get("prompt_ids", ()))
                return output

            def instead(end: int) -> dict[str, Any]:
                ended = [[end] for _ in prompts]
                return {"prompt_ids": ended, "completion_ids": ended, "logprobs": None}

            self._trainer_rollout = self.kept.generated(generate, instead)
            return dict(self._trainer_rollout)

        trainer.rollout_func = recorded
        try:
            yield
        finally:
            trainer.rollout_func = original

    @contextmanager
    def _unlogged(self) -> Iterator[None]:
        """Keep a round out of the trainer's metrics: TRL logs the batch that trains, once."""
        metrics = self._trainer._metrics["train"]  # noqa: SLF001
        lengths = {name: len(values) for name, values in metrics.items()}
        try:
            yield
        finally:
            for name in list(metrics):
                if name not in lengths:
                    del metrics[name]
                else:
                    del metrics[name][lengths[name] :]

    @contextmanager
    def serve(self, rollouts: list[Rollout]) -> Iterator[None]:
        """Answer the trainer's generation and reward calls with drawn rollouts (all ranks' rows)."""
        trainer = self._trainer
        share, rank = len(rollouts) // self._ranks.world, self._ranks.index
        self.serving = rollouts[rank * share : (rank + 1) * share]
        self._served = rollouts
        original = getattr(trainer, "rollout_func", None)
        if original is not None:
            trainer.rollout_func = self._stored_rollout_func
        trainer._pending_extra_logs.clear()  # noqa: SLF001
        for name in sorted({name for rollout in self.serving for name in rollout.logged}):
            trainer._pending_extra_logs[name] = [r.logged.get(name) for r in self.serving]  # noqa: SLF001
        seen = trainer.state.num_input_tokens_seen  # TRL counted these rows when their round was drawn
        try:
            yield
        finally:
            self.serving = None
            trainer.state.num_input_tokens_seen = seen
            trainer._metrics["train"]["num_tokens"] = [seen]  # noqa: SLF001
            if original is not None:
                trainer.rollout_func = original

    def _stored_rollout_func(self, prompts: Any, host: Any) -> dict[str, Any]:
        del prompts, host
        assert self.serving is not None
        shared = set.intersection(*(set(r.extra) for r in self.serving))
        fields = {name: [r.extra[name] for r in self.serving] for name in sorted(shared)}
        logprobs = [r.logprobs for r in self.serving]
        return {
            "prompt_ids": [r.prompt_tokens for r in self.serving],
            "completion_ids": [list(r.completion_ids) for r in self.serving],
            "logprobs": None if None in logprobs else logprobs,
            **fields,
        }

    def served_turn(self) -> tuple[list[list[int]], list[Any] | None]:
        """Return the token ids and log-probabilities of the rows being served."""
        assert self.serving is not None
        logprobs = [rollout.logprobs for rollout in self.serving]
        return [list(r.completion_ids) for r in self.serving], None if None in logprobs else logprobs

    def served_rewards(self) -> torch.Tensor:
        """Return the reward matrix of all ranks' rows, float32 [rows, reward functions]."""
        rewards = [rollout.rewards for rollout in self._served]
        return torch.tensor(rewards, dtype=torch.float32, device=self._trainer.accelerator.device)


Drawn = tuple[Rollout, bool | None, MissingReward | None]


def outcome(
    rollout_id: int,
    prompt_id: PromptId,
    reward: float | MissingReward | None,
    success: bool | None,
    n_tokens: int,
    fault: MissingReward | None,
    *,
    is_undecided: bool,
) -> Outcome:
    """Return what became of a rollout: its reward, or why there is none.

    Args:
        rollout_id: the rollout.
        prompt_id: its prompt.
        reward: the sum over reward functions (`reward_of`); None where all returned None, or what is wrong with it.
        success: the verified outcome.
        n_tokens: completion tokens.
        fault: what went wrong, where something did.
        is_undecided: a rule for success was named and could not tell.
    """
    if isinstance(reward, MissingReward):
        fault = reward
    return Outcome(
        rollout_id=rollout_id,
        prompt_id=prompt_id,
        reward=fault if fault is not None else None if is_undecided else reward,
        success=success,
        n_tokens=n_tokens,
        error="every reward function returned None" if reward is None and fault is None else None,
    )


_ROLLOUT_KEYS = ("prompt_ids", "completion_ids", "logprobs")


def _check_rows(rows: int, **parts: Any) -> None:
    """Refuse a generation with other rows than were asked for: which is missing cannot be told, so none can be used.

    Raises:
        ContractError: names the part, and both numbers.
    """
    for name, part in parts.items():
        if part is not None and len(part) != rows:
            raise ContractError(
                f"the generation returned {len(part)} rows of {name} for {rows} prompts; a rollout_func must return "
                "one for each prompt, in their order (an empty completion where there is none)"
            )


def _are_completions(part: Any, rows: int) -> bool:
    """Whether a part of what TRL generated holds completions: texts, or lists of messages."""
    if not isinstance(part, list) or len(part) != rows or not part:
        return False
    first = part[0]
    return isinstance(first, str) or (isinstance(first, list) and bool(first) and isinstance(first[0], dict))


def _per_row(fields: dict[str, Any], rows: int) -> list[dict[str, Any]]:
    """Give each row its part of a rollout function's extra fields, as TRL does: lists by position, else to all."""
    return [
        {
            name: values[i] if isinstance(values, list) else values
            for name, values in fields.items()
            if not isinstance(values, list) or i < len(values)
        }
        for i in range(rows)
    ]


def _columns(pending: dict[str, list[Any]], rows: int) -> list[dict[str, Any]]:
    """Turn logged columns into one dictionary per row; columns of another length are not per row."""
    full = {name: values for name, values in pending.items() if len(values) == rows}
    return [{name: values[i] for name, values in full.items()} for i in range(rows)]
