"""The content of logs, in numbers and in sentences."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from neyman.replay._trace import Trace


@dataclass(frozen=True, slots=True, kw_only=True)
class FileFound:
    """One file of a log: its format, the column of each role, and its number of rows."""

    path: str
    format: str
    columns: dict[str, str]
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The content of logs.

    Args:
        files: one entry per file.
        prompts: different prompts.
        visits: recorded groups: one prompt at one time.
        rollouts: valid rollouts.
        passes: visits per prompt.
        trials: smallest, median and largest number of rollouts of a visit.
        missing: rollouts without a reward, which were left out.
        repeated: rows of generations that were logged again, which were left out.
        rewards: the meaning of success.
        time: the order of the visits.
        has_tokens: whether lengths are known.
        has_rollouts: whether each rollout is known, not only counts.
        never_solved: share of prompts without a success in all of the record.
        always_solved: share of prompts without a failure in all of the record.
        mixed: share of recorded groups that hold both.
        notes: cautions, a sentence each.
    """

    files: tuple[FileFound, ...]
    prompts: int
    visits: int
    rollouts: int
    passes: float
    trials: tuple[int, int, int]
    missing: int
    repeated: int
    rewards: str
    time: str
    has_tokens: bool
    has_rollouts: bool
    never_solved: float
    always_solved: float
    mixed: float
    notes: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return the content, JSON-safe."""
        return asdict(self)

    def sentences(self) -> list[str]:
        """Return the content in sentences."""
        formats = sorted({file.format for file in self.files})
        low, middle, high = self.trials
        size = f"{low}" if low == high else f"{low} to {high} (median {middle})"
        lines = [
            f"{len(self.files)} file{'s' * (len(self.files) != 1)} of {' and '.join(formats)}: "
            f"{self.prompts:,} prompts, {self.visits:,} groups of {size} rollouts, {self.rollouts:,} rollouts",
            *(
                f"{name}: " + ", ".join(f"{role} from {column!r}" for role, column in columns.items())
                for name, columns in {file.format: file.columns for file in self.files}.items()
            ),
            f"success by {self.rewards}; {self.time}; tokens {'known' if self.has_tokens else 'not recorded'}",
            f"{100 * self.never_solved:.0f} % of the prompts are never solved, {100 * self.always_solved:.0f} % "
            f"always; {100 * self.mixed:.0f} % of the recorded groups are mixed",
        ]
        if self.missing:
            lines.append(f"{self.missing:,} rollouts have no reward and were left out")
        if self.repeated:
            lines.append(f"{self.repeated:,} rows log a generation again and were left out")
        return lines + list(self.notes)


def shares(trace: Trace) -> tuple[float, float, float]:
    """Return the shares of prompts never solved and always solved, and of groups that are mixed."""
    s = np.add.reduceat(trace.successes, trace.first[:-1])
    n = np.add.reduceat(trace.trials, trace.first[:-1])
    mixed = (trace.successes > 0) & (trace.successes < trace.trials)
    return float((s == 0).mean()), float((s == n).mean()), float(mixed.mean())
