"""``neyman plan``: the expected yield of each way to spend a budget, from the difficulty of a pool."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.table import Table

from neyman._files.atomic import write_atomic
from neyman.cli._terminal import new_console, table_console
from neyman.errors import ArgumentError

_SIZES = (4, 8, 16, 32)


@dataclass(frozen=True)
class PlanCommand:
    """Estimate the share of zero-variance groups, and the saving of each way to spend a budget, from difficulty counts.

    Give files of counts (successes of trials per prompt) or of rollouts; or --beta A B.
    """

    files: tyro.conf.Positional[tuple[Path, ...]] = ()
    """Counts per prompt, or logs."""
    beta: tuple[float, float] | None = None
    """Success rates that follow Beta(A, B), in place of files."""
    group_size: tuple[int, ...] = ()
    """Rollouts of a full group, one or several sizes [those of 4, 8, 16, 32 that the counts allow]."""
    budget: int | None = None
    """Rollouts to spend on effective groups."""
    threshold: float = 0.45
    """Of SARA's verdict."""
    columns: Annotated[tuple[str, ...], tyro.conf.arg(metavar="ROLE=COLUMN ...")] = ()
    """Columns of unusual names, as in successes=correct trials=samples."""
    success_threshold: float | None = None
    """Rewards from here on are successes, where they are not binary."""
    out: Path | None = None
    """File for the same as JSON."""


def plan_command(words: list[str]) -> int:
    """Run the command and return its status."""
    command = tyro.cli(PlanCommand, args=words, prog="neyman plan")
    if bool(command.files) == (command.beta is not None):
        raise ArgumentError(
            "neyman plan takes files of counts or --beta A B, one of both; for example: neyman plan counts.parquet "
            "--group-size 8 16, or: neyman plan --beta 0.3 0.3"
        )
    from neyman.replay import BetaDifficulty, CountDifficulty, Difficulty, plan, read_logs  # noqa: PLC0415 - after --help

    console = new_console()
    difficulty: Difficulty
    sizes = command.group_size
    if command.beta is not None:
        difficulty = BetaDifficulty(*command.beta)
        sizes = sizes or _SIZES
        console.print(f"success rates assumed to follow Beta({command.beta[0]:g}, {command.beta[1]:g})")
    else:
        trace, found, _ = read_logs(
            command.files, columns=command.columns, success_threshold=command.success_threshold
        )
        difficulty = CountDifficulty(trace.successes, trace.trials)
        most = int(trace.trials.max())
        sizes = sizes or tuple(k for k in _SIZES if k <= most) or _SIZES[:1]
        for line in found.sentences():
            console.print(line, markup=False)
    plans = [plan(difficulty, k, budget=command.budget, threshold=command.threshold).as_dict() for k in sizes]
    table_console(console).print(_table(plans))
    for one in plans:
        console.print(
            f"groups of {one['group_size']}: the yield condition of early verdicts "
            f"{'holds' if one['yield_holds'] else 'fails'}",
            markup=False,
        )
    console.print(
        "Uniform allocation generates the rollouts of dynamic sampling, and trains the dead groups too. Savings are of "
        "rollouts for one effective group, not of accuracy. `speed` and `pilot-commit` are taken at their defaults, "
        "every prompt met for the first time. All other strategies depend on their memory of each prompt, or train "
        "groups of other sizes: `neyman replay` answers for those.",
        markup=False,
    )
    if command.out is not None:
        _write(command.out, {"plans": plans, "budget": command.budget, "threshold": command.threshold})
    return 0


def _write(path: Path, content: dict[str, Any]) -> None:
    if not path.parent.is_dir():
        raise ArgumentError(f"--out {path} is in a folder that is not there; make it, or give another file")
    write_atomic(path, (json.dumps(content, indent=2, allow_nan=False) + "\n").encode())


def _table(plans: Sequence[dict[str, Any]]) -> Table:
    has_budget = any(way["groups"] is not None for one in plans for way in one["ways"].values())
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("size", "dead", "never", "always"):
        table.add_column(heading, justify="right")
    table.add_column("way")
    for heading in (
        "gives up after",
        "rollouts/group",
        "saves",
        "signal",
        *(["groups bought"] if has_budget else []),
    ):
        table.add_column(heading, justify="right")
    for one in plans:
        for place, (name, way) in enumerate(one["ways"].items()):
            size = [str(one["group_size"]), *(_share(one[key]) for key in ("dead", "never", "always"))]
            table.add_row(
                *(size if place == 0 else [""] * 4),
                name,
                str(way["probe"]),
                _number(way["rollouts_per_group"]),
                "" if name == "dynamic-sampling" else _share(way["saving"]),
                f"{100 * way['signal_kept']:.0f} %",
                *([_number(way["groups"], 0)] if has_budget else []),
            )
    return table


def _half(entry: dict[str, float | None], scale: float, digits: int) -> str:
    low, high = entry["low"], entry["high"]
    return "" if low is None or high is None or high <= low else f" ±{scale * (high - low) / 2:.{digits}f}"


def _share(entry: dict[str, float | None]) -> str:
    return "-" if entry["mean"] is None else f"{100 * entry['mean']:.1f}{_half(entry, 100.0, 1)} %"


def _number(entry: dict[str, float | None], digits: int = 1) -> str:
    return "-" if entry["mean"] is None else f"{entry['mean']:,.{digits}f}{_half(entry, 1.0, digits)}"
