"""Whether a trainer's batch, its dataset and the strategy fit each other, checked at construction in TRL's terms."""

from __future__ import annotations

from typing import Any

from neyman.errors import ArgumentError
from neyman.hosts.dry_run import selects_prompts
from neyman.hosts.refusals import check_baseline, check_prompt_weight, check_prompts
from neyman.hosts.terms import Terms
from neyman.strategy import Strategy
from neyman.trl._advantages import AGGREGATION, aggregation_of, baseline_problem
from neyman.trl._behaviour import check_carry_over
from neyman.trl._host import generates_once, warner
from neyman.trl._prompts import Prompts

_WAY_OUT = "load a map-style dataset, for example Dataset.from_list(list(stream.take(10_000)))"


def terms_of(trainer: Any, strategy: Strategy) -> Terms:
    """Return TRL's generation batch in numbers, and TRL's names for the settings behind them.

    Raises:
        ArgumentError: a loss that cannot weigh prompts as the strategy wants, or an unknown one.
    """
    averaging = sorted(name for name, kind in AGGREGATION.items() if kind == "token_mean")
    return Terms(
        rows=int(trainer.args.generation_batch_size),
        group_size=int(trainer.num_generations),
        aggregation=aggregation_of(trainer, strategy),
        batch="generation batch",
        group_setting="num_generations",
        batch_settings="per_device_train_batch_size, gradient_accumulation_steps or steps_per_generation",
        loss_setting=f"loss_type to one of {averaging} with GRPOTrainer",
        max_rollouts="max_rollouts",
        option="{name}={value!r}",
        accept_change="give the trainer accept_strategy_change=True",
        new_run="start a new run in another folder",
        filler="copies of weight zero",
    )


def check_fit(trainer: Any, strategy: Strategy, prompts: Prompts, terms: Terms) -> None:
    """Refuse a strategy that TRL's settings or the dataset contradict.

    Raises:
        ArgumentError: names the setting and the way out.
    """
    if generates_once(trainer) and (strategy.verdict is not None or strategy.allocate.probe):
        raise ArgumentError(
            f"strategy {strategy.name!r} draws in several rounds, which tools, environments and images do not "
            "allow here: TRL sets them up once per batch. Use a strategy of one round, such as 'vip', 'dynamo' or "
            "'uniform'"
        )
    check_carry_over(trainer, strategy)
    check_prompt_weight(strategy, terms)
    check_baseline(strategy, terms, baseline_problem(trainer))
    if prompts.ids is None:
        _check_stream(trainer, strategy)
    else:
        _check_size(trainer, len(prompts.ids), terms)


def _check_size(trainer: Any, count: int, terms: Terms) -> None:
    """Check that TRL, which drops an incomplete batch at the end of an epoch, brings every prompt.

    Raises:
        ArgumentError: fewer prompts than one generation batch takes, of which TRL would train none.
    """
    width = terms.prompts
    check_prompts(
        count,
        terms,
        "TRL drops incomplete batches and would train nothing. Set generation_batch_size to "
        f"{count * terms.group_size} or less, raise num_generations",
    )
    # A shuffled epoch drops other prompts each time, an unshuffled one always the same.
    if count % width and not getattr(trainer.args, "shuffle_dataset", True):
        whole = count // width * width
        warner(trainer)(
            f"shuffle_dataset=False and {count} prompts in batches of {width}: TRL drops what fills no batch, and "
            f"never brings the last {count - whole} of {count} prompts; set shuffle_dataset=True, or use {whole} or "
            f"{whole + width} prompts"
        )


def _check_stream(trainer: Any, strategy: Strategy) -> None:
    """Refuse or warn of a strategy that needs more than the batch's own prompts, which is all that a stream has.

    Raises:
        ArgumentError: rollouts are to be kept for later steps, whose rows a stream does not keep.
    """
    if strategy.max_age:
        raise ArgumentError(
            f"strategy {strategy.name!r} keeps rollouts for {strategy.max_age} steps (max_age), but an IterableDataset "
            f"does not bring their rows back: set max_age=0, or {_WAY_OUT}"
        )
    warn = warner(trainer)
    if strategy.close == "fixed_train":
        warn(
            f"strategy {strategy.name!r} replaces the groups that it gives up by fresh prompts, but an IterableDataset "
            "has none beside the batch's own: rows of weight zero will fill the batch. To mend it, "
            f"{_WAY_OUT}, or close with close='fixed_spend', which spends what is freed on the batch's own prompts"
        )
    elif strategy.prompts > 1.0 or selects_prompts(strategy):
        warn(
            f"strategy {strategy.name!r} chooses prompts, but an IterableDataset offers none beside the batch's own, "
            f"which are all used: to let it choose, {_WAY_OUT}"
        )
