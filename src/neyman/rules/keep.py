"""Choice of the rollouts of a finished group that train."""

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

    The earliest rollouts of each class train. Rollouts are exchangeable given their outcomes, so that a choice by
    order is as good as a random one, and reproducible.

    Args:
        size: rows of a group that train; None takes the average group of the host's batch.

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
        # Half of the rows, more where there are too few wrong ones to fill the other half.
        n_right = min(len(right), max(rows // 2, rows - len(wrong)))
        chosen = np.concatenate([right[:n_right], wrong[: rows - n_right]])
        return [int(place) for place in np.sort(chosen)]
