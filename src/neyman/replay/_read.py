"""From files to a trace: the format is detected, reported, and read in a stream."""

from __future__ import annotations

import math
from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path
from typing import final

import numpy as np

from neyman._checks import real
from neyman._files.tables import Row, Table, files_of, open_table
from neyman.errors import ArgumentError
from neyman.replay._build import Timing, TraceBuilder
from neyman.replay._columns import parse_columns
from neyman.replay._formats import Layout, layout_of
from neyman.replay._found import FileFound, Found, shares
from neyman.replay._trace import Trace
from neyman.replay._values import MOST, key_of, number, outcome, text_of, whole, words_of


def read_logs(
    paths: Sequence[str | Path],
    *,
    columns: Sequence[str] = (),
    success_threshold: float | None = None,
    keep_texts: bool = False,
) -> tuple[Trace, Found, list[str] | None]:
    """Read the logs of a run.

    Formats: TRL's ``log_completions``, verl's rollout dumps, counts per prompt (and visit), and rollouts one a
    row, as parquet, JSON lines or CSV. A prompt is known by its id where there is one, else by its text.

    Args:
        paths: files, or folders of them.
        columns: ``role=column`` where the names are unusual; roles are those of `neyman.replay.ROLES`.
        success_threshold: a reward from here on is a success; None wants rewards of 1 and of 0 or -1.
        keep_texts: also return each prompt's text, for embeddings.

    Returns:
        The trace, a description of the logs, and the texts.

    Raises:
        ArgumentError: a file that cannot be read, with its line and field; rewards that are not binary without
            a threshold; files that do not fit together.
        MissingExtraError: a parquet file without pyarrow.

    Guarantee: nothing in a file is executed or unpickled. Rows are streamed: memory is 170 bytes a row and 170 a
    prompt beside the rows at hand, however long prompts and completions are (``benchmarks/memory.py``).

    Cost: O(rows log rows).
    """
    named = parse_columns(columns)
    if success_threshold is not None:
        real("success_threshold", success_threshold)
    reader = _Reader(success_threshold, keep_texts=keep_texts)
    files = []
    for path in files_of(paths):
        table = open_table(path)
        layout = layout_of(table, named)
        rows = reader.read(table, layout)
        files.append(FileFound(path=str(path), format=layout.format, columns=dict(layout.roles), rows=rows))
    trace = reader.builder.build(", ".join(file.path for file in files))
    return trace, _found(trace, files, reader), reader.builder.texts


