"""TRL's ``log_completions``: ``completions/completions_00012.parquet``, written at every logging step.

Columns: step, prompt (text or messages), completion, one per reward function, the extra ones that reward functions
log, advantage. The table holds the latest generation, so one that serves several optimiser steps is written again
at each.
"""

from __future__ import annotations

from neyman.errors import ArgumentError
from neyman.replay._columns import Layout
from neyman.replay._rows import Table

FORMAT = "TRL completions"
_FRAME = ("step", "prompt", "completion", "advantage")


def match(table: Table, said: dict[str, str]) -> Layout | None:
    """Return the layout when the table is TRL's.

    Raises:
        ArgumentError: several columns may be the reward, and none was named.
    """
    names = table.columns
    if not set(_FRAME) <= set(names) or names.index("completion") > names.index("advantage"):
        return None
    roles = {"step": "step", "prompt": "prompt"} | said
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
    return Layout(format=FORMAT, roles=roles, repeats=("prompt", "completion", "advantage"))
