"""DPS's belief: a hidden Markov model over the next group's state, all wrong, mixed or all right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, final

import numpy as np
from numpy.typing import ArrayLike

from neyman._checks import FloatP, IntP, choice, integer, prompt_ids, real, sizes_per_prompt
from neyman.beliefs._beta import beta_mixed_probability, beta_sample
from neyman.beliefs._families import MomentFamily
from neyman.beliefs._state import pack_array, unpack_array
from neyman.beliefs._stored import StoredBelief, WithoutFeatures
from neyman.beliefs._table import PromptTable
from neyman.errors import StateError
from neyman.randomness import PromptId

_COLUMNS: Final[Mapping[str, Any]] = {"seen": np.int64, "successes": np.int64, "trials": np.int64}
_SETTLED: Final = (
    1e-12  # distance of a transition count from its prior below which the evidence is lost to rounding
)

#: Dirichlet counts of a transition, row = to, column = from, in the order all wrong, mixed, all right.
PRIORS: Final[Mapping[str, FloatP]] = {
    "even": np.ones((3, 3)),
    "progress": np.array([[1.0, 0.5, 0.5], [1.0, 1.0, 0.5], [1.0, 1.0, 1.0]]),
    "stability": np.array([[1.0, 0.5, 0.5], [0.5, 1.0, 0.5], [0.5, 0.5, 1.0]]),
    "local": np.array([[1.0, 1.0, 0.0], [1.0, 1.0, 1.0], [0.0, 1.0, 1.0]]),
}


@final
class StateDynamics(MomentFamily, WithoutFeatures, StoredBelief):
    """A hidden Markov model per prompt over the state of its group: all wrong, mixed, all right.

    With Dirichlet counts A (row = to, column = from, prior A0) and a distribution over states pi, uniform at first:
    a visit shows its state, ``pi' = one-hot``, and counts the transition, ``A' = decay A + (1 - decay) A0 + U`` with
    U the normalised ``outer(pi', pi) * P``, P the columns of A divided by their sums. A step without a visit has
    ``pi' = P pi`` and U = 0. The prediction for the next step is ``P' pi'``.

    Success rates follow from the state alone: a group of ``size`` gives Beta(1, size + 1) when it is all wrong,
    Beta(size + 1, 1) when all right, Beta(2, 2) when mixed. DPS itself has no success rates; rules that need them
    read these.

    Args:
        decay: share of the transition counts that a step leaves, for visited prompts or not, in [0, 1].
        prior: of the transitions: "even" (all counts 1), "progress" (steps back are unlikely), "stability" (any
            change of state is unlikely), or "local" (none from all wrong to all right, or back).
        size: rollouts that a zero-variance group counts for, >= 1.

    All updates between two calls of ``advance`` are one visit, whose state is that of the summed counts.

    Guarantee: the state of a visit is exact for groups of any size. The model does not take the size into account,
    though a group of 4 has zero variance more often than one of 32 at the same success rate. Prompts without a visit
    follow the prior.
    Cost: ``advance`` O(prompts seen) in NumPy, 72 bytes of counts per prompt; no loop over prompts anywhere.
    Source: DPS (dynamics-predictive sampling) and its public code, with the same update. Deviations: the order of
    ids does not matter, a saved state that does not fit raises, several portions of a step are one visit.

    >>> belief = StateDynamics(decay=1.0)
    >>> belief.update(["a"], [4], [8])
    >>> belief.advance()
    >>> belief.states(["a", "new"]).round(3).tolist()
    [[0.3, 0.4, 0.3], [0.333, 0.333, 0.333]]
    """

    KIND = "state_dynamics"
    KEYS = ("ids", *_COLUMNS, "transitions", "states")

    def __init__(self, *, decay: float = 0.7, prior: str = "even", size: int = 8) -> None:
        self._config = {
            "decay": real("decay", decay, low=0.0, high=1.0),
            "prior": choice("prior", prior, tuple(PRIORS)),
            "size": integer("size", size, low=1),
        }
        self._prior = PRIORS[prior]
        self._table = PromptTable(_COLUMNS)
        self._transitions = np.zeros((0, 3, 3))  # A, a row per prompt of the table
        self._states = np.zeros((0, 3))  # pi at the end of the last step

    def states(self, ids: Sequence[PromptId]) -> FloatP:
        """Return the chances that each prompt's group is all wrong, mixed, all right, shape (P, 3).

        A prompt visited since the last ``advance`` has the state of that visit, any other the predicted chances.
        """
        rows = self._table.find(prompt_ids("ids", ids))
        out = np.tile(self._stranger(), (len(rows), 1))
        known = np.flatnonzero(rows >= 0)
        if len(known):
            out[known] = self._now(rows[known])
        return out

    def predict(self, ids: Sequence[PromptId]) -> tuple[FloatP, FloatP]:
        """Return the mean and variance of each success rate, as a mixture over the states."""
        a, b = self._rates()
        means = a / (a + b)
        squares = means * (a + 1.0) / (a + b + 1.0)
        states = self.states(ids)
        mean = states @ means
        return mean, np.maximum(states @ squares - mean**2, 0.0)

    def mixed_probability(self, ids: Sequence[PromptId], group_size: ArrayLike) -> FloatP:
        """Return the chance that a group of this size is mixed, from the success rates.

        DPS's own score is the chance of the mixed state, ``states(ids)[:, 1]``, which does not depend on the size.
        """
        states = self.states(ids)
        sizes = sizes_per_prompt("group_size", group_size, len(states))
        a, b = self._rates()
        chances = [
            beta_mixed_probability(np.full(len(states), a[k]), np.full(len(states), b[k]), sizes)
            for k in range(3)
        ]
        return np.asarray(np.clip((states * np.stack(chances, axis=1)).sum(axis=1), 0.0, 1.0))

    def sample(self, ids: Sequence[PromptId], rng: np.random.Generator) -> FloatP:
        """Return one draw per id: a state, then a rate of that state."""
        states, (a, b) = self.states(ids), self._rates()
        below = np.cumsum(states, axis=1)[:, :2]
        drawn = (rng.random(len(states))[:, None] >= below).sum(axis=1)
        return beta_sample(a[drawn], b[drawn], rng)

    def _learn(self, names: list[PromptId], s: IntP, n: IntP) -> None:
        known = len(self._table)
        rows = self._table.add(names)
        new = len(self._table) - known
        self._transitions = np.concatenate([self._transitions, np.tile(self._prior, (new, 1, 1))])
        self._states = np.concatenate([self._states, np.tile(self._stranger(last=True), (new, 1))])
        self._table.add_visit(rows, s, n, kept=1, clock=self._clock)

    def _age(self, count: int) -> None:
        """Turn visits into transitions, and let all beliefs drift."""
        if not len(self._table):
            return
        self._settle_visits()
        decay = self._config["decay"]
        left = count - 1
        while left and self._drifts():
            self._states = self._next()
            self._transitions = decay * self._transitions + (1.0 - decay) * self._prior
            left -= 1
        if left:  # the transition counts no longer move, so the remaining steps are a power of one matrix
            power = np.linalg.matrix_power(_columns(self._transitions), left)
            self._states = np.einsum("pij,pj->pi", power, self._states)

    def _parts(self) -> dict[str, Any]:
        return {
            **self._table.state(),
            "transitions": pack_array(self._transitions),
            "states": pack_array(self._states),
        }

    def _read(self, state: Mapping[str, Any], clock: int) -> Any:
        table = PromptTable(_COLUMNS)
        table.load(state)
        table.check_visits(self.KIND, clock)
        transitions = unpack_array("transitions", state["transitions"], shape=[len(table), 3, 3])
        states = unpack_array("states", state["states"], shape=[len(table), 3])
        if not (np.isfinite(transitions).all() and (transitions.sum(axis=1) > 0.0).all()):
            raise StateError("state['transitions'] must hold finite counts with a positive sum per column")
        if not np.allclose(states.sum(axis=1), 1.0) or (states < 0.0).any():
            raise StateError("state['states'] must hold distributions over three states")
        return table, transitions, states

    def _adopt(self, parts: Any) -> None:
        self._table, self._transitions, self._states = parts

    def _settle_visits(self) -> None:
        """Close the step: count the transitions of visited prompts, and move the others to their prediction."""
        decay, trials = self._config["decay"], self._table.column("trials")
        chances, states = _columns(self._transitions), self._next()
        drifted = decay * self._transitions + (1.0 - decay) * self._prior
        visited = np.flatnonzero(trials > 0)
        shown = _one_hot(self._table.column("successes")[visited], trials[visited])
        moved = shown[:, :, None] * self._states[visited, None, :] * chances[visited]
        total = moved.sum(axis=(1, 2), keepdims=True)
        # The "local" prior gives some transitions no chance; one that is observed all the same is counted in full,
        # where Bayes' rule would divide zero by zero.
        moved = np.where(total > 0.0, moved, shown[:, :, None] * self._states[visited, None, :])
        drifted[visited] += moved / moved.sum(axis=(1, 2), keepdims=True)
        states[visited] = shown
        self._transitions, self._states = drifted, states
        self._table.column("successes")[:] = 0
        trials[:] = 0

    def _drifts(self) -> bool:
        return self._config["decay"] < 1.0 and bool(
            np.abs(self._transitions - self._prior).max(initial=0.0) > _SETTLED
        )

    def _next(self) -> FloatP:
        return np.asarray(np.einsum("pij,pj->pi", _columns(self._transitions), self._states))

    def _now(self, rows: IntP) -> FloatP:
        out = np.einsum("pij,pj->pi", _columns(self._transitions[rows]), self._states[rows])
        trials = self._table.column("trials")[rows]
        visited = trials > 0
        out[visited] = _one_hot(self._table.column("successes")[rows][visited], trials[visited])
        return np.asarray(out)

    def _stranger(self, *, last: bool = False) -> FloatP:
        """Return the chances of each state for a prompt without visits: predicted, or at the end of the last step."""
        steps = max(0, self._clock - 1 - last)  # before the first step nothing has drifted
        return np.asarray(np.linalg.matrix_power(_columns(self._prior), steps) @ np.full(3, 1.0 / 3.0))

    def _rates(self) -> tuple[FloatP, FloatP]:
        beyond = self._config["size"] + 1.0
        return np.array([1.0, 2.0, beyond]), np.array([beyond, 2.0, 1.0])


def _columns(counts: FloatP) -> FloatP:
    """Return the expected transition matrices: each column divided by its sum."""
    return np.asarray(counts / counts.sum(axis=-2, keepdims=True))


def _one_hot(successes: IntP, trials: IntP) -> FloatP:
    """Return the state of each visit as a distribution."""
    index = np.where(successes == 0, 0, np.where(successes == trials, 2, 1))
    return np.eye(3)[index]
