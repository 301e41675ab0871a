"""From files to a trace: the format is detected, said, and read in a stream."""

from __future__ import annotations

import math
from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path
from typing import final

import numpy as np

from neyman._checks import real
from neyman.errors import ArgumentError
from neyman.replay import _counts, _plain, _trl, _verl
from neyman.replay._build import Timing, TraceBuilder
from neyman.replay._columns import KNOWN, Layout, parse_columns
from neyman.replay._found import FileFound, Found, shares
from neyman.replay._rows import Chunk, Table, expand, open_table
from neyman.replay._trace import Trace
from neyman.replay._values import MOST, key_of, number, outcome, text_of, whole, words_of

# The first that matches is meant: each asks for more than those behind it.
_FORMATS = (_trl.match, _verl.match, _counts.match, _plain.match)


def read_logs(
    paths: Sequence[str | Path],
    *,
    columns: Sequence[str] = (),
    success_threshold: float | None = None,
    keep_texts: bool = False,
) -> tuple[Trace, Found, list[str] | None]:
    """Read the logs of a run.

    Formats: TRL's ``log_completions``, verl's rollout dumps, counts per prompt (and visit), and rollouts one a
    row, as parquet, JSON lines or CSV. A prompt is told apart by its id where there is one, else by its text.

    Args:
        paths: files, or folders of them.
        columns: ``role=column`` where the names are unusual; roles are those of `neyman.replay.ROLES`.
        success_threshold: a reward from here on is a success; None wants rewards of 1 and of 0 or -1.
        keep_texts: also return each prompt's text, for embeddings.

    Returns:
        The trace, what was found, and the texts.

    Raises:
        ArgumentError: a file that cannot be read, with its line and field; rewards that are not binary without
            a threshold; files that do not fit together.
        MissingExtraError: a parquet file without pyarrow.

    Guarantee: nothing in a file is executed or unpickled. Rows are streamed: memory is 48 bytes a row and 100 a
    prompt beside the chunk at hand, whatever prompts and completions hold.

    Cost: O(rows log rows).
    """
    said = parse_columns(columns)
    if success_threshold is not None:
        real("success_threshold", success_threshold)
    reader = _Reader(success_threshold, keep_texts=keep_texts)
    files = []
    for path in expand(paths):
        table = open_table(path)
        layout = _layout(table, said)
        rows = reader.read(table, layout)
        files.append(FileFound(path=str(path), format=layout.format, columns=dict(layout.roles), rows=rows))
    trace = reader.builder.build(", ".join(file.path for file in files))
    return trace, _found(trace, files, reader), reader.builder.texts


def _layout(table: Table, said: dict[str, str]) -> Layout:
    absent = [column for column in said.values() if column not in table.columns]
    if absent:
        raise ArgumentError(
            f"{table.path} has no column {absent[0]!r}, which --columns names; it has {', '.join(table.columns)}"
        )
    for match in _FORMATS:
        layout = match(table, said)
        if layout is not None:
            return layout
    usual = "; ".join(
        f"{role}: {', '.join(KNOWN[role])}" for role in ("prompt", "id", "reward", "successes", "trials")
    )
    raise ArgumentError(
        f"{table.path} has the columns {', '.join(table.columns)[:300]}, in which a prompt (or id) and a reward (or "
        f"success, or successes and trials) were not found. Name them, as in --columns prompt=NAME reward=NAME. "
        f"Known names are {usual}"
    )


