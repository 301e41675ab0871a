"""TRL's private names and internals: they stand here, and in `_mixin` as the methods that it overrides, alone."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

Tensor = torch.Tensor

# Called by the trainer with a copy of its arguments for the checkpoint, which must be the user's.
ARGUMENT_WRITERS = ("_save", "_push_from_checkpoint")
# Where a trainer keeps the loop of its async functions; the latter is RLOO's in TRL 1.0.
EVENT_LOOPS = ("async_loop", "async_reward_loop")


def warner(trainer: Any) -> Callable[[str], None]:
    """Return a function that logs a warning, once for all processes."""

    def warn(message: str) -> None:
        if trainer.accelerator.is_main_process:
            logging.getLogger("neyman").warning(message)

    return warn


def is_rloo(trainer: Any) -> bool:
    """Whether the trainer is RLOO's, which has one loss and so no name for it."""
    return not hasattr(trainer, "loss_type")


def columns_of(trainer: Any) -> list[str]:
    """Return the columns of the training dataset; none where a stream does not know them."""
    return list(getattr(trainer.train_dataset, "column_names", None) or ())


def environments_of(trainer: Any) -> Any:
    """Return the environments that bring their own prompts, under either of TRL's names."""
    return getattr(trainer, "environment_factories", None) or getattr(trainer, "environments", None)


def generates_once(trainer: Any) -> bool:
    """Whether tools, environments or images are set up once per batch, so that TRL must generate it in one call."""
    images = {"image", "images"} & set(columns_of(trainer))
    return bool(getattr(trainer, "tools", None) or environments_of(trainer) or images)


def keep_column(trainer: Any, column: str) -> None:
    """Let the data loader bring a column that no reward function asks for."""
    trainer._set_signature_columns_if_needed()  # noqa: SLF001
    if column not in trainer._signature_columns:  # noqa: SLF001
        trainer._signature_columns = [*trainer._signature_columns, column]  # noqa: SLF001


def kept_columns(trainer: Any) -> list[str] | None:
    """Return the columns that the data loader brings; None where it brings all."""
    return trainer._signature_columns if trainer.args.remove_unused_columns else None  # noqa: SLF001


def output_folder(trainer: Any, trial: Any) -> Path:
    """Return the folder that checkpoints go into; a trial of a search over hyperparameters has its own."""
    return Path(trainer._get_output_dir(trial=trial))  # noqa: SLF001


def step_of(trainer: Any) -> int:
    """Return TRL's count of micro-batches, which decides when it generates."""
    return int(trainer._step)  # noqa: SLF001


def buffer_of(trainer: Any) -> list[dict[str, Any]]:
    """Return the micro-batches of the generation in use."""
    return list(trainer._buffered_inputs or ())  # noqa: SLF001


def set_buffer(trainer: Any, step: int, batches: list[dict[str, Any]] | None) -> None:
    """Put a generation in use, and the count of its micro-batches, in place: TRL forgets both on resume."""
    trainer._step, trainer._buffered_inputs = step, batches  # noqa: SLF001


def metrics_of(trainer: Any) -> dict[str, dict[str, list[float]]]:
    """Return the metrics that the trainer will average and log, by mode and name."""
    return {mode: dict(values) for mode, values in trainer._metrics.items()}  # noqa: SLF001


def set_metrics(trainer: Any, metrics: Mapping[str, Mapping[str, Sequence[float]]]) -> None:
    """Put metrics that were not logged yet in place."""
    for mode, values in metrics.items():
        trainer._metrics[mode].clear()  # noqa: SLF001
        for name, entries in values.items():
            trainer._metrics[mode][name].extend(entries)  # noqa: SLF001


def log_metrics(trainer: Any, numbers: Mapping[str, float], dead_share: float | None) -> None:
    """Add metrics of a step to the trainer's own, so that every tracker gets them.

    TRL takes groups to be of equal size in its own share of rows in zero-variance groups; None leaves that.
    """
    metrics = trainer._metrics["train"]  # noqa: SLF001
    for name, value in numbers.items():
        metrics[name].append(value)
    if dead_share is not None and metrics.get("frac_reward_zero_std"):
        metrics["frac_reward_zero_std"][-1] = dead_share


