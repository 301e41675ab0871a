"""verl's rollout dumps: ``trainer.rollout_data_dir/12.jsonl``, one file a step.

Fields: input (the prompt as the model saw it), output, score, step, gts in later versions, and whatever the reward
function returned beside the score, of which ``acc`` is the usual name of the verified outcome.
"""

from __future__ import annotations

from neyman.replay._columns import Layout
from neyman.replay._rows import Table

FORMAT = "verl rollout dump"


def match(table: Table, said: dict[str, str]) -> Layout | None:
    """Return the layout when the table is verl's."""
    names = set(table.columns)
    if not {"input", "output", "score", "step"} <= names:
        return None
    roles = {"step": "step", "prompt": "input"}
    roles |= {"success": "acc"} if "acc" in names and "reward" not in said else {"reward": "score"}
    if "response_length" in names:
        roles["tokens"] = "response_length"
    if {"reward", "success"} & set(said):
        roles = {role: column for role, column in roles.items() if role not in ("reward", "success")}
    return Layout(format=FORMAT, roles=roles | said)
