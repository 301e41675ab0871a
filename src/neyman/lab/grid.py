"""Many experiments side by side: one JSON file for each run, processes that are reused, and nothing lost on resume."""

from __future__ import annotations

import itertools
import json
import logging
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Protocol

from neyman._checks import integer
from neyman._files.atomic import write_atomic
from neyman.errors import ArgumentError, NeymanError, StateError
from neyman.lab._saved import read_run
from neyman.lab.experiment import Experiment, run
from neyman.lab.task import WarmStart, starting_policy

_END_SECONDS = 5.0
# Two threads are slower than one on matrices of this size, most of all where processes share cores.
_ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One run of a grid."""

    experiment: Experiment
    seed: int

    @property
    def name(self) -> str:
        """Where its result is filed, without suffix."""
        e = self.experiment
        return f"{e.regime}/{e.strategy}/n{e.group_size}-lr{e.learning_rate:g}-seed{self.seed}"


class Watch(Protocol):
    """Is told how the grid goes."""

    def update(self, done: int, total: int, doing: str) -> None:
        """Called whenever something ended, and at the start."""
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
        base: everything else; its ``prompts * group_size`` rows a step are kept.
        regimes: see `Experiment`.
        strategies: see `Experiment`.
        seeds: each a run.
        rates: learning rates.
        group_sizes: each must divide the rows of a step.

    Raises:
        ArgumentError: something named twice, or a group size that does not divide the rows.
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
        cells: what to run.
        out: a file ``out / (name + ".json")`` for each.
        jobs: processes at once.
        watch: is told how it goes.
        cache: folder of warm-started policies; by default the user's.

    Returns:
        What went wrong, by the cell's name; the others are done.

    Raises:
        StateError: a file holds another run than its name says, or is damaged.

    Guarantee: results are whole or absent. When this returns or raises, no process that it started is left;
    should this process be killed, its children end after the run that they are at.
    """
    integer("jobs", jobs, low=1)
    waiting = [cell for cell in cells if _saved(cell, out) is None]
    total, failed = len(cells), dict[str, str]()
    done = total - len(waiting)
    starts = list(dict.fromkeys(cell.experiment.warm_start for cell in waiting))
    if watch is not None:
        watch.update(done, total, "warm-starting the policies" if starts else "")
    with _pool(min(jobs, max(1, len(waiting))), cache) as work:
        for start, error in work(starts):
            if error is not None:
                failed |= {
                    cell.name: f"its warm start failed: {error}"
                    for cell in waiting
                    if cell.experiment.warm_start == start
                }
        tasks = [(cell, out / f"{cell.name}.json") for cell in waiting if cell.name not in failed]
        done += len(failed)
        for (cell, _), error in work(tasks):
            done += 1
            if error is not None:
                failed[cell.name] = error
            if watch is not None:
                watch.update(done, total, cell.name)
    return failed


def load_grid(cells: Sequence[Cell], out: Path) -> list[dict[str, Any]]:
    """Return the results that are there, in the order of the cells.

    Raises:
        StateError: a file holds another run than its name says, or is damaged.
    """
    found = (_saved(cell, out) for cell in cells)
    return [one for one in found if one is not None]


def _saved(cell: Cell, out: Path) -> dict[str, Any] | None:
    """Return a cell's result; None where it is not there."""
    path = out / f"{cell.name}.json"
    if not path.exists():
        return None
    saved = read_run(path)
    if saved["experiment"] != json.loads(json.dumps(asdict(cell.experiment))) or saved["seed"] != cell.seed:
        raise StateError(f"{path} holds a run with other settings; give another --out, or delete it")
    return saved


def _perform(task: Any, cache: str | Path | None) -> None:
    if isinstance(task, WarmStart):
        starting_policy(task, cache=cache)
        return
    cell, path = task
    began = time.process_time()
    result = run(cell.experiment, cell.seed, cache=cache)
    result["cpu_seconds"] = time.process_time() - began
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, json.dumps(result, allow_nan=False).encode())


def _serve(connection: Connection, cache: str | Path | None) -> None:
    """Do what comes through the connection until it closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the parent, which ends this one in order
    # What is advice in one's own run would be said dozens of times here.
    logging.getLogger("neyman").setLevel(logging.ERROR)
    while True:
        try:
            task = connection.recv()
        except EOFError:
            return
        error = None
        try:
            _perform(task, cache)
        except NeymanError as cause:
            error = str(cause)
        except Exception as cause:  # noqa: BLE001 - the boundary to the parent, which reports it
            error = f"{type(cause).__name__}: {cause}"
        try:
            connection.send(error)
        except OSError:  # nobody listens any more
            return


Work = Callable[[Sequence[Any]], Iterator[tuple[Any, str | None]]]


@contextmanager
def _pool(jobs: int, cache: str | Path | None) -> Iterator[Work]:
    """Give a function that does tasks in processes of their own and yields each with its error, as they end."""
    context = multiprocessing.get_context("spawn")
    workers: dict[Connection, Any] = {}

    def start() -> Connection:
        ours, theirs = context.Pipe()
        process = context.Process(target=_serve, args=(theirs, cache), daemon=True)
        with _environment(_ONE_THREAD):
            process.start()
        theirs.close()  # so that the end of the process is the end of the connection
        workers[ours] = process
        return ours

    def work(tasks: Sequence[Any]) -> Iterator[tuple[Any, str | None]]:
        queue, busy = list(reversed(tasks)), dict[Connection, Any]()
        while queue or busy:
            free = [one for one in workers if one not in busy]
            while queue and (free or len(workers) < jobs):
                one = free.pop() if free else start()
                busy[one] = queue.pop()
                one.send(busy[one])
            for ready in wait(list(busy)):
                assert isinstance(ready, Connection)
                task = busy.pop(ready)
                try:
                    yield task, ready.recv()
                except (EOFError, ConnectionResetError):
                    process = workers.pop(ready)
                    process.join()
                    yield task, f"its process ended with status {process.exitcode}"

    try:
        yield work
    finally:
        _end(list(workers.values()))
        for connection in workers:
            connection.close()


def _end(processes: list[Any]) -> None:
    """End processes by their ids, gently first."""
    for process in processes:
        process.terminate()
    deadline = time.monotonic() + _END_SECONDS
    for process in processes:
        process.join(max(0.0, deadline - time.monotonic()))
        if process.exitcode is None:
            process.kill()
            process.join()


@contextmanager
def _environment(values: dict[str, str]) -> Iterator[None]:
    """Set variables for the processes started inside, where the user has not."""
    added = [name for name in values if name not in os.environ]
    os.environ.update({name: values[name] for name in added})
    try:
        yield
    finally:
        for name in added:
            del os.environ[name]
