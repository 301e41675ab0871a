"""The rollouts that a step may spend, from the rows that it trains."""

from __future__ import annotations

from neyman._checks import integer
from neyman.errors import ArgumentError
from neyman.hosts.terms import Terms
from neyman.strategy import Strategy

_ROOM = 4  # batches that a strategy may draw to fill one, unless the user bounds it


def rollouts_per_step(strategy: Strategy, max_rollouts: int | None, terms: Terms) -> int:
    """Return the budget of a step: its rows with fixed spend, up to ``max_rollouts`` with fixed train.

    Args:
        strategy: how it closes decides.
        max_rollouts: the user's bound; None takes four times the rows.
        terms: the trainer's step.

    Raises:
        ArgumentError: a bound where the strategy leaves nothing to bound, or one below the rows.
    """
    rows, name = terms.rows, terms.max_rollouts
    if strategy.close != "fixed_train":
        # Ignoring the bound would leave a user to believe that it holds.
        if max_rollouts is None:
            return rows
        raise ArgumentError(
            f"{name}={max_rollouts} is for strategies that close with fixed_train; {strategy.name!r} closes with "
            f"{strategy.close} and generates exactly the {rows} rollouts of the trainer's {terms.batch}: leave "
            f"{name} out, or change {terms.group_setting} or {terms.batch_settings}"
        )
    if max_rollouts is None:
        return _ROOM * rows
    if integer(name, max_rollouts) < rows:
        raise ArgumentError(
            f"{name} must be at least the {rows} rows of the trainer's {terms.batch}, which it is to fill, got "
            f"{max_rollouts}; leave it out for {_ROOM * rows}"
        )
    return max_rollouts
