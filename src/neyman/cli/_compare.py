"""``neyman compare``: strategies x seeds x learning rates x group sizes in the lab, each strategy at its best."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import tyro
from rich.table import Table
from rich.text import Text

from neyman._files.atomic import write_atomic
from neyman._files.json import read_object
from neyman._jobs import cores, interruptible
from neyman.cli._terminal import Bar, check_jobs, check_out, new_console, picked, split_names, table_console
from neyman.errors import ArgumentError
from neyman.presets import PRESETS, unknown_name

if TYPE_CHECKING:
    from neyman.lab.grid import Cell

SETTINGS_FILE = "compare.json"
# Flags that are settings of the lab under the same name.
_AS_GIVEN = (
    "rollouts", "pool", "estimator", "features", "world", "drift", "reward_noise", "failure_tokens", "warm_start_steps",
)  # fmt: skip
Value = TypeVar("Value")


@dataclass(frozen=True)
class CompareCommand:
    """Compare strategies in the lab: a policy of 0.1M parameters, exact accuracy, seconds a run on one core.

    Each strategy is reported at its best learning rate and group size, the reference at its own best.
    """

    out: Path
    """Directory of the runs, summary.json and report.html."""
    regimes: str = "hard,ushape"
    """Spreads of difficulty, separated by commas: hard, ushape, easy."""
    strategies: str = "uniform,vip,neyman,oracle"
    """Presets, and those of docs/lab.md: "oracle", "vip-oracle", "neyman-told"; or "core", or "all"."""
    seeds: int = 3
    """How many: first_seed, first_seed + 1, ..."""
    first_seed: int = 0
    """The first one."""
    rates: str = "6e-4,1.2e-3"
    """Learning rates."""
    group_sizes: str = "4"
    """Average rollouts per prompt; a step has --rows rollouts whatever they are."""
    rows: int = 128
    """Rollouts a step trains."""
    rollouts: int = 16_000
    """Rollouts of a run."""
    pool: int = 1024
    """Training prompts; 256 are visited many times in a run."""
    estimator: str = "rloo"
    """rloo, grpo, dr_grpo or reinforce++."""
    features: str = "none"
    """Features of prompts for the beliefs: none, metadata or hidden."""
    world: int = 0
    """Which table of difficulty, prompts and starting policy."""
    drift: float = 0.0
    """Random motion of the weights, in learning rates a step."""
    reward_noise: float = 0.0
    """Chance that a verdict is flipped."""
    failure_tokens: int = 4
    """Tokens that a wrong answer costs; a right one costs 4."""
    warm_start_steps: int = 1500
    """Optimiser steps of the starting policy's warm start."""
    reference: str = "uniform"
    """Strategy that others are compared with."""
    jobs: int | None = None
    """Processes at once [one per core]."""
    resume: tyro.conf.FlagCreatePairsOff[bool] = False
    """Go on with the comparison in --out."""


CORE = ("uniform", "vip", "sara", "dynamo", "dynamic-sampling", "mopps", "neyman", "neyman-told", "oracle")


def compare_command(words: list[str]) -> int:
    """Run the command and return its status: 1 when a run failed."""
    command = tyro.cli(CompareCommand, args=words, prog="neyman compare")
    console = new_console()
    cells = cells_of(command)
    _settle(command, resume=command.resume)
    from neyman.lab.grid import load_grid, run_grid  # noqa: PLC0415 - torch is slow to import
    from neyman.report import write_comparison  # noqa: PLC0415

    again = shlex.join(["neyman", "compare", *words])
    try:
        with interruptible(), Bar(console, lines=True) as bar:
            failed = run_grid(cells, command.out / "runs", jobs=command.jobs or cores(), watch=bar)
    except KeyboardInterrupt:
        again = again if command.resume else f"{again} --resume"
        console.print(f"\nInterrupted; finished runs are kept. Go on with:\n  {again}", markup=False)
        raise
    for name, error in failed.items():
        console.print(f"{name} failed: {error}", markup=False)
    runs = load_grid(cells, command.out / "runs")
    notes = [f"{len(failed)} of {len(cells)} runs failed; the others are compared."] if failed else []
    summary = write_comparison(command.out, runs, reference=command.reference, notes=notes, command=again)
    wide = table_console(console)
    for regime, figures in summary["regimes"].items():
        wide.print(_table(regime, figures))
        for line in _at_the_edge(figures):
            wide.print(line, markup=False)
    console.print(f"report: {(command.out / 'report.html').absolute()}", markup=False)
    return 1 if failed else 0


