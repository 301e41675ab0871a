"""Checks before a training writes anything, and the directory that it then takes."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from neyman._files.lock import FolderLock
from neyman.config import Config
from neyman.errors import ArgumentError, missing_extra
from neyman.hosts.dry_run import dry_run
from neyman.strategy import Strategy

# The files of a training beside its runs, written before the first step.
_PREPARED = ("policy", ".policy", "prepare.json", "prepare.log")


def check_start(config: Config) -> None:
    """Build the strategies and the task, and plan a first step, without the model.

    Raises:
        MissingExtraError: torch or TRL is not installed.
        ArgumentError: a setting is wrong, or settings do not fit each other; the message names the flags.
    """
    for package in ("torch", "trl"):
        if find_spec(package) is None:
            raise missing_extra(package, "train,cli", "neyman train")
    strategies = {name: config.build_strategy(name) for name in config.arms}
    problems = len(config.build_task().train)
    brought = config.trainer.prompts_per_step
    if problems < brought:
        raise ArgumentError(
            f"--trainer.prompts-per-step {brought} needs as many training prompts, but the task has {problems}: no "
            f"step would be taken. Lower it to {problems} or less, or bring more data"
        )
    for name, strategy in strategies.items():
        _check_step(config, name, strategy, problems)


def _check_step(config: Config, name: str, strategy: Strategy, problems: int) -> None:
    settings = config.trainer
    budget = settings.budget
    if strategy.close == "fixed_train":
        budget = 4 * budget if settings.max_rollouts is None else settings.max_rollouts
        if budget < settings.budget:
            raise ArgumentError(
                f"--trainer.max-rollouts must be at least prompts-per-step x group-size = {settings.budget}, "
                f"got {budget}"
            )
    weighs_tokens = strategy.prompt_weight == "equal_tokens"  # the trainer checks whether its loss does
    try:
        dry_run(
            strategy,
            budget,
            range(settings.prompts_per_step),
            train_rows=settings.budget,
            pool=range(problems),
            aggregation="token_mean" if weighs_tokens else "sequence_mean",
        )
    except ArgumentError as error:
        raise type(error)(
            f"strategy {name!r} does not fit --trainer.prompts-per-step {settings.prompts_per_step} x "
            f"--trainer.group-size {settings.group_size} = {settings.budget} rollouts a step: {error}"
        ) from error


def has_begun(out: Path) -> bool:
    """Whether a run in the directory has written metrics, which a fresh start would lose."""
    written = (path for path in out.glob("*/metrics.jsonl") if path.stat().st_size)
    return next(written, None) is not None


def clear(out: Path) -> None:
    """Remove the files of a training that ended before any of its runs began."""
    for name in _PREPARED:
        path = out / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    for folder in {path.parent for path in (*out.glob("*/run.json"), *out.glob("*-seed*/log.txt"))}:
        shutil.rmtree(folder)


@contextmanager
def only_one(out: Path) -> Iterator[None]:
    """Hold the directory, so that no other process trains in it.

    Raises:
        ArgumentError: one does.
    """
    lock = FolderLock(out, ".lock")
    holder = lock.take(seconds=0.0)
    if holder is not None:
        raise ArgumentError(
            f"another process is training in --out {out} ({holder}): wait for it, end it, or give another --out"
        )
    try:
        yield
    finally:
        lock.release()
