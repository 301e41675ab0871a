"""DPS's selection: the prompts whose next group is most likely mixed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from neyman._checks import FloatP, real
from neyman.beliefs import Belief, StateDynamics, beta_parameters
from neyman.formulas import effective_probability
from neyman.randomness import PromptId, keyed_hash
from neyman.rules._contracts import StepView
from neyman.rules.select import candidates


@final
@dataclass(frozen=True, slots=True)
class MostMixed:
    """The candidates whose next group is most likely mixed.

    Score: P(mixed) + entropy H, H the entropy in nats of (all wrong, mixed, all right). With
    `neyman.beliefs.StateDynamics` these are the predicted states, as published; for any other belief they are the
    chances for a group of the step's size, under a Beta of its moments.

    Args:
        among: candidates to rank, as a multiple of the prompts to pick; those of the host's batch always are.
        entropy: weight of the entropy, >= 0; above 0 it is the public code's other mode.

    Guarantee: ties go by a hash of (seed, step, prompt), so that no place in the data is favoured. It may never draw
    part of a pool; wrap it in `Revisit` against that.
    Source: DPS (dynamics-predictive sampling) and its public code, which breaks ties by position.
    """

    among: float = 32.0
    entropy: float = 0.0

    def __post_init__(self) -> None:
        real("among", self.among, low=1.0)
        real("entropy", self.entropy, low=0.0)

    def pick(self, view: StepView, count: int) -> list[PromptId]:
        """Return the ``count`` candidates of the highest score, highest first."""
        ids = candidates(view, self.among, count)
        if not ids or count <= 0:
            return []
        states = group_states(view.belief, ids, view.group_size)
        # To nine digits, because sums of the same terms in another order must be the same score.
        score = np.round(states[:, 1] + self.entropy * _entropy(states), 9)
        last = max(0, len(ids) - count)
        # Only candidates at or above the last score are sorted, ties by hash included.
        within = np.flatnonzero(score >= np.partition(score, last)[last]).tolist()
        salt = int(view.rng("ties").integers(2**62))
        return [ids[k] for k in sorted(within, key=lambda k: (-score[k], keyed_hash(salt, ids[k])))[:count]]


def group_states(belief: Belief, ids: Sequence[PromptId], group_size: int) -> FloatP:
    """Return the chances that each prompt's next group is all wrong, mixed, all right, shape (P, 3)."""
    if isinstance(belief, StateDynamics):
        return belief.states(ids)
    a, b = beta_parameters(belief, ids)
    none, size = np.zeros(len(ids), dtype=np.int64), np.full(len(ids), group_size, dtype=np.int64)
    mixed = np.atleast_1d(effective_probability(none, none, size, (a, b)))
    # After one failure the group is all wrong or mixed: P(all wrong) = P(first wrong) (1 - P(mixed | first wrong)).
    lost = b / (a + b) * (1.0 - np.atleast_1d(effective_probability(none, none + 1, size, (a, b))))
    return np.stack([lost, mixed, np.maximum(1.0 - mixed - lost, 0.0)], axis=1)


def _entropy(states: FloatP) -> FloatP:
    # p log p -> 0 as p -> 0.
    safe = np.where(states > 0.0, states, 1.0)
    return np.asarray(-(states * np.log(safe)).sum(axis=1))
