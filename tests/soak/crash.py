"""Kills a training at random moments, resumes it, and compares its end with the run that was never stopped.

``make soak`` runs 50 kills; the last line says how many resumes were equal, and the exit status is 1 if any was not.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

from attempt import Attempt, Moment, attempt

STRATEGIES = ("sara, carried over", "ar3po, replayed", "neyman, recounted")
PHASES = ("generation", "between rounds", "checkpoint", "update")
ANY = "any"  # moment of the whole run, by the clock
# Share of the whole run's messages of a phase that pass before a kill, so that the kills of a run spread over it. The
# first comes later, or most would come before the first checkpoint.
_PASSED = (0.0, 0.25)
_PASSED_FIRST = (0.15, 0.5)


@dataclass
class Run:
    """One training that was killed several times and came to its end."""

    strategy: str
    killed: list[Attempt] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)


def main() -> int:
    """Run everything, print the table, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=50, help="kills in all")
    parser.add_argument(
        "--kills-per-run", type=int, default=5, help="kills of one training, one after the other"
    )
    parser.add_argument("--strategies", type=int, default=len(STRATEGIES), help="how many of the strategies")
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    parser.add_argument(
        "--exact", action="store_true", help="kill at messages only: the same kills every time"
    )
    parser.add_argument(
        "--fresh",
        type=float,
        default=1 / 3,
        help="share of starts in a fresh interpreter; the others are forked",
    )
    parser.add_argument("--keep", type=Path, help="keep the runs in this folder")
    options = parser.parse_args()
    folder = options.keep or Path(tempfile.mkdtemp(prefix="neyman-soak-"))
    folder.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    try:
        runs = soak(options, folder)
    finally:
        if options.keep is None:
            shutil.rmtree(folder)
    return report(runs, options, time.monotonic() - began)


def soak(options: argparse.Namespace, folder: Path) -> list[Run]:
    """Do the whole runs, then killed ones until there were enough kills, or one ended otherwise."""
    rng = np.random.default_rng(options.seed)
    names = STRATEGIES[: options.strategies]
    whole = {name: Whole(name, folder / f"whole {name}", folder, exact=options.exact) for name in names}
    runs: list[Run] = []
    left, due = options.kills, []
    while left > 0 and not any(run.wrong for run in runs):
        name = names[len(runs) % len(names)]
        run = Run(name)
        out = folder / f"killed {len(runs)}"
        wanted = min(left, options.kills_per_run)
        while True:
            if not due:
                due = list(rng.permutation(PHASES if options.exact else [*PHASES, *PHASES, ANY]))
            planned = len(run.killed) < wanted
            moment = whole[name].moment(str(due[-1]), rng, first=not run.killed) if planned else None
            ended = attempt(name, out, folder, moment, warm=bool(rng.random() >= options.fresh))
            run.wrong += ended.wrong
            if ended.killed_in is None:
                break
            due.pop()
            run.killed.append(ended)
            say(f"run {len(runs)} ({name}), kill {len(run.killed)}: in {ended.killed_in} {ended.detail}, "
                f"started from {ended.started_from}")  # fmt: skip
        run.wrong += whole[name].differences(out)
        left -= len(run.killed)
        say(f"run {len(runs)} ({name}): " + ("; ".join(run.wrong) or "ended as the run never stopped"))
        runs.append(run)
    return runs


class Whole:
    """The run that was never stopped: what it ends with, and how long its phases take."""

    def __init__(self, strategy: str, out: Path, folder: Path, *, exact: bool) -> None:
        self.exact = exact
        ended = attempt(strategy, out, folder, None, warm=True)
        if ended.wrong:
            raise SystemExit("\n".join(ended.wrong))
        self.outcome = json.loads((out / "outcome.json").read_text())
        self.messages = Counter(phase for phase, _ in ended.lasted)
        self.seconds = {
            phase: float(np.mean([seconds for of, seconds in ended.lasted if of == phase]))
            for phase in PHASES
        }
        self.seconds[ANY] = sum(seconds for _, seconds in ended.lasted)
        for phase in PHASES:
            assert self.messages[phase] >= 4, f"{strategy} has no {phase}: {self.messages}"
        say(f"whole run ({strategy}): {dict(self.messages)}")

    def moment(self, phase: str, rng: np.random.Generator, *, first: bool) -> Moment:
        """Draw a moment in a phase: at a message itself, or some time after it."""
        if phase == ANY:
            return Moment(phase="start", passed=0, seconds=float(rng.uniform(0.0, self.seconds[ANY])))
        passed = int(self.messages[phase] * rng.uniform(*(_PASSED_FIRST if first else _PASSED)))
        is_exact = bool(rng.random() < 0.4)
        seconds = 0.0 if self.exact or is_exact else float(rng.uniform(0.0, self.seconds[phase]))
        return Moment(phase=phase, passed=passed, seconds=seconds)

    def differences(self, out: Path) -> list[str]:
        """Name what another run ended with that is not equal."""
        path = out / "outcome.json"
        if not path.exists():
            return ["the run did not come to its end"]
        other = json.loads(path.read_text())
        return [
            f"{name} differ" for name in self.outcome if text(self.outcome[name]) != text(other.get(name))
        ]


def text(value: object) -> str:
    """Return a value in a form in which every bit shows and NaN equals NaN; a log's columns have no order."""
    return json.dumps(value, sort_keys=True)


def say(line: str) -> None:
    print(line, flush=True)


def report(runs: list[Run], options: argparse.Namespace, seconds: float) -> int:
    """Print the table and return the exit status."""
    kills = [kill for run in runs for kill in run.killed]
    phases = Counter(kill.killed_in for kill in kills)
    unfinished = sum(kill.left_unfinished for kill in kills)
    equal = sum(not run.wrong for run in runs)
    say("\nkilled in          kills")
    for phase in (*PHASES, *sorted(set(phases) - set(PHASES))):
        say(f"{phase:<18} {phases[phase]:>5}")
    say(f"{'all':<18} {len(kills):>5}")
    say(f"\n{'strategy':<22} runs  kills  equal at the end")
    for name in STRATEGIES[: options.strategies]:
        mine = [run for run in runs if run.strategy == name]
        say(
            f"{name:<22} {len(mine):>4}  {sum(len(r.killed) for r in mine):>5}  {sum(not r.wrong for r in mine):>16}"
        )
    say(
        f"\n{len(kills)} kills in {len(runs)} runs (seed {options.seed}); {unfinished} left a checkpoint unfinished; "
        f"{equal} of {len(runs)} runs ended equal to the run never stopped, in {seconds / 60:.1f} minutes"
    )
    return int(equal < len(runs) or not unfinished or any(phases[phase] == 0 for phase in PHASES))


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    raise SystemExit(main())
