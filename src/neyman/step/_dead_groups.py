"""An early warning of a group size under which most groups have zero variance, before it has wasted the run."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from typing import final

import numpy as np

from neyman.beliefs import Belief
from neyman.step._group import Group

_logger = logging.getLogger("neyman")

_ENOUGH = 64  # groups before their share is believed
_TOO_MANY = 0.5
_SURE = 2.0  # standard errors beyond it


@final
class DeadGroups:
    """A count of zero-variance groups among whole ones, with a warning once they are clearly the larger part.

    The count starts anew every 64 groups. It is of use for the log alone, so no state is saved.
    """

    def __init__(self) -> None:
        self._groups: list[Group] = []
        self._has_warned = False

    def watch(self, groups: Sequence[Group], belief: Belief) -> None:
        """Count the groups of a step that no verdict ended early, after the belief has learnt from them.

        Those with fewer than two results are left out.
        """
        if self._has_warned:
            return
        self._groups += [group for group in groups if group.outcomes()[1] > 1]
        if len(self._groups) < _ENOUGH:
            return
        seen, self._groups = self._groups, []
        share = sum(not group.is_mixed for group in seen) / len(seen)
        if share <= _TOO_MANY + _SURE * math.sqrt(_TOO_MANY * (1.0 - _TOO_MANY) / len(seen)):
            return
        self._has_warned = True
        counts = [group.outcomes() for group in seen]
        size = sum(n for _, n in counts) / len(counts)
        larger = [round(2 * size), round(4 * size)]
        ids = list(dict.fromkeys(group.prompt_id for group in seen))
        foretold = [1.0 - float(np.mean(belief.mixed_probability(ids, n))) for n in larger]
        _logger.warning(
            "%.0f%% of the last %d groups carry no signal: all their outcomes are equal, at %.1f rollouts a group and "
            "a success rate of %.0f%%; the belief expects %.0f%% at %d and %.0f%% at %d rollouts a group. Raise the "
            "group size (neyman.dead_share predicts their share), take other prompts, or a strategy that chooses them",
            100 * share,
            len(seen),
            size,
            100 * sum(s for s, _ in counts) / sum(n for _, n in counts),
            100 * foretold[0],
            larger[0],
            100 * foretold[1],
            larger[1],
        )
