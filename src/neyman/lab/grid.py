"""Grids of experiments side by side: one JSON file for each run, and finished runs kept on resume."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from neyman._checks import integer
from neyman._files.atomic import write_atomic
from neyman._jobs import Processes, side_by_side
from neyman.errors import ArgumentError, StateError
from neyman.lab._saved import read_run
from neyman.lab.experiment import Experiment, run
from neyman.lab.task import WarmStart, starting_policy


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One run of a grid."""

    experiment: Experiment
    seed: int

    @property
    def name(self) -> str:
        """The path of its result in a grid's folder, without suffix."""
        e = self.experiment
        return f"{e.regime}/{e.strategy}/n{e.group_size}-lr{e.learning_rate:g}-seed{self.seed}"


class Watch(Protocol):
    """An observer of a grid."""

    def update(self, done: int, total: int, doing: str) -> None:
        """Take in the progress; called at the start, and at the end of each run."""
        ...


def grid(
    base: Experiment,
    *,
    regimes: Sequence[str],
    strategies: Sequence[str],
    seeds: Sequence[int],
    rates: Sequence[float],
    group_sizes: Sequence[int],
) -> list[Cell]:
    """Return every run of a comparison; a step has the same number of rows whatever its group size.

    Args:
        base: all other settings; its ``prompts * group_size`` rows a step are kept.
        regimes: see `Experiment`.
        strategies: see `Experiment`.
        seeds: each a run.
        rates: learning rates.
        group_sizes: each must divide the rows of a step.

    Raises:
        ArgumentError: a value named twice, or a group size that does not divide the rows.
    """
    rows = base.prompts * base.group_size
    axes: dict[str, Sequence[Any]] = {
        "regimes": regimes,
        "strategies": strategies,
        "seeds": seeds,
        "rates": rates,
        "group_sizes": group_sizes,
    }
    for name, values in axes.items():
        if not values or len(set(values)) != len(values):
            raise ArgumentError(f"{name} must name at least one, and each once, got {list(values)}")
    for size in group_sizes:
        if rows % integer("group_sizes", size, low=2):
            raise ArgumentError(f"group_sizes must divide the {rows} rollouts of a step, got {size}")
    return [
        Cell(
            experiment=replace(
                base,
                regime=regime,
                strategy=strategy,
                learning_rate=rate,
                group_size=size,
                prompts=rows // size,
            ),
            seed=seed,
        )
        for seed, regime, rate, size, strategy in itertools.product(
            seeds, regimes, rates, group_sizes, strategies
        )
    ]


def run_grid(
    cells: Sequence[Cell],
    out: Path,
    *,
    jobs: int,
    watch: Watch | None = None,
    cache: str | Path | None = None,
) -> dict[str, str]:
    """Run every cell that ``out`` does not hold yet.

    Args:
        cells: the runs.
        out: a file ``out / (name + ".json")`` for each.
        jobs: processes at once.
        watch: is called on the way.
        cache: folder of warm-started policies; by default the user's.

    Returns:
        The error of each run that failed, by the cell's name; the others are done.

    Raises:
        StateError: a file holds another run than its name stands for, or is damaged.

    Guarantee: results are whole or absent. When this returns or raises, no process that it started is left;
    should this process be killed, its children end at once.
    """
    integer("jobs", jobs, low=1)
    waiting = [cell for cell in cells if _saved(cell, out) is None]
    total, failed = len(cells), dict[str, str]()
    done = total - len(waiting)
    starts = list(dict.fromkeys(cell.experiment.warm_start for cell in waiting))
    if watch is not None:
        watch.update(done, total, "warm-starting the policies" if starts else "")
    with Processes(shared=(cache,)) as processes:
        failed |= _taught(processes, waiting, starts, jobs)
        done += len(failed)
        tasks = [(cell, out / f"{cell.name}.json") for cell in waiting if cell.name not in failed]
        for _, ended in side_by_side(tasks, partial(processes.call, _perform), at_once=jobs):
            for (cell, _), call in ended:
                done += 1
                if call.error is not None:
                    failed[cell.name] = str(call.error)
                if watch is not None:
                    watch.update(done, total, cell.name)
    return failed


def load_grid(cells: Sequence[Cell], out: Path) -> list[dict[str, Any]]:
    """Return the results that exist, in the order of the cells.

    Raises:
        StateError: a file holds another run than its name stands for, or is damaged.
    """
    found = (_saved(cell, out) for cell in cells)
    return [one for one in found if one is not None]


def _saved(cell: Cell, out: Path) -> dict[str, Any] | None:
    """Return a cell's result; None where it has none."""
    path = out / f"{cell.name}.json"
    if not path.exists():
        return None
    saved = read_run(path)
    # Through JSON, in which tuples are lists and numbers have lost their types.
    if saved["experiment"] != json.loads(json.dumps(asdict(cell.experiment))) or saved["seed"] != cell.seed:
        raise StateError(f"{path} holds a run with other settings; give another --out, or delete it")
    return saved


def _taught(
    processes: Processes, cells: Sequence[Cell], starts: Sequence[WarmStart], jobs: int
) -> dict[str, str]:
    """Put the starting policies into the cache; return the error of each cell that has none."""
    failed: dict[str, str] = {}
    for _, ended in side_by_side(starts, partial(processes.call, _teach), at_once=jobs):
        for start, call in ended:
            if call.error is not None:
                without = [cell for cell in cells if cell.experiment.warm_start == start]
                failed |= {cell.name: f"its warm start failed: {call.error}" for cell in without}
    return failed


def _teach(cache: str | Path | None, start: WarmStart, _: Callable[[float], None]) -> None:
    starting_policy(start, cache=cache)


def _perform(cache: str | Path | None, task: tuple[Cell, Path], _: Callable[[float], None]) -> None:
    cell, path = task
    began = time.process_time()  # not wall time: runs share the cores
    result = run(cell.experiment, cell.seed, cache=cache)
    result["cpu_seconds"] = time.process_time() - began
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, json.dumps(result, allow_nan=False).encode())
