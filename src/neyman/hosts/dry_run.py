"""A first step on a copy, so that a strategy that does not fit its trainer is refused before the run."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from neyman.controller import Budget, Controller
from neyman.errors import ArgumentError
from neyman.hosts.terms import Terms
from neyman.randomness import PromptId
from neyman.rules import Each, InOrder
from neyman.strategy import Strategy


def dry_run(
    strategy: Strategy,
    budget: int,
    candidates: Sequence[PromptId],
    *,
    train_rows: int | None = None,
    pool: Sequence[PromptId] | None = None,
    aggregation: str = "sequence_mean",
) -> None:
    """Plan a step as a run would, and throw it away.

    Args:
        strategy: the strategy; its belief is copied, its rules are called once.
        budget: rollouts per step.
        candidates: as many prompts as the host will bring.
        train_rows: rows that the optimiser must get.
        pool: all prompt ids.
        aggregation: how the host's loss averages tokens.

    Raises:
        ArgumentError: as `Controller` and its ``begin`` raise for these numbers.
    """
    controller = Controller(
        strategy, Budget(rollouts=budget), train_rows=train_rows, pool=pool, aggregation=aggregation
    )
    # Rules check their numbers when they first see a step's, which in a run is after a model was loaded.
    controller.begin(candidates)


def check_step(
    strategy: Strategy,
    budget: int,
    terms: Terms,
    *,
    pool: Sequence[PromptId] | None,
    warn: Callable[[str], None],
) -> None:
    """Refuse a strategy that cannot take the trainer's step, and warn where the step leaves it nothing to decide.

    Args:
        strategy: the strategy.
        budget: rollouts per step.
        terms: the trainer's step.
        pool: all prompt ids, at least as many as a step takes; None for a stream.
        warn: takes the warning.

    Raises:
        ArgumentError: the numbers do not fit; the message has the trainer's setting that would.
    """
    # A stream's prompts are not known yet; any names lead to the same counts.
    candidates = list(range(terms.prompts) if pool is None else pool[: terms.prompts])
    try:
        dry_run(strategy, budget, candidates, train_rows=terms.rows, pool=pool, aggregation=terms.aggregation)
    except ArgumentError as error:
        raise type(error)(
            f"strategy {strategy.name!r} does not fit the trainer's {terms.batch} of {terms.rows} rows "
            f"({terms.group_setting}={terms.group_size} x {terms.prompts} prompts): "
            f"{_misfit(strategy, terms) or error}"
        ) from error
    _warn_of_no_choice(strategy, terms, warn)


def selects_prompts(strategy: Strategy) -> bool:
    """Whether a strategy selects prompts by a rule of its own, instead of taking the host's as they come."""
    return not isinstance(strategy.select, InOrder)


def _sharing(strategy: Strategy, terms: Terms) -> int:
    """Return how many prompts share a step's budget, without a verdict."""
    return max(1, round(strategy.prompts * terms.prompts))


def _bounds(strategy: Strategy) -> tuple[int, float]:
    """Return the bounds on group sizes of an allocation that names some; a user's own rule need not."""
    lower, upper = getattr(strategy.allocate, "lower", 0), getattr(strategy.allocate, "upper", math.inf)
    return (lower, upper) if isinstance(lower, int) and isinstance(upper, int) else (0, math.inf)


def _misfit(strategy: Strategy, terms: Terms) -> str:
    """Return the setting of the trainer that would satisfy the bounds; empty where the bounds are satisfied."""
    # Under a verdict bounds are of single groups, and the number of groups follows from what is given up.
    lower, upper = (0, math.inf) if strategy.verdict is not None else _bounds(strategy)
    count, rows = _sharing(strategy, terms), terms.rows
    if lower * count > rows:
        least = math.ceil(lower * count / terms.prompts)
        return (
            f"lower={lower} rollouts for each of {count} prompts are {lower * count}; set {terms.group_setting} to "
            f"{least} or more, or lower to {rows // count} or less"
        )
    if upper * count < rows:
        most, needed = math.floor(upper * count / terms.prompts), math.ceil(rows / count)
        return (
            f"upper={upper:g} rollouts for each of {count} prompts are only {upper * count:g}; set "
            f"{terms.group_setting} to {most} or less, or upper to {needed} or more"
        )
    return ""


def _warn_of_no_choice(strategy: Strategy, terms: Terms, warn: Callable[[str], None]) -> None:
    """Warn where every prompt gets the same number of rollouts whatever is believed, and none is chosen."""
    if strategy.verdict is not None or selects_prompts(strategy) or isinstance(strategy.allocate, Each):
        return
    count, (lower, upper), rows = _sharing(strategy, terms), _bounds(strategy), terms.rows
    size = f"{terms.group_setting}={terms.group_size}"
    if count == 1:
        warn(
            f"strategy {strategy.name!r} has nothing to allocate: a {terms.batch} of {rows} rows with {size} holds "
            f"one prompt, which gets them all. Raise {terms.batch_settings}, so that it holds 8 prompts or more"
        )
    elif rows in (lower * count, upper * count):
        bound, mend = ("lower", "Lower") if rows == lower * count else ("upper", "Raise")
        warn(
            f"strategy {strategy.name!r} has nothing to allocate: {bound}={rows // count} for each of {count} prompts "
            f"is the whole {terms.batch} of {rows} rows. {mend} it, or change {size}"
        )