def cells_of(command: CompareCommand) -> list[Cell]:
    """Return the runs that a command asks for.

    Raises:
        ArgumentError: a name, a number or a combination that is not legal.
    """
    from neyman.lab.experiment import Experiment  # noqa: PLC0415 - torch is slow to import
    from neyman.lab.grid import grid  # noqa: PLC0415
    from neyman.lab.strategies import strategy_names  # noqa: PLC0415

    short = {"core": CORE, "all": (*PRESETS, "neyman-told", "oracle")}
    names = list(short.get(command.strategies) or _list("strategies", command.strategies, str))
    unknown = [name for name in names if name not in strategy_names()]
    if unknown:
        raise unknown_name("--strategies", unknown[0], list(strategy_names()))
    if command.reference not in names:
        raise ArgumentError(
            f"--reference must be one of --strategies ({', '.join(names)}), got {command.reference!r}"
        )
    if command.seeds < 1 or command.first_seed < 0:
        raise ArgumentError(
            f"--seeds must be >= 1 and --first-seed >= 0, got {command.seeds} and {command.first_seed}"
        )
    check_jobs(command.jobs)
    sizes = _list("group-sizes", command.group_sizes, int)
    if command.rows % sizes[0]:
        raise ArgumentError(
            f"--rows must be a multiple of every group size, got {command.rows} and {sizes[0]}"
        )
    base = Experiment(
        prompts=command.rows // sizes[0],
        group_size=sizes[0],
        **picked(command, *_AS_GIVEN),
    )
    return grid(
        base,
        regimes=_list("regimes", command.regimes, str),
        strategies=names,
        seeds=range(command.first_seed, command.first_seed + command.seeds),
        rates=_list("rates", command.rates, float),
        group_sizes=sizes,
    )


def _list(flag: str, text: str, kind: Callable[[str], Value]) -> list[Value]:
    try:
        return [kind(word) for word in split_names(text)]
    except ValueError as error:
        raise ArgumentError(f"--{flag} must be separated by commas, got {text!r}: {error}") from error


def _settle(command: CompareCommand, *, resume: bool) -> None:
    """Make the directory with the settings in it, or check that it holds the same comparison."""
    settings = {k: v for k, v in asdict(command).items() if k not in ("out", "jobs", "resume")}
    path = command.out / SETTINGS_FILE
    check_out(command.out)
    if path.exists():
        if not resume:
            raise ArgumentError(f"--out {command.out} already holds a comparison; go on with it by --resume")
        saved = _read_settings(path)
        differing = [
            f"{key} {saved.get(key)!r:.80} there, {settings[key]!r} here"
            for key in settings
            # More strategies or seeds are welcome: the files of runs are named by their settings.
            if saved.get(key) != settings[key] and key not in _GROWING
        ]
        if differing:
            raise ArgumentError(f"{path} holds other settings ({'; '.join(differing)}); give another --out")
    elif command.out.exists() and not _may_begin(command.out, resume=resume):
        raise ArgumentError(f"--out {command.out} is not empty and holds no comparison; give another --out")
    command.out.mkdir(parents=True, exist_ok=True)
    write_atomic(path, (json.dumps(settings, indent=2) + "\n").encode())


def _read_settings(path: Path) -> dict[str, Any]:
    try:
        return read_object(path)
    except (OSError, ValueError) as error:
        raise ArgumentError(
            f"{path} is damaged: {error}; delete it and give --resume again: the runs are kept, and checked against "
            "the settings that you give"
        ) from error


def _may_begin(out: Path, *, resume: bool) -> bool:
    """Whether a directory without settings is empty, or a comparison's whose settings were deleted."""
    names = {path.name for path in out.iterdir()}
    return not names or (resume and names <= _WRITTEN and (out / "runs").is_dir())


_WRITTEN = {"runs", "summary.json", "report.html"}
_GROWING = ("regimes", "strategies", "seeds", "first_seed", "rates", "group_sizes", "reference")


def _table(regime: str, figures: dict[str, Any]) -> Table:
    table = Table(
        title=f"{regime}, {figures['compared_at']['rollouts']:,.0f} rollouts", box=None, pad_edge=False
    )
    table.add_column("strategy")
    for heading in (
        "final accuracy",
        f"against {figures['reference']}",
        "rollouts to it",
        "oracle's saving",
        "setting",
    ):
        table.add_column(heading, justify="right")
    for name, one in figures["strategies"].items():
        cost = one["rollouts_to_reference"]
        table.add_row(
            Text(name),
            _words(one["final_accuracy"], 3),
            _words(one["difference_to_reference"], 3),
            ("> " if cost["censored"] else "") + _words(cost, 0),
            _words(one["oracle_saving_captured"] or {}, 2),
            f"{one['setting']['learning_rate']:g}, n={one['setting']['group_size']}",
        )
    return table


def _at_the_edge(figures: dict[str, Any]) -> list[str]:
    """Name the strategies that are best at the smallest or largest rate that was tried: their best may lie beyond.

    A strategy with a single rate is left out, as it had no choice.
    """
    ends: dict[tuple[str, float], list[str]] = {}
    for name, one in figures["strategies"].items():
        rates = sorted({setting["learning_rate"] for setting in one["settings"]})
        best = one["setting"]["learning_rate"]
        if len(rates) > 1 and best in (rates[0], rates[-1]):
            ends.setdefault(("smaller" if best == rates[0] else "larger", best), []).append(name)
    return [
        f"best at the last rate tried, {rate:g}, so try {way} ones: {', '.join(names)}"
        for (way, rate), names in ends.items()
    ]


def _words(figures: dict[str, Any], digits: int) -> str:
    if figures.get("mean") is None:
        return "-"
    low, high = figures["low"], figures["high"]
    text = f"{figures['mean']:,.{digits}f}"
    if low is None:
        return text
    return f"{text} ({low:,.{digits}f} to {'never' if high is None else f'{high:,.{digits}f}'})"


__all__: Sequence[str] = ("CORE", "CompareCommand", "cells_of", "compare_command")
