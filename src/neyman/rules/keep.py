"""Which rollouts of a finished group train."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from neyman._checks import integer


@final
@dataclass(frozen=True, slots=True)
class Balanced:
    """Half of the rows solved and half not; where one class has too few, the other fills the group.

    The earliest of each class train. Given their outcome rollouts are exchangeable, so that any choice made without
    looking at them is as good as a random one; this one needs no draw.

    Args:
        size: rows of a group that train; None takes what the host's batch has for each prompt.

    Source: Reinforce-Ada, arXiv 2510.04996.
    """

    size: int | None = None

    def __post_init__(self) -> None:
        if self.size is not None:
            integer("size", self.size, low=2)

    def rows(self, average: int) -> int:
        """Return the rows of a group when the host's batch has ``average`` for each prompt."""
        return self.size or average

    def choose(self, success: Sequence[bool], rows: int) -> list[int]:
        """Return the places, increasing, of up to ``rows`` of the outcomes."""
        solved = np.asarray(success, dtype=bool)
        right, wrong = np.flatnonzero(solved), np.flatnonzero(~solved)
        n_right = min(len(right), max(rows // 2, rows - len(wrong)))
        chosen = np.concatenate([right[:n_right], wrong[: rows - n_right]])
        return [int(place) for place in np.sort(chosen)]
