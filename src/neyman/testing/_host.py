"""A host whose results are fixed, to drive a controller with."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from neyman.controller import Batch, Controller, Outcome, Request
from neyman.randomness import PromptId, keyed_rng
from neyman.testing._contract import BrokenContract, broken, expect, expect_same

_ROUNDS = 100_000  # more calls than any step of a test needs


@dataclass
class Host:
    """A host in which a rollout's result depends on its prompt and seed alone, never on when it is asked for.

    Args:
        rates: success rate per prompt; others get one from their id, U-shaped.
        failing: share of rollouts without a valid result.
        seed: another world.
        shaped: rewards are not binary; success is reported beside them.
    """

    rates: dict[PromptId, float] = field(default_factory=dict)
    failing: float = 0.0
    seed: int = 0
    shaped: bool = False

    def rate(self, prompt_id: PromptId) -> float:
        """Return a prompt's success rate."""
        known = self.rates.get(prompt_id)
        return float(keyed_rng("rate", self.seed, prompt_id).beta(0.6, 0.6)) if known is None else known

    def outcomes(self, request: Request) -> list[Outcome]:
        """Return the results of a request."""
        results = []
        for j, rollout_id in enumerate(request.rollout_ids):
            rng = keyed_rng("world", self.seed, request.prompt_id, request.seed + j)
            success, fails = bool(rng.random() < self.rate(request.prompt_id)), rng.random() < self.failing
            length = int(rng.integers(1, 50))
            status = ("failed", "timeout", "aborted", "ok")[int(rng.integers(4))] if fails else "ok"
            reward = None if fails else float(success) - (0.01 * length if self.shaped else 0.0)
            results.append(
                Outcome(
                    rollout_id=rollout_id,
                    prompt_id=request.prompt_id,
                    reward=reward,
                    success=success if self.shaped and not fails else None,
                    n_tokens=length,
                    status=status,
                    error="the engine died" if fails else None,
                )
            )
        return results

    def answer(self, requests: Sequence[Request]) -> list[Outcome]:
        """Return the results of all requests, in their order."""
        return [outcome for request in requests for outcome in self.outcomes(request)]


def run_step(
    controller: Controller,
    host: Host,
    candidates: Sequence[PromptId],
    *,
    capacity: int | None = None,
    rng: np.random.Generator | None = None,
    begin: bool = True,
) -> tuple[Batch, list[Request]]:
    """Run one step to its end.

    Args:
        controller: with no step open, or with one where ``begin`` is False.
        host: generates and verifies.
        candidates: prompts that the host brings.
        capacity: the most rollouts per ask.
        rng: results come back in portions and out of order, as it draws; None returns all at once, in order.
        begin: False goes on with the open step.

    Returns:
        The batch, and every request.

    Raises:
        BrokenContract: the step neither ends nor asks for anything.
    """
    if begin:
        controller.begin(candidates)
    asked: list[Request] = []
    waiting: list[Outcome] = []
    for _ in range(_ROUNDS):
        if controller.is_done:
            break
        requests = controller.ask(capacity)
        asked += requests
        waiting += host.answer(requests)
        if rng is None:
            results, waiting = waiting, []
        else:
            rng.shuffle(waiting)
            cut = int(rng.integers(1, 6))
            results, waiting = waiting[:cut], waiting[cut:]
        expect(
            results or controller.is_done,
            "a step must end or ask for something, but it does neither",
            see="A step always ends",
            candidates=list(candidates),
        )
        controller.tell(results)
    return controller.finish(), asked


def through_json(state: Any) -> Any:
    """Return a state as a file would give it back, or raise `BrokenContract` when it is not JSON-safe."""
    try:
        return json.loads(json.dumps(state, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise BrokenContract(
            broken(f"a saved state must be JSON-safe, without NaN: {error}", see="Saved states", state=state)
        ) from error


def expect_same_batch(left: Batch, right: Batch, broken: str, *, see: str, **given: Any) -> None:
    """Raise `BrokenContract` unless two batches agree bit for bit."""
    for item in fields(Batch):
        one, two = getattr(left, item.name), getattr(right, item.name)
        expect_same(one, two, f"{broken} (field {item.name} of the batch)", see=see, **given)