@final
class _Reader:
    """Reads tables of any layout into one builder, and counts the rows that are left out."""

    def __init__(self, threshold: float | None, *, keep_texts: bool) -> None:
        self.builder = TraceBuilder(keep_texts=keep_texts)
        self.threshold = threshold
        self.missing = self.repeated = 0
        self.by_success = self.by_counts = False
        self._last: bytes | None = None  # digest of the last logged generation

    def read(self, table: Table, layout: Layout) -> int:
        """Take in a table and return its rows."""
        kind = "step" if "step" in layout else "visit" if "visit" in layout else "none"
        self.builder.timing(Timing(kind, layout.roles.get(kind, ""), str(table.path)))
        if layout.repeats and self._is_repeated(table, layout):
            return 0
        rows = 0
        take = self._counts if "trials" in layout else self._rollout
        for row in table.rows(tuple(dict.fromkeys(layout.roles.values()))):
            rows += 1
            take(row, layout)
        return rows

    def _is_repeated(self, table: Table, layout: Layout) -> bool:
        """Return whether a file logs the same generation as the file before it."""
        digest, rows = blake2b(digest_size=16), 0
        for row in table.rows(layout.repeats):
            rows += 1
            values = (text_of(row.values.get(name)) for name in layout.repeats)
            digest.update("\x1f".join(values).encode("utf-8", "surrogatepass"))
        before, self._last = self._last, digest.digest()
        self.repeated += rows * (before == self._last)
        return before == self._last

    def _key(self, row: Row, layout: Layout) -> int:
        column = layout.roles["id" if "id" in layout else "prompt"]
        text = None
        if self.builder.texts is not None and "prompt" in layout:
            text = words_of(row.values.get(layout.roles["prompt"]))
        return self.builder.prompt(key_of(row.values.get(column), row.where(column)), text)

    def _time(self, row: Row, layout: Layout) -> float:
        column = layout.roles.get("step") or layout.roles.get("visit")
        if column is None:
            return 0.0
        step = number(row.values.get(column), row.where(column))
        if math.isnan(step):
            raise ArgumentError(
                f"{row.where(column)}: a step is missing; fill it in, or drop the column to replay all visits "
                "of a prompt as one"
            )
        if abs(step) > MOST:
            raise ArgumentError(f"{row.where(column)}: a step must be within +-{MOST:,}, got {step:g}")
        return step

    def _tokens(self, row: Row, layout: Layout, role: str = "tokens") -> float:
        column = layout.roles.get(role)
        if column is None:
            return math.nan
        tokens = number(row.values.get(column), row.where(column))
        if tokens < 0 or tokens > MOST:
            raise ArgumentError(f"{row.where(column)}: tokens must be >= 0 and <= {MOST:,}, got {tokens:g}")
        return tokens

    def _rollout(self, row: Row, layout: Layout) -> None:
        role = "success" if "success" in layout else "reward"
        self.by_success |= role == "success"
        column = layout.roles[role]
        where = row.where(column)
        reward = number(row.values.get(column), where)
        if math.isnan(reward):
            self.missing += 1
            return
        success = outcome(reward, self.threshold, where)
        tokens = self._tokens(row, layout)
        self.builder.add(
            self._key(row, layout),
            self._time(row, layout),
            success,
            1,
            **{"success_tokens" if success else "failure_tokens": tokens},
        )

    def _counts(self, row: Row, layout: Layout) -> None:
        self.by_counts, self.builder.has_rollouts = True, False
        wins, tries = layout.roles["successes"], layout.roles["trials"]
        trials = whole(row.values.get(tries), row.where(tries))
        successes = whole(row.values.get(wins), row.where(wins))
        if successes > trials:
            raise ArgumentError(
                f"{row.where(wins)}: successes must be <= trials, got {successes} of {trials}"
            )
        if not trials:
            self.missing += 1
            return
        mean = self._tokens(row, layout)
        own = [self._tokens(row, layout, role) for role in ("failure_tokens", "success_tokens")]
        failure, success = (mean if math.isnan(one) else one for one in own)
        self.builder.add(
            self._key(row, layout),
            self._time(row, layout),
            successes,
            trials,
            failure_tokens=failure,
            success_tokens=success,
        )


def _found(trace: Trace, files: list[FileFound], reader: _Reader) -> Found:
    never, always, mixed = shares(trace)
    rewards = (
        "counts" if reader.by_counts else "a verified outcome" if reader.by_success else "a binary reward"
    )
    if reader.threshold is not None and not reader.by_counts:
        rewards = f"{'outcome' if reader.by_success else 'reward'} >= {reader.threshold:g}"
    notes = []
    if trace.is_static:
        notes.append(
            "every prompt has one visit: a static pool, whose policy does not move; rollouts beyond the recorded "
            "trials come from the same trials again, with replacement"
        )
    if len(files) and (trace.trials == 1).all():
        notes.append(
            "every visit holds one rollout, which is no evidence about groups; name the prompt's id or the step "
            "(--columns id=NAME step=NAME) if visits were taken apart"
        )
    return Found(
        files=tuple(files),
        prompts=trace.prompts,
        visits=len(trace.trials),
        rollouts=int(trace.trials.sum()),
        passes=trace.passes,
        trials=(int(trace.trials.min()), int(np.median(trace.trials)), int(trace.trials.max())),
        missing=reader.missing,
        repeated=reader.repeated,
        rewards=rewards,
        time=reader.builder.timing_words,
        has_tokens=trace.tokens is not None,
        has_rollouts=trace.rollout_success is not None,
        never_solved=never,
        always_solved=always,
        mixed=mixed,
        notes=tuple(notes),
    )
