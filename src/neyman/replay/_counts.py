"""Counts per prompt, k of n, or per prompt and visit: a row holds how many of its trials succeeded."""

from __future__ import annotations

from collections.abc import Sequence

from neyman.replay._columns import Layout, known_roles
from neyman.replay._rows import Table

FORMAT = "counts"
_ROLES = (
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


def match(table: Table, said: dict[str, str]) -> Layout | None:
    """Return the layout when rows are counts."""
    roles = known_roles(table.columns) | said
    if not {"reward", "success", "successes", "trials"} & set(roles):
        roles |= _k_of_n(table.columns)
    if not {"id", "prompt"} & set(roles) or not {"successes", "trials"} <= set(roles):
        return None
    return Layout(format=FORMAT, roles={role: roles[role] for role in _ROLES if role in roles})


def _k_of_n(columns: Sequence[str]) -> dict[str, str]:
    """Return what columns k and n stand for: k of n, where nothing else says what succeeded.

    Beside a column c they are those of pass@k, whose k is no count of successes.
    """
    by_name = {name.lower(): name for name in reversed(columns)}
    if not {"k", "n"} <= by_name.keys() or "c" in by_name:
        return {}
    return {"successes": by_name["k"], "trials": by_name["n"]}