def set_logged_advantages(trainer: Any, advantages: Sequence[float]) -> None:
    """Correct the last rows of TRL's table of completions."""
    logged = trainer._logs["advantages"]  # noqa: SLF001
    for place, value in enumerate(advantages, start=-len(advantages)):
        logged[place] = value


@contextmanager
def unlogged(trainer: Any) -> Iterator[None]:
    """Keep a round out of the trainer's metrics: TRL logs the batch that trains, once."""
    metrics = trainer._metrics["train"]  # noqa: SLF001
    lengths = {name: len(values) for name, values in metrics.items()}
    try:
        yield
    finally:
        for name in list(metrics):
            if name in lengths:
                del metrics[name][lengths[name] :]
            else:
                del metrics[name]


@contextmanager
def uncounted(trainer: Any) -> Iterator[None]:
    """Keep the trainer's count of tokens as it is: these rows were counted when their round was drawn."""
    seen = trainer.state.num_input_tokens_seen
    try:
        yield
    finally:
        trainer.state.num_input_tokens_seen = seen
        trainer._metrics["train"]["num_tokens"] = [seen]  # noqa: SLF001


def take_logged_columns(trainer: Any, rows: int) -> list[dict[str, Any]]:
    """Return the columns that reward functions logged, per row, and clear them; others than of ``rows`` are dropped."""
    pending = trainer._pending_extra_logs  # noqa: SLF001
    full = {name: values for name, values in pending.items() if len(values) == rows}
    taken = [{name: values[i] for name, values in full.items()} for i in range(rows)]
    pending.clear()
    return taken


def set_logged_columns(trainer: Any, rows: Sequence[Mapping[str, Any]]) -> None:
    """Let TRL log columns that `take_logged_columns` returned, None where a row has none."""
    pending = trainer._pending_extra_logs  # noqa: SLF001
    pending.clear()
    for name in sorted({name for row in rows for name in row}):
        pending[name] = [row.get(name) for row in rows]


def logps_of(trainer: Any, prompts: Tensor, prompt_mask: Tensor, completions: Tensor, mask: Tensor) -> Tensor:
    """Return per-token log-probabilities [rows, tokens] under the current weights, without gradients."""
    with torch.no_grad():
        result = trainer._get_per_token_logps_and_entropies(  # noqa: SLF001
            trainer.model,
            torch.cat([prompts, completions], dim=1),
            torch.cat([prompt_mask, mask], dim=1),
            completions.size(1),
            batch_size=trainer.args.per_device_train_batch_size,  # some versions take it by name only
        )
    logps: Tensor = result[0]
    return logps


def corrects_engine(trainer: Any) -> bool:
    """Whether the loss takes vLLM's samples for the current weights' own, and corrects them by a second ratio."""
    return bool(
        getattr(trainer, "use_vllm", False) and getattr(trainer, "vllm_importance_sampling_correction", False)
    )


def generates_alone(trainer: Any) -> bool:
    """Whether this process generates without collectives, so that it may fail by itself."""
    shards = getattr(trainer, "is_fsdp_enabled", False) or getattr(trainer, "is_deepspeed_enabled", False)
    engine = getattr(trainer, "use_vllm", False) and (
        getattr(trainer, "vllm_mode", "server") != "colocate"
        or int(getattr(trainer, "vllm_tensor_parallel_size", 1)) > 1
    )
    return not shards and not engine


@contextmanager
def replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Give an object another attribute in the block; a class's own shows through again after it."""
    own = vars(owner)
    before = {name: own[name]} if name in own else {}
    own[name] = value
    try:
        yield
    finally:
        del own[name]
        own.update(before)


@contextmanager
def awake(trainer: Any) -> Iterator[None]:
    """Keep a colocated vLLM engine awake between rounds: each sleep would cost a push of all weights."""
    engine = getattr(trainer, "vllm_generation", None)
    if engine is None or not getattr(engine, "enable_sleep_mode", False) or engine.mode != "colocate":
        yield
        return
    engine.llm.wake_up()
    try:
        with replaced(engine, "enable_sleep_mode", False):
            yield
    finally:
        engine.llm.sleep(level=2)
        if hasattr(engine, "_llm_weights_sleeping"):
            engine._llm_weights_sleeping = True  # noqa: SLF001
