"""Strategies and seeds replayed in processes of their own; finished runs are kept and not done again."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
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
from neyman._files.json import read_object
from neyman._jobs import Processes, quiet, side_by_side, throttled
from neyman.replay._host import replay_strategy, strategy_for
from neyman.replay._settings import Settings
from neyman.replay._trace import Trace
from neyman.strategy import Strategy

# Of the figures' meaning: results kept under another are computed again.
_VERSION = 3

Features = NDArray[np.float32]
Run = tuple[str, int]  # a strategy's name and options, and a seed
Watch = Callable[[Sequence[tuple[str, int, float]]], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """The figures of one strategy, by its name and options, under one seed, as `replay_strategy` returns them."""

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
        trace: the record.
        strategies: names of presets, with options behind colons (`strategy_for`).
        settings: group size, prompts a step, passes.
        seeds: one run each.
        features: float32 [prompts, F], registered with the beliefs that use features.
        out: folder of the finished runs, one file each; a later call with the same arguments resumes there.
        jobs: processes at once; 1 stays in this one.
        watch: called with (strategy, seed, share done) of every run, several times a second.

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
    done: dict[Run, dict[str, Any]] = {}
    for name, seed in work:
        kept = None if out is None else _kept(_place(out, name, seed), keys[name])
        if kept is not None:
            done[name, seed] = kept
    waiting = [run for run in work if run not in done]

    def show(shares: Mapping[Run, float]) -> None:
        now = {**shares, **dict.fromkeys(done, 1.0)}
        watch([(name, seed, now.get((name, seed), 0.0)) for name, seed in work])

    with closing(_replayed(trace, settings, features, waiting, jobs, show)) as replayed:
        for run, figures in replayed:
            done[run] = figures
            if out is not None:
                _keep(out, run, keys[run[0]], figures)
            show({})
    return [Replayed(strategy=name, seed=seed, figures=done[name, seed]) for name, seed in work]


def _key(trace: Trace, strategy: Strategy, settings: Settings, features: Features | None) -> str:
    """Return a hash of all inputs of a run's figures."""
    parts = {item.name: getattr(strategy, item.name) for item in fields(strategy)}
    belief = parts.pop("belief")
    parts |= {"belief": [type(belief).__name__, belief.state_dict()], "neyman": [__version__, _VERSION]}
    parts |= {"trace": trace.fingerprint, "settings": settings.as_dict()}
    digest = blake2b(json.dumps(parts, sort_keys=True, default=repr).encode(), digest_size=12)
    digest.update(b"-" if features is None else np.ascontiguousarray(features).tobytes())
    return digest.hexdigest()


def _place(out: Path, name: str, seed: int) -> Path:
    # Options may be any text; two that give one name have different keys.
    return out / f"{re.sub(r'[^A-Za-z0-9+.=_-]', '_', name)}-{seed}.json"


def _keep(out: Path, run: Run, key: str, figures: dict[str, Any]) -> None:
    name, seed = run
    record = {"key": key, "strategy": name, "seed": seed, "figures": figures, "checksum": _checksum(figures)}
    out.mkdir(parents=True, exist_ok=True)
    write_atomic(_place(out, name, seed), json.dumps(record, allow_nan=False).encode())


def _kept(path: Path, key: str) -> dict[str, Any] | None:
    """Return the figures of a finished run as they were written; None where it is to be done (again)."""
    try:
        record = read_object(path)
    except (OSError, ValueError):
        return None
    figures = record.get("figures")
    whole = (
        record.get("key") == key
        and isinstance(figures, dict)
        and record.get("checksum") == _checksum(figures)
    )
    return figures if whole else None


def _checksum(figures: dict[str, Any]) -> str:
    """Return a hash of figures that JSON leaves as it is."""
    return blake2b(json.dumps(figures).encode(), digest_size=12).hexdigest()


def _one(
    trace: Trace, settings: Settings, features: Features | None, run: Run, progress: Callable[[float], None]
) -> dict[str, Any]:
    name, seed = run
    strategy = strategy_for(name, settings)
    if features is not None:
        strategy.belief.register(range(trace.prompts), features)
    return replay_strategy(trace, strategy, settings, seed=seed, progress=progress)


def _replayed(
    trace: Trace,
    settings: Settings,
    features: Features | None,
    waiting: Sequence[Run],
    jobs: int,
    show: Callable[[Mapping[Run, float]], None],
) -> Generator[tuple[Run, dict[str, Any]]]:
    """Yield the figures of runs as they end, and show the shares of those under way."""
    if jobs == 1 or len(waiting) <= 1:
        with quiet():
            for run in waiting:
                shown = throttled(lambda share, run=run: show({run: share}))  # type: ignore[misc]
                yield run, _one(trace, settings, features, run, shown)
        return
    with Processes(shared=(trace, settings, features)) as processes:
        for running, ended in side_by_side(waiting, partial(processes.call, _one), at_once=jobs):
            for run, call in ended:
                if call.error is not None:
                    name, seed = run
                    raise type(call.error)(
                        f"the replay of {name}, seed {seed}, failed: {call.error}"
                    ) from call.error
                yield run, call.value
            show({run: call.share for run, call in running})
