"""A training run as arrays: one strategy, one seed, read from the directory that ``neyman train`` writes."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from neyman._checks import FloatP, IntP
from neyman.errors import ArgumentError, StateError
from neyman.report._lines import Events, Record, read_events, read_object

VERSION = 1


@dataclass(frozen=True)
class Groups:
    """Every group of a run, one entry per group, in the order written."""

    step: IntP  # [groups]
    prompt_id: tuple[str | int, ...]
    predicted: FloatP  # success rate predicted before the group; NaN where there was no belief
    uncertainty: FloatP  # standard deviation of that prediction; NaN likewise
    rollouts: IntP  # requested for the group, whatever became of them
    successes: IntP
    trials: IntP  # rollouts with a valid outcome
    outcome: tuple[str, ...]
    reason: tuple[str, ...]


@dataclass(frozen=True)
class Run:
    """One strategy trained with one seed."""

    path: Path
    strategy: str  # this and the next three: the names in ``run.json``
    seed: int
    task: str
    estimator: str
    budget: int  # rollouts per step
    planned_steps: int  # that the run was to take
    config: Mapping[str, Any]  # resolved
    is_finished: bool  # ``done.json`` marks the run as complete
    wall_seconds: float  # duration of the run; NaN where unknown
    step: IntP  # step numbers, [steps]; the arrays below are per step
    rollouts: IntP  # this and the next two: cumulative at the end of the step, everything requested included
    tokens: IntP
    seconds: FloatP
    metrics: Mapping[str, FloatP]  # the step's own figures by name; NaN where a step lacks one
    trainer: Mapping[str, FloatP]  # loss, gradient norm and so on by name, likewise
    account: Mapping[str, tuple[int, int]]  # fate -> (rollouts, tokens), cumulative at the last step
    eval_step: IntP  # this and the next three: when the policy was evaluated, [evals]
    eval_rollouts: IntP
    eval_tokens: IntP
    eval_seconds: FloatP
    accuracy: FloatP  # share of the test problems solved, [evals]
    problems: int  # test problems of the last evaluation; 0 without any
    is_exact: bool  # accuracies are exact success rates, not sampled ones
    groups: Groups  # every group
    notes: tuple[str, ...] = ()  # warnings for the reader, e.g. of a half-written line

    @property
    def name(self) -> str:
        """Name for sentences, such as "vip, seed 3"."""
        return f"{self.strategy}, seed {self.seed}"


def load_run(path: str | Path) -> Run:
    """Read one run directory: ``run.json``, ``metrics.jsonl`` and, when the run is complete, ``done.json``.

    The run may still be going, may have been killed in the middle of a line (the line is left out and named
    in ``notes``) and may have been resumed (of several lines for one step the later wins).

    Args:
        path: the directory.

    Returns:
        The run; without any line yet its arrays are empty.

    Raises:
        StateError: a file is missing, damaged or of another version; the message names file and line.

    Cost: O(lines + groups).
    """
    folder = Path(path)
    head = read_object(folder / "run.json")
    if head.get("version") != VERSION:
        raise StateError(
            f"{head.where}: version must be {VERSION}, got {head.get('version')!r}; "
            "use the release of neyman that wrote the run"
        )
    events = read_events(folder / "metrics.jsonl")
    done = read_object(folder / "done.json") if (folder / "done.json").exists() else Record("", {})
    finished = bool(done.data.get("finished"))
    notes = list(events.notes)
    if not finished:
        notes.append(f"not finished: {len(events.steps)} of {head.integer('steps')} steps are written")
    seconds = _column(events.steps, "seconds")
    config = head.data.get("config")
    return Run(
        path=folder,
        strategy=str(head.get("strategy")),
        seed=head.integer("seed"),
        task=str(head.get("task")),
        estimator=str(head.get("estimator")),
        budget=head.integer("budget_rollouts_per_step"),
        planned_steps=head.integer("steps"),
        config=config if isinstance(config, dict) else {},
        is_finished=finished,
        wall_seconds=_wall_seconds(done, seconds),
        step=_whole(events.steps, "step"),
        rollouts=_whole(events.steps, "rollouts"),
        tokens=_whole(events.steps, "tokens"),
        seconds=seconds,
        metrics=_metrics(events.steps, "report"),
        trainer=_metrics(events.steps, "trainer"),
        account=_account(events.steps[-1]) if events.steps else {},
        groups=_groups(events.steps),
        notes=tuple(notes),
        **_evaluations(events, seconds),
    )


def load_runs(path: str | Path) -> list[Run]:
    """Read every run directly under a directory, or the one run that the directory is.

    Args:
        path: a directory such as the one ``neyman compare`` writes: ``DIR/<strategy>-seed<k>/``.

    Returns:
        The runs, by strategy and seed.

    Raises:
        ArgumentError: there is no run, or two runs share a strategy and a seed.
        StateError: a run cannot be read.
    """
    folder = Path(path)
    if not folder.is_dir():
        raise ArgumentError(f"path must be a directory that holds runs, got {str(folder)!r}")
    found = [folder] if (folder / "run.json").exists() else [p.parent for p in folder.glob("*/run.json")]
    if not found:
        raise ArgumentError(
            f"{str(folder)!r} holds no run: expected run.json in it or in its subdirectories; train one first"
        )
    runs = sorted((load_run(p) for p in sorted(found)), key=lambda run: (run.strategy, run.seed))
    for one, other in itertools.pairwise(runs):
        if (one.strategy, one.seed) == (other.strategy, other.seed):
            raise ArgumentError(
                f"{one.path} and {other.path} are both {one.name}: a seed counts once; move one of them away"
            )
    return runs


def _wall_seconds(done: Record, seconds: FloatP) -> float:
    if done.data.get("seconds"):
        return done.number("seconds", low=0.0)
    return float(seconds[-1]) if len(seconds) else float("nan")


def _whole(records: list[Record], key: str) -> IntP:
    return np.array([record.integer(key) for record in records], dtype=np.int64)


def _column(records: list[Record], key: str) -> FloatP:
    return np.array([record.number(key, low=0.0) for record in records], dtype=np.float64)


def _metrics(records: list[Record], key: str) -> dict[str, FloatP]:
    rows = [record.floats(key) for record in records]
    names = sorted({name for row in rows for name in row})
    return {name: np.array([row.get(name, np.nan) for row in rows], dtype=np.float64) for name in names}


def _account(record: Record) -> dict[str, tuple[int, int]]:
    """Read fate -> (rollouts, tokens); a bare number stands for rollouts whose tokens were not counted."""
    entries = record.data.get("account") or {}
    if not isinstance(entries, dict):
        raise StateError(f"{record.where}: 'account' must map fates to counts, got {entries!r:.80}")
    account = {}
    for fate, value in entries.items():
        pair = value if isinstance(value, dict) else {"rollouts": value}
        entry = Record(f"{record.where}, account[{fate!r}]", pair)
        account[str(fate)] = entry.integer("rollouts"), entry.integer("tokens", default=0)
    return account


def _evaluations(events: Events, seconds: FloatP) -> dict[str, Any]:
    evals = events.evals
    step = _whole(evals, "step")
    clock_steps = np.concatenate(([0.0], _whole(events.steps, "step").astype(np.float64)))
    # A clock that runs backwards (a resume that began to count again) cannot order anything.
    usable = len(seconds) > 0 and bool((np.diff(seconds) >= 0).all())
    clock = np.interp(step, clock_steps, np.concatenate(([0.0], seconds))) if usable else step * np.nan
    return {
        "eval_step": step,
        "eval_rollouts": _whole(evals, "rollouts"),
        "eval_tokens": _whole(evals, "tokens"),
        "eval_seconds": clock,
        "accuracy": np.array([e.number("accuracy", low=0.0, high=1.0) for e in evals], dtype=np.float64),
        "problems": evals[-1].integer("problems", default=0) if evals else 0,
        "is_exact": bool(evals) and all(e.data.get("exact") is True for e in evals),
    }


def _groups(steps: list[Record]) -> Groups:
    rows = [(step.integer("step"), group) for step in steps for group in step.records("groups")]
    groups = [group for _, group in rows]
    successes, trials = _whole(groups, "successes"), _whole(groups, "trials")
    for i in np.flatnonzero(successes > trials)[:1]:
        raise StateError(f"{groups[i].where}: successes must be <= trials, got {successes[i]} of {trials[i]}")
    return Groups(
        step=np.array([number for number, _ in rows], dtype=np.int64),
        prompt_id=tuple(_prompt_id(group) for group in groups),
        predicted=np.array([group.rate("predicted") for group in groups], dtype=np.float64),
        uncertainty=np.array([group.rate("uncertainty") for group in groups], dtype=np.float64),
        rollouts=_whole(groups, "rollouts"),
        successes=successes,
        trials=trials,
        outcome=tuple(str(group.data.get("outcome", "")) for group in groups),
        reason=tuple(str(group.data.get("reason", "")) for group in groups),
    )


def _prompt_id(group: Record) -> str | int:
    value = group.get("prompt_id")
    return value if isinstance(value, int) else str(value)
