"""Strategies that a trainer's settings contradict, refused in the trainer's words."""

from __future__ import annotations

from neyman.errors import ArgumentError
from neyman.hosts.terms import Terms
from neyman.strategy import Strategy


def check_prompts(count: int, terms: Terms, way_out: str) -> None:
    """Refuse fewer prompts than a step takes.

    Args:
        count: prompts of the dataset.
        terms: the trainer's step.
        way_out: the settings that would take fewer.

    Raises:
        ArgumentError: there are fewer.
    """
    if count < terms.prompts:
        raise ArgumentError(
            f"the dataset has {count} prompts, and a {terms.batch} of {terms.rows} rows with {terms.group_setting}="
            f"{terms.group_size} takes {terms.prompts} different prompts: {way_out}, or add prompts"
        )


def check_prompt_weight(strategy: Strategy, terms: Terms) -> None:
    """Refuse equal tokens per prompt where the loss does not average over the tokens of the batch.

    Raises:
        ArgumentError: it does not.
    """
    if strategy.prompt_weight == "equal_tokens" and terms.aggregation != "token_mean":
        raise ArgumentError(
            f"strategy {strategy.name!r} gives every prompt the same tokens (prompt_weight='equal_tokens'), which is "
            f"for losses that average over the tokens of the batch, and this one does not: set {terms.loss_setting}, "
            f"or {terms.with_option('prompt_weight', 'equal')}, which weighs prompts alike here"
        )


def check_baseline(strategy: Strategy, terms: Terms, problem: str | None) -> None:
    """Refuse a baseline over rollouts that do not train where the trainer cannot compute it.

    Args:
        strategy: the strategy.
        terms: the trainer's step.
        problem: why not, with the trainer's own way out; None where it can.

    Raises:
        ArgumentError: the strategy has such a baseline, and there is a problem.
    """
    if strategy.baseline == "group" and problem is not None:
        raise ArgumentError(
            f"strategy {strategy.name!r} compares rewards with all rollouts of the prompt (baseline='group'), and "
            f"{problem}, or {terms.with_option('baseline', 'rows')}"
        )
