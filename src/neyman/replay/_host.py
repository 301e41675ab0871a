"""A host whose engine is the record: strategies go through the real controller, on a virtual clock."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from neyman._checks import integer
from neyman.controller import Controller
from neyman.errors import RunFailedError
from neyman.presets import strategy_by_name
from neyman.randomness import keyed_epochs
from neyman.replay._account import Account
from neyman.replay._clock import Clock
from neyman.replay._draws import Draws
from neyman.replay._settings import BUDGET_FACTOR, Settings
from neyman.replay._trace import Trace
from neyman.step.messages import Budget, Outcome, Request, Status
from neyman.strategy import Strategy


def strategy_for(name: str, settings: Settings) -> Strategy:
    """Return a preset for groups of k: of that size where it takes one, else with bounds that leave a choice around k.

    Args:
        name: of a preset, with options behind colons where its defaults are not meant: "sara:variant=published".
        settings: of the replay.

    Raises:
        ArgumentError: an unknown name or option.
    """
    return strategy_by_name(
        name,
        group_size=settings.group_size,
        # Token factors change no rollout, and are left out.
        defaults={"group_size": settings.group_size, "modulation": None},
        functions=False,
        words=True,
    )


def replay_strategy(
    trace: Trace,
    strategy: Strategy,
    settings: Settings,
    *,
    seed: int = 0,
    progress: Callable[[float], None] = lambda _: None,
) -> dict[str, Any]:
    """Replay one strategy against a record.

    Every step brings B prompts in shuffled epochs; the strategy may draw others, the pool being all prompts.
    Strategies of fixed spend get B k rollouts a step; those that fill a batch get B k rows to fill and up to
    four times as many rollouts.

    Args:
        trace: the record.
        strategy: any strategy; the controller copies its belief.
        settings: group size, prompts a step, passes.
        seed: decides the order of prompts, of recorded rollouts, and the strategy's own draws.
        progress: called with the share that is done.

    Returns:
        The run's figures, JSON-safe.

    Raises:
        RunFailedError: a step asked for no rollout, so that the clock stands still.

    Guarantee: the same arguments give the same figures. Two strategies under one seed are brought the same
    prompts in the same order, and see the outcomes of a visit in the same order.

    Cost: that of the controller, some 25 to 90 microseconds a rollout.
    """
    seed = integer("seed", seed, low=0)
    fills = strategy.close == "fixed_train"
    controller = Controller(
        strategy,
        Budget(rollouts=settings.rows * (BUDGET_FACTOR if fills else 1)),
        train_rows=settings.rows if fills else None,
        pool=range(trace.prompts),
        # A refused rollout is refused again.
        retries=0.0 if settings.beyond == "refuse" else 0.1,
        seed=seed,
        fill="none",
    )
    draws = Draws(trace, seed=seed, beyond=settings.beyond)
    clock = Clock(trace, group_size=settings.group_size)
    account = Account(trace, draws, group_size=settings.group_size)
    for candidates in keyed_epochs(trace.prompts, settings.prompts_per_step, seed, "replay", "epoch"):
        before = clock.rollouts
        _step(controller, candidates, draws, clock, account, settings)
        progress(min(1.0, clock.passes / settings.passes))
        if clock.passes >= settings.passes - 1e-9:
            break
        if clock.rollouts == before:
            raise RunFailedError(
                f"strategy {strategy.name!r} asked for no rollout in step {controller.step}, after {clock.passes:.2f} "
                "passes: the clock stands still"
            )
    return account.figures(clock, controller.ledger.account())


def _step(
    controller: Controller,
    candidates: Sequence[int],
    draws: Draws,
    clock: Clock,
    account: Account,
    settings: Settings,
) -> None:
    rounds = 0
    opened: dict[int, float] = {}
    visits: dict[int, int] = {}
    controller.begin(candidates)
    while not controller.is_done:
        requests = controller.ask(capacity=settings.width)
        if not requests:
            break
        rounds += 1
        outcomes = list[Outcome]()
        for request in requests:
            prompt = int(request.prompt_id)
            if prompt not in opened:
                opened[prompt] = clock.passes
                visits[prompt] = clock.visit(prompt)
            drawn = _generate(request, draws, visits[prompt])
            clock.spend(len(drawn), sum(outcome.n_tokens for outcome in drawn))
            outcomes += drawn
        controller.tell(outcomes)
    batch = controller.finish()
    account.close_step(
        batch, controller.group_reports, opened=opened, visits=visits, clock=clock, rounds=rounds
    )


def _generate(request: Request, draws: Draws, visit: int) -> list[Outcome]:
    successes, tokens = draws.take(visit, len(request.rollout_ids))
    drawn = [
        Outcome(
            rollout_id=rollout_id,
            prompt_id=request.prompt_id,
            reward=float(success),
            success=success == 1,
            n_tokens=length,
        )
        for rollout_id, success, length in zip(request.rollout_ids, successes, tokens, strict=False)
    ]
    refused = request.rollout_ids[len(drawn) :]
    return drawn + [
        Outcome(
            rollout_id=rollout_id,
            prompt_id=request.prompt_id,
            reward=None,
            status=Status.FAILED,
            error="the record holds no further rollout of this prompt's visit",
        )
        for rollout_id in refused
    ]
