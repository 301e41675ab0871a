"""``neyman train``, ``demo`` and ``report``: trainings, the directories that they take, and their reports."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro
from pydantic import BaseModel

from neyman._files.atomic import write_atomic
from neyman._jobs import interruptible
from neyman.cli._terminal import check_jobs, check_out, new_console
from neyman.config import TASKS, Config, from_mapping, read_toml, to_toml
from neyman.errors import ArgumentError

CONFIG_FILE = "config.toml"
# `--model PATH` for `--model.path PATH`, and so on.
_SHORT = {"--model": "--model.path", "--task": "--task.type", "--strategy": "--strategy.name"}


@dataclass(frozen=True)
class TrainCommand:
    """Train strategies side by side at one budget, and report the yield of every rollout.

    A file in TOML may come first: its sections are those below, and flags override it.
    """

    config: Annotated[Config, tyro.conf.arg(name="")]
    out: Path
    """Directory of the results."""
    resume: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Go on with the training in --out."""
    jobs: int | None = None
    """Processes at once [one per core for the tiny policy, else one]."""


@dataclass(frozen=True)
class DemoCommand:
    """Train the embedded default: a tiny policy on the digit rules, two strategies at the same budget.

    Goes on where it was when the directory exists.
    """

    out: Path
    """Directory of the results."""
    jobs: int | None = None
    """Processes at once [one per core]."""


@dataclass(frozen=True)
class ReportCommand:
    """Write report.html and summary.json again."""

    path: tyro.conf.Positional[Path]
    """Directory that holds runs."""


def train_command(words: list[str]) -> int:
    is_file = bool(words) and not words[0].startswith("-")
    flags = [_SHORT.get(word, word) for word in (words[1:] if is_file else words)]
    out = _peek(flags, "--out")
    saved = Path(out) / CONFIG_FILE if out else Path(CONFIG_FILE)
    if is_file:
        values = read_toml(Path(words[0]))
    else:
        values = read_toml(saved) if out and "--resume" in flags and saved.exists() else {}
    command = tyro.cli(
        TrainCommand,
        args=flags,
        default=TrainCommand(config=_defaults(values, _peek(flags, "--task.type")), out=tyro.MISSING_NONPROP),
        config=(tyro.conf.AvoidSubcommands,),
        prog="neyman train",
    )
    return _train(command.config.check(), command.out, resume=command.resume, jobs=command.jobs)


def demo_command(words: list[str]) -> int:
    command = tyro.cli(DemoCommand, args=words, prog="neyman demo")
    saved = command.out / CONFIG_FILE
    config = from_mapping(read_toml(saved)) if saved.exists() else from_mapping({})
    return _train(config, command.out, resume=True, jobs=command.jobs)


def report_command(words: list[str]) -> int:
    command = tyro.cli(ReportCommand, args=words, prog="neyman report")
    from neyman.train import finish  # noqa: PLC0415 - loads the report's statistics

    finish(command.path, new_console())
    return 0


def _train(config: Config, out: Path, *, resume: bool, jobs: int | None) -> int:
    check_jobs(jobs)
    from neyman import train  # noqa: PLC0415 - loads rich's live display

    fresh = claim(config, out, resume=resume)
    if fresh:
        train.check_start(config)
    out.mkdir(parents=True, exist_ok=True)

    with interruptible(), train.only_one(out):
        if fresh:
            train.clear(out)
            write_atomic(out / CONFIG_FILE, to_toml(config).encode())
        return train.train_here(config, out, jobs=jobs, console=new_console())


def _peek(words: Sequence[str], flag: str) -> str | None:
    """Return the word behind a flag; tyro, which parses them all, needs some of them first."""
    for place, word in enumerate(words):
        if word == flag:
            return words[place + 1] if place + 1 < len(words) else None
        if word.startswith(f"{flag}="):
            return word.partition("=")[2]
    return None


def _defaults(values: dict[str, Any], task_type: str | None) -> Config:
    """Return the file's settings, which the flags override; a task of another kind starts empty."""
    task = values.get("task", {})
    # A task that is no table is refused with the other settings.
    if task_type is None or not isinstance(task, dict) or task_type == task.get("type", "rules"):
        return from_mapping(values, partial=True)
    if task_type not in TASKS:
        raise ArgumentError(f"task.type must be one of {', '.join(TASKS)}, got {task_type!r}")
    config = from_mapping({key: value for key, value in values.items() if key != "task"}, partial=True)
    kind = TASKS[task_type]
    needed = {name: tyro.MISSING_NONPROP for name, field in kind.model_fields.items() if field.is_required()}
    return config.model_copy(update={"task": kind.model_construct(**needed)})


def claim(config: Config, out: Path, *, resume: bool) -> bool:
    """Check that a training may use a directory of results; nothing is written.

    Returns:
        Whether it starts anew: the directory is empty, or holds a training of which no run ever began.

    Raises:
        ArgumentError: it holds results and ``resume`` is False; or results of other settings, or other files.
    """
    from neyman.train import has_begun  # noqa: PLC0415 - as above

    saved = out / CONFIG_FILE
    check_out(out)
    if saved.exists():
        begun = has_begun(out)
        if begun and not resume:
            raise ArgumentError(
                f"--out {out} already holds a training; go on with it by --resume, or give another --out"
            )
        differing = _differing(from_mapping(read_toml(saved)), config)
        if begun and differing:
            raise ArgumentError(
                f"{saved} holds other settings ({', '.join(differing)}); --resume without a file and flags goes on "
                "with them, another --out trains with yours"
            )
        return not begun and (bool(differing) or not resume)
    if out.exists() and any(not path.name.startswith(".") for path in out.iterdir()):
        raise ArgumentError(
            f"--out {out} is not empty and holds no training (no {CONFIG_FILE}); give another --out"
        )
    return True


def _differing(saved: BaseModel, given: BaseModel, prefix: str = "") -> list[str]:
    """Return the settings that differ, each with both values."""
    if type(saved) is not type(given):
        return [f"{prefix}type"]
    names = []
    for name in type(saved).model_fields:
        one, other = getattr(saved, name), getattr(given, name)
        if isinstance(one, BaseModel) and isinstance(other, BaseModel):
            names += _differing(one, other, f"{prefix}{name}.")
        elif one != other:
            names.append(f"{prefix}{name}: {one!r} there, {other!r} here")
    return names
