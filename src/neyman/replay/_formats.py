"""Formats of logs: which columns each has, and the role of every column.

A format is a function from a table, and the roles that the user named, to a `Layout`, or to None where the table is of
another format. The first of `FORMATS` that matches is taken: each asks for more columns than those behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from neyman._files.tables import Table
from neyman.errors import ArgumentError
from neyman.replay._columns import KNOWN, known_roles

_TRL = ("step", "prompt", "completion", "advantage")
_VERL = {"input", "output", "score", "step"}
_COUNTS = (
    "id",
    "prompt",
    "successes",
    "trials",
    "step",
    "visit",
    "tokens",
    "success_tokens",
    "failure_tokens",
)
_ROLLOUTS = ("id", "prompt", "reward", "success", "step", "visit", "tokens")


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The roles of a log's columns.

    Args:
        format: the name of the format.
        roles: role -> column.
        repeats: columns that, being equal row for row, show that a generation was logged again at the next
            step; empty where that does not happen.
    """

    format: str
    roles: Mapping[str, str]
    repeats: tuple[str, ...] = ()

    def __contains__(self, role: str) -> bool:
        return role in self.roles


def layout_of(table: Table, named: dict[str, str]) -> Layout:
    """Return the layout of a log.

    Args:
        table: the log.
        named: role -> column, as the user named them; they come before all others.

    Raises:
        ArgumentError: a column that was named is missing, or no format matches; the message lists the columns.
    """
    absent = [column for column in named.values() if column not in table.columns]
    if absent:
        raise ArgumentError(
            f"{table.path} has no column {absent[0]!r}, which --columns names; it has {', '.join(table.columns)}"
        )
    for match in FORMATS:
        layout = match(table, named)
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


def _trl(table: Table, named: dict[str, str]) -> Layout | None:
    """Match TRL's ``log_completions``: ``completions_00012.parquet``, written at every logging step.

    Columns: step, prompt (text or messages), completion, one per reward function, the extra ones that reward
    functions log, advantage. The table holds the latest generation, so one that serves several optimiser steps is
    written again at each.

    Raises:
        ArgumentError: several columns may be the reward, and none was named.
    """
    names = table.columns
    if not set(_TRL) <= set(names) or names.index("completion") > names.index("advantage"):
        return None
    roles = {"step": "step", "prompt": "prompt"} | named
    if "reward" not in roles and "success" not in roles:
        between = names[names.index("completion") + 1 : names.index("advantage")]
        rewards = [name for name in between if table.numeric is None or name in table.numeric]
        if len(rewards) != 1:
            listed = ", ".join(map(repr, rewards)) or "none"
            raise ArgumentError(
                f"{table.path}: TRL logged {len(rewards)} numeric columns between completion and advantage ({listed}); "
                "name the verified one by --columns success=NAME, or a reward by --columns reward=NAME with "
                "--success-threshold"
            )
        roles["reward"] = rewards[0]
    return Layout(format="TRL completions", roles=roles, repeats=("prompt", "completion", "advantage"))


def _verl(table: Table, named: dict[str, str]) -> Layout | None:
    """Match verl's rollout dumps: ``trainer.rollout_data_dir/12.jsonl``, one file a step.

    Fields: input (the prompt as the model saw it), output, score, step, gts in later versions, and all that the
    reward function returned beside the score; the verified outcome is usually ``acc``.
    """
    names = set(table.columns)
    if not names >= _VERL:
        return None
    roles = {"step": "step", "prompt": "input"}
    roles |= {"success": "acc"} if "acc" in names and "reward" not in named else {"reward": "score"}
    if "response_length" in names:
        roles["tokens"] = "response_length"
    if {"reward", "success"} & set(named):
        roles = {role: column for role, column in roles.items() if role not in ("reward", "success")}
    return Layout(format="verl rollout dump", roles=roles | named)


def _counts(table: Table, named: dict[str, str]) -> Layout | None:
    """Match counts per prompt, k of n, or per prompt and visit: a row holds how many of its trials succeeded."""
    roles = known_roles(table.columns) | named
    if not {"reward", "success", "successes", "trials"} & set(roles):
        roles |= _k_of_n(table.columns)
    if not {"id", "prompt"} & set(roles) or not {"successes", "trials"} <= set(roles):
        return None
    return Layout(format="counts", roles={role: roles[role] for role in _COUNTS if role in roles})


def _k_of_n(columns: Sequence[str]) -> dict[str, str]:
    """Return the roles of columns k and n, where no other column counts successes.

    Beside a column c they are those of pass@k, whose k is no count of successes.
    """
    by_name = {name.lower(): name for name in reversed(columns)}
    if not {"k", "n"} <= by_name.keys() or "c" in by_name:
        return {}
    return {"successes": by_name["k"], "trials": by_name["n"]}


def _rollouts(table: Table, named: dict[str, str]) -> Layout | None:
    """Match one rollout a row: a prompt or its id, a reward or a verified outcome, and perhaps step and tokens."""
    roles = known_roles(table.columns) | named
    if not {"id", "prompt"} & set(roles) or not {"reward", "success"} & set(roles):
        return None
    if (
        "reward" in named and "success" not in named
    ):  # the user's choice of a reward excludes a column of outcomes
        roles.pop("success", None)
    return Layout(format="rollouts", roles={role: roles[role] for role in _ROLLOUTS if role in roles})


FORMATS: tuple[Callable[[Table, dict[str, str]], Layout | None], ...] = (_trl, _verl, _counts, _rollouts)
