"""Whether a trainer's batch, its dataset and the strategy fit each other: said at once, in TRL's terms."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable
from typing import Any

from neyman._checks import integer
from neyman.errors import ArgumentError
from neyman.hosts.dry_run import prompts_of_a_step, rehearse
from neyman.rules import Each, InOrder
from neyman.strategy import Strategy
from neyman.trl._prompts import ID_COLUMN, Prompts, check_size

BATCH_SETTINGS = "per_device_train_batch_size, gradient_accumulation_steps or steps_per_generation"


def warn(trainer: Any, message: str, *values: object) -> None:
    """Log a warning, once for all processes."""
    if trainer.accelerator.is_main_process:
        logging.getLogger("neyman").warning(message, *values)


def budget_of(strategy: Strategy, max_rollouts: int | None, rows: int) -> int:
    """Return the rollouts per generation batch of ``rows`` rows.

    Raises:
        ArgumentError: a bound where the strategy leaves nothing to bound, or one below the batch.
    """
    if strategy.close != "fixed_train":
        if max_rollouts is None:
            return rows
        raise ArgumentError(
            f"max_rollouts={max_rollouts} is for strategies that close with fixed_train; {strategy.name!r} closes "
            f"with {strategy.close} and generates exactly the {rows} rollouts of TRL's generation batch: leave "
            "max_rollouts out, or change num_generations or the batch size"
        )
    if max_rollouts is None:
        return 4 * rows
    if integer("max_rollouts", max_rollouts) < rows:
        raise ArgumentError(
            f"max_rollouts must be at least TRL's generation batch ({rows} rows), which it is to fill, got "
            f"{max_rollouts}; leave it out for {4 * rows}"
        )
    return max_rollouts


def check_prompt_column(trainer: Any) -> None:
    """Refuse a dataset without prompts, unless an environment brings them.

    Raises:
        ArgumentError: names the columns that are there.
    """
    columns = getattr(trainer.train_dataset, "column_names", None)
    environments = getattr(trainer, "environment_factories", None) or getattr(trainer, "environments", None)
    if columns and not environments and "prompt" not in columns:
        raise no_prompt(columns)


def no_prompt(columns: Iterable[str]) -> ArgumentError:
    """Build the error for rows without a prompt."""
    names = [name for name in columns if name != ID_COLUMN]
    return ArgumentError(
        f"train_dataset has no column 'prompt', which TRL reads; it has {names}: rename the one that holds the "
        f"prompts, for example train_dataset.rename_column({names[0] if names else 'question'!r}, 'prompt')"
    )


def columns_note(trainer: Any, prompts: Prompts) -> str:
    """Say which columns reward functions get, and what keeps the others from them."""
    columns = list(getattr(trainer.train_dataset, "column_names", None) or prompts.brought_columns)
    columns = [name for name in columns if name != ID_COLUMN or prompts.is_given(name)]
    given = [name for name in columns if prompts.is_given(name)]
    note = f"neyman: the training dataset has the columns {columns}, of which reward functions get {given}"
    if given != columns:
        note += "; remove_unused_columns=True keeps the others from them: set it to False"
    return note


def check_fit(trainer: Any, strategy: Strategy, prompts: Prompts, budget: int, aggregation: str) -> None:
    """Refuse what cannot take a step, and warn of what leaves the strategy nothing to decide.

    Args:
        trainer: the adapted trainer.
        strategy: its strategy.
        prompts: the training prompts.
        budget: rollouts per generation batch.
        aggregation: how the loss averages tokens.

    Raises:
        ArgumentError: fewer prompts than a generation batch needs, or numbers that do not fit the batch.
    """
    rows, size = int(trainer.args.generation_batch_size), int(trainer.num_generations)
    brought = rows // size
    check_size(trainer, prompts)
    if prompts.ids is None:
        _check_stream(trainer, strategy)
    candidates = list(range(brought) if prompts.ids is None else prompts.ids[:brought])
    try:
        rehearse(strategy, budget, candidates, train_rows=rows, pool=prompts.ids, aggregation=aggregation)
    except ArgumentError as error:
        raise type(error)(
            f"strategy {strategy.name!r} does not fit the trainer's generation batch of {rows} rows "
            f"(num_generations={size} x {brought} prompts): {_in_trl_s_terms(strategy, rows, brought) or error}"
        ) from error
    _warn_of_no_choice(trainer, strategy, rows, brought)


def _in_trl_s_terms(strategy: Strategy, rows: int, brought: int) -> str:
    """Say which of TRL's settings would satisfy the bounds; empty where the bounds are not what is wrong."""
    lower, upper = (0, math.inf) if strategy.verdict is not None else _bounds(strategy)
    count = prompts_of_a_step(strategy, brought)
    if lower * count > rows:
        least = math.ceil(lower * count / brought)
        return (
            f"lower={lower} rollouts for each of {count} prompts are {lower * count}; set num_generations to {least} "
            f"or more, or lower to {rows // count} or less"
        )
    if upper * count < rows:
        most, needed = math.floor(upper * count / brought), math.ceil(rows / count)
        return (
            f"upper={upper:g} rollouts for each of {count} prompts are only {upper * count:g}; set num_generations to "
            f"{most} or less, or upper to {needed} or more"
        )
    return ""


