"""Strategies and seeds replayed in processes of their own; what is finished is kept and not done again."""

from __future__ import annotations

import ctypes
import json
import logging
import multiprocessing
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, fields
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from neyman import __version__
from neyman._checks import integer
from neyman._files.atomic import write_atomic
from neyman._files.json import loads
from neyman._files.limits import read_bytes
from neyman.errors import RunFailedError
from neyman.replay._host import replay_strategy, strategy_for
from neyman.replay._settings import Settings
from neyman.replay._trace import Trace
from neyman.strategy import Strategy

# Of the figures' meaning: results kept under another are computed again.
_VERSION = 3
_POLL_SECONDS = 0.2
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")

Features = NDArray[np.float32]
Watch = Callable[[Sequence[tuple[str, int, float]]], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """One strategy under one seed.

    Args:
        strategy: the preset's name.
        seed: the seed.
        figures: what `replay_strategy` returned.
    """

    strategy: str
    seed: int
    figures: dict[str, Any]


def replay_all(
    trace: Trace,
    strategies: Sequence[str],
    settings: Settings,
    *,
    seeds: Sequence[int],
    features: Features | None = None,
    out: Path | None = None,
    jobs: int = 1,
    watch: Watch = lambda _: None,
) -> list[Replayed]:
    """Replay strategies with several seeds.

    Args:
        trace: what was recorded.
        strategies: names of presets, with options behind colons (`strategy_for`).
        settings: group size, prompts a step, passes.
        seeds: one run each.
        features: float32 [prompts, F], registered with the beliefs that use features.
        out: folder for what is finished, one file a run; a later call with the same arguments goes on there.
        jobs: processes at once; 1 stays in this one.
        watch: is told (strategy, seed, share done) of every run, several times a second.

    Returns:
        The runs, strategy after strategy.

    Raises:
        ArgumentError: an unknown strategy, before anything is run.
        RunFailedError: a run could not go on.

    Guarantee: the same figures whatever the number of jobs. When this returns or raises, no process that it
    started is left.
    """
    integer("jobs", jobs, low=1)
    work = [(name, seed) for name in dict.fromkeys(strategies) for seed in dict.fromkeys(seeds)]
    keys = {name: _key(trace, strategy_for(name, settings), settings, features) for name in strategies}
    done: dict[tuple[str, int], dict[str, Any]] = {}
    for name, seed in work:
        kept = None if out is None else _kept(_place(out, name, seed), keys[name])
        if kept is not None:
            done[name, seed] = kept
    waiting = [run for run in work if run not in done]

    def finished(run: tuple[str, int], figures: dict[str, Any]) -> None:
        done[run] = figures
        if out is not None:
            out.mkdir(parents=True, exist_ok=True)
            record = {"key": keys[run[0]], "strategy": run[0], "seed": run[1], "figures": figures}
            record |= {"checksum": _checksum(figures)}
            write_atomic(_place(out, *run), json.dumps(record, allow_nan=False).encode())

    def tell(shares: Sequence[float]) -> None:
        now = dict.fromkeys(done, 1.0) | dict(zip(waiting, shares, strict=True)) | dict.fromkeys(done, 1.0)
        watch([(name, seed, now.get((name, seed), 0.0)) for name, seed in work])

    if jobs == 1 or len(waiting) <= 1:
        _here(trace, settings, features, waiting, finished, tell)
    else:
        _in_processes(trace, settings, features, waiting, finished, tell, jobs=min(jobs, len(waiting)))
    return [Replayed(strategy=name, seed=seed, figures=done[name, seed]) for name, seed in work]


def _key(trace: Trace, strategy: Strategy, settings: Settings, features: Features | None) -> str:
    """Return a hash of all that a run's figures follow from."""
    parts = {item.name: getattr(strategy, item.name) for item in fields(strategy)}
    belief = parts.pop("belief")
    parts |= {"belief": [type(belief).__name__, belief.state_dict()], "neyman": [__version__, _VERSION]}
    parts |= {"trace": trace.fingerprint, "settings": settings.as_dict()}
    digest = blake2b(json.dumps(parts, sort_keys=True, default=repr).encode(), digest_size=12)
    digest.update(b"-" if features is None else np.ascontiguousarray(features).tobytes())
    return digest.hexdigest()


def _place(out: Path, name: str, seed: int) -> Path:
    # Options may be any text; another one that is written alike has another key.
    return out / f"{re.sub(r'[^A-Za-z0-9+.=_-]', '_', name)}-{seed}.json"


def _kept(path: Path, key: str) -> dict[str, Any] | None:
    """Return the figures of a finished run as they were written; None where it is to be done (again)."""
    try:
        record = loads(read_bytes(path))
    except (OSError, ValueError):
        return None
    if not isinstance(record, dict) or record.get("key") != key:
        return None
    figures = record.get("figures")
    whole = isinstance(figures, dict) and record.get("checksum") == _checksum(figures)
    return figures if whole else None


def _checksum(figures: dict[str, Any]) -> str:
    """Return a hash of figures that JSON leaves as it is."""
    return blake2b(json.dumps(figures).encode(), digest_size=12).hexdigest()


def _one(
    trace: Trace,
    settings: Settings,
    features: Features | None,
    run: tuple[str, int],
    progress: Callable[[float], None],
) -> dict[str, Any]:
    name, seed = run
    strategy = strategy_for(name, settings)
    if features is not None:
        strategy.belief.register(range(trace.prompts), features)
    return replay_strategy(trace, strategy, settings, seed=seed, progress=progress)


def _here(
    trace: Trace,
    settings: Settings,
    features: Features | None,
    waiting: Sequence[tuple[str, int]],
    finished: Callable[[tuple[str, int], dict[str, Any]], None],
    tell: Callable[[Sequence[float]], None],
) -> None:
    shares = [0.0] * len(waiting)
    last = time.monotonic()

    def progress(place: int, share: float) -> None:
        nonlocal last
        shares[place] = share
        if time.monotonic() - last >= _POLL_SECONDS:
            last = time.monotonic()
            tell(shares)

    with _quiet():
        for place, run in enumerate(waiting):
            finished(run, _one(trace, settings, features, run, lambda x, i=place: progress(i, x)))  # type: ignore[misc]
            tell(shares)


def _in_processes(
    trace: Trace,
    settings: Settings,
    features: Features | None,
    waiting: Sequence[tuple[str, int]],
    finished: Callable[[tuple[str, int], dict[str, Any]], None],
    tell: Callable[[Sequence[float]], None],
    *,
    jobs: int,
) -> None:
    context = multiprocessing.get_context("spawn")  # a fork would copy threads' locks
    shares: Any = context.Array(ctypes.c_double, len(waiting))
    with _one_thread_each():
        shared = (trace, settings, features, shares, os.getpid())
        pool = ProcessPoolExecutor(jobs, mp_context=context, initializer=partial(_start, *shared))
        try:
            futures: dict[Future[dict[str, Any]], tuple[str, int]] = {
                pool.submit(_work, place, run): run for place, run in enumerate(waiting)
            }
            while futures:
                time.sleep(_POLL_SECONDS)
                for future in [f for f in futures if f.done()]:
                    run = futures.pop(future)
                    finished(run, _result(future, run))
                tell(list(shares))
        except BaseException:
            for process in list((pool._processes or {}).values()):  # noqa: SLF001 - a pool cannot be told to stop
                process.terminate()
            raise
        finally:
            pool.shutdown(cancel_futures=True)


def _result(future: Future[dict[str, Any]], run: tuple[str, int]) -> dict[str, Any]:
    try:
        return future.result()
    except RuntimeError as error:  # a process that was killed breaks the pool
        raise RunFailedError(f"the replay of {run[0]}, seed {run[1]}, failed: {error}") from error


@contextmanager
def _one_thread_each() -> Iterator[None]:
    before = {name: os.environ.get(name) for name in _THREADS}
    os.environ.update(dict.fromkeys(_THREADS, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep what a strategy says of its own yield off the terminal: the summary says it for all."""
    logger = logging.getLogger("neyman")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)


# What a process works with, set once as it starts.
_SHARED: dict[str, Any] = {}


def _start(trace: Trace, settings: Settings, features: Features | None, shares: Any, parent: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends its processes in order
    logging.getLogger("neyman").setLevel(logging.ERROR)
    _SHARED.update(trace=trace, settings=settings, features=features, shares=shares)

    def follow() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        os._exit(1)

    threading.Thread(target=follow, daemon=True, name="neyman-parent").start()


def _work(place: int, run: tuple[str, int]) -> dict[str, Any]:
    shares = _SHARED["shares"]

    def progress(share: float) -> None:
        shares[place] = share

    return _one(_SHARED["trace"], _SHARED["settings"], _SHARED["features"], run, progress)
