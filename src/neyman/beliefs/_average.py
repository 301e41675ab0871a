"""Average of several beliefs, each weighted by the likelihood of its predictions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, final

import numpy as np
from numpy.typing import ArrayLike

from neyman._checks import FloatP, IntP, integer, real
from neyman._scipy import gammaln
from neyman.beliefs._beta import match_beta
from neyman.beliefs._protocol import Belief
from neyman.beliefs._state import check_number, check_state
from neyman.beliefs._table import checked_counts
from neyman.errors import ArgumentError, StateError
from neyman.randomness import PromptId

_VERSION = 1
_KEYS = ("members", "evidence")
_NOTHING = 1e-30  # a weight with which no prediction is moved by as much as it is rounded


@final
class ModelAverage(Belief):
    """A Bayesian average of beliefs with different assumptions, e.g. about the speed of the policy's drift.

    How fast success rates move depends on the model, the learning rate and the stage of training. A belief that
    assumes too little drift is confidently wrong, one that assumes too much forgets useful evidence. Each member is
    weighted by the likelihood that it gave to outcomes before it saw them, so that no drift has to be chosen.

    ``weight_i`` is proportional to ``exp(L_i)``, ``L_i <- memory L_i + sum_q log P_i(s_q of n_q)`` per step, with the
    Beta-binomial that has member i's mean and variance.

    Args:
        members: beliefs over the same prompts; they must not be shared.
        memory: share of the earlier log-likelihoods that a training step leaves, in [0, 1].

    Raises:
        ArgumentError: fewer than two members, one given twice, or a memory outside its range.

    Guarantee: its total log-likelihood is at most ``log(members)`` nats below that of its best member, as long as
    nothing is forgotten (``memory=1``).
    Cost: an update costs as much as that of all members; a prediction as much as those of members whose weight is
    above 1e-30, since the others do not change the average as a float.
    Source: ours; dynamic model averaging after Raftery, Karny and Ettler (2010).

    >>> from neyman.beliefs import Counts
    >>> belief = ModelAverage([Counts(discount=1.0), Counts(discount=0.1)])
    >>> belief.update(["a"], [8], [8])
    >>> belief.weights.round(2).tolist()
    [0.5, 0.5]
    """

    def __init__(self, members: Sequence[Belief], *, memory: float = 0.95) -> None:
        self._members = tuple(members)
        if len(self._members) < 2 or len({id(member) for member in self._members}) < len(self._members):
            raise ArgumentError(
                f"members must be two or more beliefs of their own, got {len(self._members)}"
                + (", one of them twice" if len(self._members) > 1 else "; use the belief as it is")
            )
        self._memory = real("memory", memory, low=0.0, high=1.0)
        self._evidence: FloatP = np.zeros(len(self._members))
        states = [member.state_dict() for member in self._members]
        kinds = [{"kind": state.get("kind"), **state.get("config", {})} for state in states]
        self._config: dict[str, Any] = {"memory": memory, "members": kinds}

    @property
    def members(self) -> tuple[Belief, ...]:
        """The beliefs."""
        return self._members

    @property
    def uses_features(self) -> bool:
        """Whether any member uses features."""
        return any(member.uses_features for member in self._members)

    @property
    def weights(self) -> FloatP:
        """The members' weights, which sum to 1."""
        odds = np.exp(self._evidence - self._evidence.max())
        return np.asarray(odds / odds.sum(), dtype=np.float64)

    def register(self, ids: Sequence[PromptId], features: ArrayLike | None = None) -> None:
        """Register prompts, and their features, with every member."""
        for member in self._members:
            member.register(ids, features)

    def predict(self, ids: Sequence[PromptId]) -> tuple[FloatP, FloatP]:
        """Return the mean and variance of the average."""
        weights, members = self._weighed()
        moments = [member.predict(ids) for member in members]
        means = np.stack([mean for mean, _ in moments])
        mean = weights @ means
        second = weights @ (np.stack([variance for _, variance in moments]) + (means - mean) ** 2)
        return mean, second

    def expected_variance(self, ids: Sequence[PromptId]) -> FloatP:
        """Return E[p(1-p)] per prompt."""
        weights, members = self._weighed()
        return weights @ np.stack([member.expected_variance(ids) for member in members])

    def mixed_probability(self, ids: Sequence[PromptId], group_size: ArrayLike) -> FloatP:
        """Return the chance that a group of this size is mixed."""
        weights, members = self._weighed()
        return weights @ np.stack([member.mixed_probability(ids, group_size) for member in members])

    def sample(self, ids: Sequence[PromptId], rng: np.random.Generator) -> FloatP:
        """Return one draw per id, each of a member drawn by weight."""
        weights = self.weights
        # Every member up to the last with weight draws: who draws before it must not depend on the weights, or two
        # states that differ in rounding would read different random numbers.
        count = int(np.flatnonzero(weights > _NOTHING)[-1]) + 1
        draws = np.stack([member.sample(ids, rng) for member in self._members[:count]])
        chosen = rng.choice(count, size=draws.shape[1], p=weights[:count])
        return np.asarray(draws[chosen, np.arange(draws.shape[1])], dtype=np.float64)

    def update(self, ids: Sequence[PromptId], successes: ArrayLike, trials: ArrayLike) -> None:
        """Weigh the members by their likelihood of these counts, then let each learn them."""
        names, s, n = checked_counts(ids, successes, trials)
        if not names:
            return
        gained = [_log_likelihood(*match_beta(*member.predict(names)), s, n) for member in self._members]
        self._evidence = self._evidence + np.array(gained)
        # Weights depend on differences alone; without this the sums would lose digits over a long run.
        self._evidence -= self._evidence.max()
        for member in self._members:
            member.update(names, s, n)

    def advance(self, steps: int = 1) -> None:
        """Let ``steps`` training steps pass."""
        self._evidence = self._evidence * self._memory ** integer("steps", steps, low=0)
        for member in self._members:
            member.advance(steps)

    def state_dict(self) -> dict[str, Any]:
        """Return the whole state, JSON-safe."""
        return {
            "kind": "model_average",
            "version": _VERSION,
            "config": dict(self._config),
            "members": [member.state_dict() for member in self._members],
            "evidence": self._evidence.tolist(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Replace the state by a saved one of the same members."""
        check_state(state, kind="model_average", version=_VERSION, config=self._config, keys=_KEYS)
        evidence, saved = state["evidence"], state["members"]
        for name, value in (("evidence", evidence), ("members", saved)):
            if not isinstance(value, list) or len(value) != len(self._members):
                raise StateError(f"state[{name!r}] must have one entry per member, {len(self._members)}")
        numbers = [check_number("evidence", value, high=0.0) for value in evidence]
        # A member that refuses its part leaves the others as they were.
        before = [member.state_dict() for member in self._members]
        try:
            for member, own in zip(self._members, saved, strict=True):
                member.load_state_dict(own)
        except StateError:
            for member, own in zip(self._members, before, strict=True):
                member.load_state_dict(own)
            raise
        self._evidence = np.array(numbers)

    def _weighed(self) -> tuple[FloatP, list[Belief]]:
        """Return the members whose weight can move a prediction, with their weights."""
        weights = self.weights
        places = np.flatnonzero(weights > _NOTHING)
        return weights[places], [self._members[place] for place in places.tolist()]


def _log_likelihood(a: FloatP, b: FloatP, s: IntP, n: IntP) -> float:
    """Return the summed Beta-binomial log-likelihood of the outcomes in their order."""
    # A mean of exactly 0 or 1 has a parameter of 0, where gammaln is infinite.
    tiny = np.finfo(np.float64).tiny
    a, b = np.maximum(a, tiny), np.maximum(b, tiny)
    rises = gammaln(a + s) - gammaln(a) + gammaln(b + n - s) - gammaln(b)
    return float((rises - gammaln(a + b + n) + gammaln(a + b)).sum())