def _bounds(strategy: Strategy) -> tuple[int, float]:
    """Return the bounds on group sizes of an allocation that has some."""
    lower, upper = getattr(strategy.allocate, "lower", 0), getattr(strategy.allocate, "upper", math.inf)
    return (lower, upper) if isinstance(lower, int) and isinstance(upper, int) else (0, math.inf)


def _warn_of_no_choice(trainer: Any, strategy: Strategy, rows: int, brought: int) -> None:
    """Warn where every prompt gets the same number of rollouts whatever is believed, and none is chosen."""
    chooses = strategy.verdict is not None or not isinstance(strategy.select, InOrder)
    if chooses or isinstance(strategy.allocate, Each):
        return
    count, (lower, upper) = prompts_of_a_step(strategy, brought), _bounds(strategy)
    if count == 1:
        warn(
            trainer,
            "strategy %r has nothing to allocate: a generation batch of %d rows with num_generations=%d holds one "
            "prompt, which gets them all. Raise %s, so that a batch holds 8 prompts or more",
            strategy.name,
            rows,
            int(trainer.num_generations),
            BATCH_SETTINGS,
        )
    elif rows in (lower * count, upper * count):
        bound = "lower" if rows == lower * count else "upper"
        warn(
            trainer,
            "strategy %r has nothing to allocate: %s=%d for each of %d prompts is the whole generation batch of %d "
            "rows. %s it, or change num_generations=%d",
            strategy.name,
            bound,
            rows // count,
            count,
            rows,
            "Lower" if bound == "lower" else "Raise",
            int(trainer.num_generations),
        )


def _check_stream(trainer: Any, strategy: Strategy) -> None:
    """Say what a strategy that wants fresh prompts cannot do on a stream.

    Raises:
        ArgumentError: rollouts are to be kept for later steps, whose rows a stream does not keep.
    """
    if strategy.max_age:
        raise ArgumentError(
            f"strategy {strategy.name!r} keeps rollouts for {strategy.max_age} steps (max_age), but an IterableDataset "
            "does not bring their rows back: set max_age=0, or load a map-style dataset, for example "
            "Dataset.from_list(list(stream.take(10_000)))"
        )
    way_out = "load a map-style dataset, for example Dataset.from_list(list(stream.take(10_000)))"
    if strategy.close == "fixed_train":
        warn(
            trainer,
            "strategy %r replaces the groups that it gives up by fresh prompts, but an IterableDataset has none beside "
            "the batch's own: rows of weight zero will fill what is missing. To mend it, %s, or close with "
            "close='fixed_spend', which spends what is freed on the batch's own prompts",
            strategy.name,
            way_out,
        )
    elif strategy.prompts > 1.0 or not isinstance(strategy.select, InOrder):
        warn(
            trainer,
            "strategy %r chooses prompts, but an IterableDataset offers none beside the batch's own, which are all "
            "used: to let it choose, %s",
            strategy.name,
            way_out,
        )
