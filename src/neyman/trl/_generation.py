"""Requests carried out by TRL: its own generation and reward functions, one round at a time."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, final

import torch

from neyman.controller import MissingReward, Outcome, Request
from neyman.errors import ContractError, RunFailedError
from neyman.hosts.outcomes import outcome
from neyman.randomness import PromptId, keyed_hash
from neyman.trl._advantages import reward_of
from neyman.trl._guard import Guard
from neyman.trl._host import replaced, set_logged_columns, take_logged_columns, uncounted, unlogged
from neyman.trl._kept import KeptErrors
from neyman.trl._own_prompts import check_own_prompts
from neyman.trl._prompts import Prompts, no_prompt
from neyman.trl._ranks import Ranks
from neyman.trl._store import Rollout, RolloutStore
from neyman.trl._success import Success, Verdict


@final
class Generation:
    """Draws rollouts with the trainer's own methods and serves drawn ones back to it."""

    def __init__(
        self, trainer: Any, prompts: Prompts, success: Success, guard: Guard, kept: KeptErrors, ranks: Ranks
    ) -> None:
        self._trainer, self._prompts, self._success, self._guard = trainer, prompts, success, guard
        self._ranks, self.kept = ranks, kept
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
            RunFailedError: ranks plan different rollouts.
            NeymanError: reading, generating or scoring failed on a rank: the same on all (`Ranks.exchange`).
        """
        wanted = [
            (rollout_id, request.prompt_id) for request in requests for rollout_id in request.rollout_ids
        ]
        padding = -len(wanted) % self._ranks.world
        rows = wanted + [wanted[-1]] * padding
        mine = self._ranks.share(rows)
        judged = self._draw(mine, self.agreed_rows(wanted, [prompt_id for _, prompt_id in mine]))
        everyone = self._ranks.exchange("judging completions", judged)
        filler = everyone[len(wanted) :]
        outcomes = []
        for rollout, verdict in everyone[: len(wanted)]:
            reward = reward_of(self._trainer, rollout.rewards)
            if isinstance(reward, MissingReward):  # TRL logs and sums these rows too
                rollout.rewards = [math.nan] * len(rollout.rewards)
            outcomes.append(outcome(rollout.rollout_id, rollout.prompt_id, reward, verdict, rollout.n_tokens))
            self.store.add(rollout)
        return outcomes, len(filler), sum(rollout.n_tokens for rollout, _ in filler)

    def judge(
        self,
        rows: list[dict[str, Any]],
        prompts: Any,
        completions: Any,
        completion_ids: Any,
        rewards: list[list[float]],
    ) -> list[Verdict]:
        """Return the verdict on each of this rank's rows, the fault where a reward function failed; no collectives.

        Raises:
            Exception: an error that this rank met before.
        """
        self.kept.release()
        verdicts, faults = (
            self._success(rows, prompts, completions, completion_ids, rewards),
            self._guard.faults,
        )
        return [faults.get(row, verdict) for row, verdict in enumerate(verdicts)]

    def agreed_rows(
        self, wanted: list[tuple[int, PromptId]], prompt_ids: list[PromptId]
    ) -> list[dict[str, Any]]:
        """Read this rank's rows of the dataset, once all ranks agree on the rollouts of the round.

        Raises:
            RunFailedError: the plans differ.
            NeymanError: a rank cannot read its rows: the same on all.
        """
        rows: list[dict[str, Any]] = []

        def read() -> list[int]:
            rows.extend(self._prompts.rows(prompt_ids))
            if self._ranks.world == 1:
                return []
            # A hash instead of the plan: it crosses the network in every round.
            return [keyed_hash(*(f"{rollout}:{prompt!r}" for rollout, prompt in wanted))]

        # Before anything is generated: rows that belong to different plans could not be separated afterwards.
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
        # TRL counts and logs each call; a round is a part of its batch, which is logged once, when it is served.
        with unlogged(trainer), self._recorded_rollout_func(prompts, [prompt_id for _, prompt_id in rows]):
            self.turns = []
            output = trainer.base_generate(prompts)
        completion_ids, logprobs, extra = self._tokens(output)
        _check_rows(len(rows), prompt_ids=output[0], completion_ids=completion_ids, logprobs=logprobs)
        # The place of the completions in TRL's tuple depends on its version.
        completions = next(part for part in output if _are_completions(part, len(rows)))
        for row, fields in zip(inputs, extra, strict=True):
            row.update({name: value for name, value in fields.items() if name != "env_mask"})
        set_logged_columns(trainer, [])
        matrix = trainer.base_calculate_rewards(inputs, prompts, completions, completion_ids)
        logged = take_logged_columns(trainer, len(rows))
        rewards = self._ranks.share(matrix).tolist()

        def judged() -> list[Drawn]:
            verdicts = self.judge(inputs, prompts, completions, completion_ids, rewards)
            for place in self._guard.faults:  # the other functions' values are no reward without this one's
                rollouts[place].rewards = [math.nan] * len(rewards[place])
            return list(zip(rollouts, verdicts, strict=True))

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
        """Return completion ids, log-probabilities and extra fields of a generation."""
        rows = len(output[0])
        if self._trainer_rollout is not None:
            fields = {k: v for k, v in self._trainer_rollout.items() if k not in _ROLLOUT_KEYS}
            extra = _per_row(fields, rows)
            return self._trainer_rollout["completion_ids"], self._trainer_rollout["logprobs"], extra
        completion_ids, logprobs = self.turns[0]
        return completion_ids, logprobs, [{} for _ in range(rows)]

    @contextmanager
    def _recorded_rollout_func(self, asked: list[Any], ids: list[PromptId]) -> Iterator[None]:
        """Keep the output of the user's rollout function, from which TRL pops fields; check its rows' prompts."""
        trainer, original = self._trainer, getattr(self._trainer, "rollout_func", None)
        self._trainer_rollout = None
        if original is None:
            yield
            return

        own = copy.deepcopy(asked)  # the function may change its arguments

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

        with replaced(trainer, "rollout_func", recorded):
            yield

    @contextmanager
    def serve(self, rollouts: list[Rollout]) -> Iterator[None]:
        """Answer the trainer's generation and reward calls with drawn rollouts (all ranks' rows)."""
        trainer = self._trainer
        self._served, self.serving = rollouts, list(self._ranks.share(rollouts))
        set_logged_columns(trainer, [rollout.logged for rollout in self.serving])
        function = None if getattr(trainer, "rollout_func", None) is None else self._stored_rollout_func
        try:
            with replaced(trainer, "rollout_func", function), uncounted(trainer):
                yield
        finally:
            self.serving = None

    def _stored_rollout_func(self, prompts: Any, host: Any) -> dict[str, Any]:
        del prompts, host
        completion_ids, logprobs = self.served_turn()
        assert self.serving is not None
        shared = set.intersection(*(set(r.extra) for r in self.serving))
        return {
            "prompt_ids": [r.prompt_tokens for r in self.serving],
            "completion_ids": completion_ids,
            "logprobs": logprobs,
            **{name: [r.extra[name] for r in self.serving] for name in sorted(shared)},
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


Drawn = tuple[Rollout, Verdict]
_ROLLOUT_KEYS = ("prompt_ids", "completion_ids", "logprobs")


def _check_rows(rows: int, **parts: Any) -> None:
    """Refuse a generation of another number of rows: which one is missing is unknown, so none can be used.

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
    """Whether a part of TRL's output holds completions: texts, or lists of messages."""
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
