"""One rollout a row: a prompt or its id, a reward or a verified outcome, and perhaps step and tokens."""

from __future__ import annotations

from neyman.replay._columns import Layout, known_roles
from neyman.replay._rows import Table

FORMAT = "rollouts"
_ROLES = ("id", "prompt", "reward", "success", "step", "visit", "tokens")


def match(table: Table, said: dict[str, str]) -> Layout | None:
    """Return the layout when rows are rollouts."""
    roles = known_roles(table.columns) | said
    if not {"id", "prompt"} & set(roles) or not {"reward", "success"} & set(roles):
        return None
    if "reward" in said and "success" not in said:  # what was named is meant
        roles.pop("success", None)
    return Layout(format=FORMAT, roles={role: roles[role] for role in _ROLES if role in roles})
