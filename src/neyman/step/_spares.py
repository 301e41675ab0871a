"""Rollouts of a group in the batch that do not train: more than its rows, but in its baseline if so wanted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from neyman.step._group import Group, Slot

if TYPE_CHECKING:
    from neyman.step._engine import Engine


def _kept(engine: Engine, group: Group) -> list[Slot] | None:
    """Return the valid slots that train, protected ones first; None where all do."""
    keep = engine.strategy.keep
    if keep is None:
        return None
    must = [slot for slot in group.valid() if slot.protected]
    rest = [slot for slot in group.valid() if not slot.protected]
    rows = max(0, keep.rows(engine.average) - len(must))
    return must + [rest[place] for place in keep.choose([slot.success for slot in rest], rows)]


def rows_needed(engine: Engine, group: Group) -> int:
    """Return how many rows of the batch a group takes."""
    kept = _kept(engine, group)
    return sum(not slot.spare for slot in group.slots) if kept is None else len(kept)


def mark_spare(engine: Engine, group: Group) -> None:
    """Mark what the strategy's ``keep`` leaves out of the batch."""
    kept = _kept(engine, group)
    if kept is not None:
        chosen = {id(slot) for slot in kept}
        for slot in group.slots:
            slot.spare = id(slot) not in chosen


def spare_slots(trained: Sequence[Group]) -> list[tuple[int, Slot]]:
    """Return the valid results that do not train, each with its group's place in the batch."""
    return [(place, slot) for place, group in enumerate(trained) for slot in group.valid() if slot.spare]
