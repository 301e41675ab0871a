"""Counts per prompt, k of n, or per prompt and visit: a row holds how many of its trials succeeded."""

from __future__ import annotations

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
    if not {"id", "prompt"} & set(roles) or not {"successes", "trials"} <= set(roles):
        return None
    return Layout(format=FORMAT, roles={role: roles[role] for role in _ROLES if role in roles})