@final
class _Reader:
    """Reads tables of any layout into one builder, and counts what was left out."""

    def __init__(self, threshold: float | None, *, keep_texts: bool) -> None:
        self.builder = TraceBuilder(keep_texts=keep_texts)
        self.threshold = threshold
        self.missing = self.repeated = 0
        self.by_success = self.by_counts = False
        self._last: bytes | None = None  # digest of the generation that was logged last

    def read(self, table: Table, layout: Layout) -> int:
        """Take in a table and return its rows."""
        kind = "step" if "step" in layout else "visit" if "visit" in layout else "none"
        self.builder.timing(Timing(kind, layout.roles.get(kind, ""), str(table.path)))
        if layout.repeats and self._is_repeated(table, layout):
            return 0
        names = tuple(dict.fromkeys(layout.roles.values()))
        rows = 0
        for chunk in table.chunks(names):
            rows += len(chunk.numbers)
            if "trials" in layout:
                self._counts(chunk, layout)
            else:
                self._rollouts(chunk, layout)
        return rows

    def _is_repeated(self, table: Table, layout: Layout) -> bool:
        """Tell whether a file logs the same generation as the file before it."""
        digest, rows = blake2b(digest_size=16), 0
        for chunk in table.chunks(layout.repeats):
            rows += len(chunk.numbers)
            for values in zip(*chunk.columns.values(), strict=True):
                digest.update("\x1f".join(map(text_of, values)).encode("utf-8", "surrogatepass"))
        before, self._last = self._last, digest.digest()
        self.repeated += rows * (before == self._last)
        return before == self._last

    def _key(self, chunk: Chunk, layout: Layout, row: int) -> int:
        role = "id" if "id" in layout else "prompt"
        column = layout.roles[role]
        value = chunk.columns[column][row]
        text = None
        if self.builder.texts is not None and "prompt" in layout:
            text = words_of(chunk.columns[layout.roles["prompt"]][row])
        return self.builder.prompt(key_of(value, chunk.where(row, column)), text)

    def _time(self, chunk: Chunk, layout: Layout, row: int) -> float:
        column = layout.roles.get("step") or layout.roles.get("visit")
        if column is None:
            return 0.0
        step = number(chunk.columns[column][row], chunk.where(row, column))
        if math.isnan(step):
            raise ArgumentError(
                f"{chunk.where(row, column)}: a step is missing; fill it in, or drop the column to replay all visits "
                "of a prompt as one"
            )
        if abs(step) > MOST:
            raise ArgumentError(f"{chunk.where(row, column)}: a step must be within +-{MOST:,}, got {step:g}")
        return step

    def _tokens(self, chunk: Chunk, layout: Layout, row: int, role: str = "tokens") -> float:
        column = layout.roles.get(role)
        if column is None:
            return math.nan
        tokens = number(chunk.columns[column][row], chunk.where(row, column))
        if tokens < 0 or tokens > MOST:
            raise ArgumentError(
                f"{chunk.where(row, column)}: tokens must be >= 0 and <= {MOST:,}, got {tokens:g}"
            )
        return tokens

    def _rollouts(self, chunk: Chunk, layout: Layout) -> None:
        role = "success" if "success" in layout else "reward"
        self.by_success |= role == "success"
        column = layout.roles[role]
        for row, value in enumerate(chunk.columns[column]):
            where = chunk.where(row, column)
            reward = number(value, where)
            if math.isnan(reward):
                self.missing += 1
                continue
            success = outcome(reward, self.threshold, where)
            tokens = self._tokens(chunk, layout, row)
            self.builder.add(
                self._key(chunk, layout, row),
                self._time(chunk, layout, row),
                success,
                1,
                **{"success_tokens" if success else "failure_tokens": tokens},
            )

    def _counts(self, chunk: Chunk, layout: Layout) -> None:
        self.by_counts, self.builder.has_rollouts = True, False
        wins, tries = layout.roles["successes"], layout.roles["trials"]
        for row in range(len(chunk.numbers)):
            trials = whole(chunk.columns[tries][row], chunk.where(row, tries))
            successes = whole(chunk.columns[wins][row], chunk.where(row, wins))
            if successes > trials:
                raise ArgumentError(
                    f"{chunk.where(row, wins)}: successes must be <= trials, got {successes} of {trials}"
                )
            if not trials:
                self.missing += 1
                continue
            mean = self._tokens(chunk, layout, row)
            own = [self._tokens(chunk, layout, row, role) for role in ("failure_tokens", "success_tokens")]
            failure, success = (mean if math.isnan(one) else one for one in own)
            self.builder.add(
                self._key(chunk, layout, row),
                self._time(chunk, layout, row),
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
            "every prompt has one visit: a static pool, whose policy does not move; what is asked beyond the recorded "
            "trials comes from the same trials again, with replacement"
        )
    if len(files) and (trace.trials == 1).all():
        notes.append(
            "every visit holds one rollout, which tells nothing about groups; name the prompt's id or the step "
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
