"""A trace from rows of any format: prompts by their keys, visits in order."""

from __future__ import annotations

import math
from array import array
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from neyman._checks import FloatP, IntP
from neyman.errors import ArgumentError
from neyman.replay._trace import Trace


@dataclass(frozen=True, slots=True)
class Timing:
    """The order of the visits.

    Args:
        kind: "visit" numbers the visits of each prompt, "step" the steps of the run; "none" is unknown.
        column: the column that holds it.
        where: the file, for errors.
    """

    kind: str
    column: str
    where: str


class TraceBuilder:
    """Gathers rows, in 48 bytes each, however long their prompts and completions are."""

    def __init__(self, *, keep_texts: bool = False) -> None:
        self._keys: dict[bytes, int] = {}
        self.texts: list[str] | None = [] if keep_texts else None
        self._prompt, self._step = array("q"), array("d")
        self._successes, self._trials = array("q"), array("q")
        # Tokens of a failure and of a success; a rollout has one of them.
        self._failure, self._success = array("d"), array("d")
        self._timing: Timing | None = None
        self.has_rollouts = True

    def timing(self, timing: Timing) -> None:
        """Set the order of visits of the rows to come.

        Raises:
            ArgumentError: an earlier file has another.
        """
        before = self._timing
        if before is not None and before.kind != timing.kind:
            raise ArgumentError(
                f"files must agree on the order of visits: {before.where} has {_words(before)}, {timing.where} has "
                f"{_words(timing)}; replay them apart, or name the column by --columns step=NAME"
            )
        self._timing = before or timing

    def prompt(self, key: bytes, text: str | None) -> int:
        """Return the index of a prompt, new or known."""
        index = self._keys.setdefault(key, len(self._keys))
        if self.texts is not None and index == len(self.texts):
            self.texts.append(text or "")
        return index

    def add(
        self,
        prompt: int,
        step: float,
        successes: int,
        trials: int,
        *,
        failure_tokens: float = math.nan,
        success_tokens: float = math.nan,
    ) -> None:
        """Take in a row."""
        self._prompt.append(prompt)
        self._step.append(step)
        self._successes.append(successes)
        self._trials.append(trials)
        self._failure.append(failure_tokens)
        self._success.append(success_tokens)
        self.has_rollouts &= trials == 1

    @property
    def timing_words(self) -> str:
        """The order of the visits, in words."""
        return "no order of visits" if self._timing is None else _words(self._timing)

    def build(self, files: str) -> Trace:
        """Return the trace.

        Raises:
            ArgumentError: no rollout with a result.
        """
        prompt, step = np.array(self._prompt, np.int64), np.array(self._step, np.float64)
        if not len(prompt):
            raise ArgumentError(f"{files}: no rollout with a result was found; nothing can be replayed")
        order = np.lexsort((step, prompt))  # stable: rows of a visit keep their order
        prompt, step = prompt[order], step[order]
        begins = np.flatnonzero(np.r_[True, (np.diff(prompt) != 0) | (np.diff(step) != 0)])
        successes = np.array(self._successes, np.int64)[order]
        trials = np.array(self._trials, np.int64)[order]
        failure = np.array(self._failure, np.float64)[order]
        success = np.array(self._success, np.float64)[order]
        known, seen = np.unique(prompt[begins], return_counts=True)
        passes = len(begins) / len(known)
        tokens = _mean_tokens(begins, successes, trials, failure, success)
        single = self.has_rollouts
        return Trace(
            first=np.r_[0, np.cumsum(seen)],
            time=self._times(step[begins], passes),
            successes=np.add.reduceat(successes, begins),
            trials=np.add.reduceat(trials, begins),
            passes=passes,
            tokens=tokens,
            rollout_success=successes.astype(np.uint8) if single else None,
            rollout_tokens=_own_tokens(failure, success) if single and tokens is not None else None,
        )

    def _times(self, step: FloatP, passes: float) -> FloatP:
        """Return each visit's time in passes."""
        kind = "none" if self._timing is None else self._timing.kind
        if kind == "none":
            return np.zeros(len(step))
        begun: FloatP = step - step.min()
        if kind == "visit":
            return begun
        steps = np.unique(begun)
        if len(steps) == 1:
            return np.zeros(len(step))
        length = steps[-1] + float(np.median(np.diff(steps)))  # the last step takes as long as the others
        times: FloatP = begun / length * passes
        return times


def _words(timing: Timing) -> str:
    if timing.kind == "none":
        return "no order of visits"
    return f"visits by the column {timing.column!r}"


def _own_tokens(failure: FloatP, success: FloatP) -> IntP:
    own = np.where(np.isnan(success), failure, success)
    mean = float(np.nanmean(own))
    return np.rint(np.where(np.isnan(own), mean, own)).astype(np.int64)


def _mean_tokens(
    begins: IntP, successes: IntP, trials: IntP, failure: FloatP, success: FloatP
) -> NDArray[Any] | None:
    """Return the mean tokens of failures and successes of each visit; where unknown, the pool's."""
    columns = []
    for values, weights in ((failure, trials - successes), (success, successes)):
        known = ~np.isnan(values) & (weights > 0)
        total = np.add.reduceat(np.where(known, values * weights, 0.0), begins)
        count = np.add.reduceat(np.where(known, weights, 0), begins)
        if not known.any():
            columns.append(np.full(len(begins), np.nan))
            continue
        pool = float(total.sum() / count.sum())
        columns.append(np.divide(total, count, out=np.full(len(begins), pool), where=count > 0))
    if all(np.isnan(column).all() for column in columns):
        return None
    # A run without any success (or failure) has no length for it, and never draws one.
    failures, wins = columns
    return np.column_stack(
        [np.where(np.isnan(failures), wins, failures), np.where(np.isnan(wins), failures, wins)]
    )
