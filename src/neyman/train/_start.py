"""Checks before a training writes anything, and the directory that it then takes."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from neyman._files.lock import FolderLock
from neyman.config import Config
from neyman.errors import ArgumentError, missing_extra
from neyman.hosts.budget import rollouts_per_step
from neyman.hosts.dry_run import check_step
from neyman.hosts.terms import Terms
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
    for strategy in strategies.values():
        terms = _terms(config, strategy)
        # The bound is for the arms that have one; the others generate exactly what they train.
        bound = config.trainer.max_rollouts if strategy.close == "fixed_train" else None
        budget = rollouts_per_step(strategy, bound, terms)
        check_step(strategy, budget, terms, pool=range(problems), warn=logging.getLogger("neyman").warning)


def _terms(config: Config, strategy: Strategy) -> Terms:
    """Return a step of the training in the words of the command."""
    settings = config.trainer
    weighs_tokens = strategy.prompt_weight == "equal_tokens"  # the trainer checks whether its loss does
    return Terms(
        rows=settings.budget,
        group_size=settings.group_size,
        aggregation="token_mean" if weighs_tokens else "sequence_mean",
        batch="step",
        group_setting="--trainer.group-size",
        batch_settings="--trainer.prompts-per-step",
        loss_setting="--trainer.loss-type",
        max_rollouts="--trainer.max-rollouts",
        option="--strategy.options {name}={value}",
        accept_change="another --out",
        new_run="another --out",
        filler="copies of weight zero",
    )


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
