"""Ridge regression of success on features: VIP's baseline for its Gaussian process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, final

import numpy as np
from numpy.typing import ArrayLike

from neyman._checks import FloatP, IntP, prompt_ids, real
from neyman._scipy import cholesky, cholesky_solve, logit
from neyman.beliefs._families import LogitNormalFamily
from neyman.beliefs._features import FeatureStore, check_fingerprints
from neyman.beliefs._state import pack_array, unpack_array
from neyman.beliefs._stored import StoredBelief
from neyman.beliefs._table import PromptTable
from neyman.errors import StateError
from neyman.randomness import PromptId

_LEVEL = 1.0  # pseudo-rollouts at 1/2 behind the level, so that it is defined before the first result
_BLOCK = 16_384


@final
class Ridge(LogitNormalFamily, StoredBelief):
    """Success rates as a linear function of the features, fitted to all rollouts so far.

    ``p_q = clip(1/2 + w0 + x_q' w, eps, 1 - eps)`` with w least in ``sum over rollouts memory^age (r - 1/2 - w0 -
    x' w)^2 + w0^2 + penalty |w|^2``. Every rollout is one observation, so portions and groups of any size add up,
    and the state is two sums. Prompts without features get ``1/2 + w0``, the pool's mean where none has features.

    Args:
        penalty: of the features' weights, > 0, in rollouts for features of unit length.
        memory: share of a rollout's weight that a step leaves, in (0, 1]; 1 weighs the first step as the last.
        eps: predictions are clipped to [eps, 1 - eps], in (0, .5).

    Guarantee: exact for these sums. It is a point prediction, as in the paper's table: E[p(1-p)] is m(1-m), and a
    prompt's own results count only through its features. Voided as a model of success rates by the clipping.
    Cost: O(B F^2) an update for B prompts with F features, O(F^3) at the first prediction after it; O(F^2) memory.
    Source: baseline of VIP, arXiv 2602.01601; the target and the penalty are our choice, as the paper gives neither.

    >>> belief = Ridge(penalty=0.1)
    >>> belief.register(["a", "b"], [[1.0], [-1.0]])
    >>> belief.update(["a"], [8], [8])
    >>> belief.predict(["a", "b", "z"])[0].round(2).tolist()
    [0.99, 0.1, 0.54]
    """

    KIND = "ridge"
    KEYS = ("ids", "seen", "features", "gram", "moment")

    def __init__(self, *, penalty: float = 1.0, memory: float = 0.99, eps: float = 0.01) -> None:
        self._config = {
            "penalty": real("penalty", penalty, low=0.0, open_low=True),
            "memory": real("memory", memory, low=0.0, high=1.0, open_low=True),
            "eps": real("eps", eps, low=1e-12, high=0.499),
        }
        self._table = PromptTable({"seen": np.int64})
        self._store = FeatureStore()
        self._gram = np.zeros((1, 1))  # of (1, x) over rollouts
        self._moment = np.zeros(1)  # of (1, x) (r - 1/2)
        self._weights: FloatP | None = None

    def register(self, ids: Sequence[PromptId], features: ArrayLike | None = None) -> None:
        """Give prompts their feature rows, shape (P, F); earlier results of prompts without stay with the level."""
        names = prompt_ids("ids", ids)
        if features is None:
            return
        self._store.add(*self._store.check(names, features))
        self._widen()

    def predict_logit(self, ids: Sequence[PromptId]) -> tuple[FloatP, FloatP]:
        """Return the logit of each prediction, and no variance."""
        names, weights, eps = prompt_ids("ids", ids), self._fit(), self._config["eps"]
        rate = np.empty(len(names))
        for start in range(0, len(names), _BLOCK):
            part = slice(start, start + _BLOCK)
            rate[part] = 0.5 + self._design(names[part]) @ weights
        return logit(np.clip(rate, eps, 1.0 - eps)), np.zeros(len(names))

    def _learn(self, names: list[PromptId], s: IntP, n: IntP) -> None:
        z = self._design(names)
        self._gram += (z * n[:, None]).T @ z
        self._moment += z.T @ (s - 0.5 * n)
        self._weights = None
        rows = self._table.add(names)
        self._table.column("seen")[rows] = self._clock

    def _age(self, count: int) -> None:
        keep = self._config["memory"] ** count
        self._gram, self._moment, self._weights = self._gram * keep, self._moment * keep, None

    def _parts(self) -> dict[str, Any]:
        return {
            **self._table.state(),
            "features": pack_array(self._store.fingerprints(self._table.ids)),
            "gram": pack_array(self._gram),
            "moment": pack_array(self._moment),
        }

    def _read(self, state: Mapping[str, Any], clock: int) -> Any:
        del clock
        table = PromptTable({"seen": np.int64})
        table.load(state)
        check_fingerprints(self._store, table.ids, state["features"], None)
        moment = unpack_array("moment", state["moment"], shape=[None])
        gram = unpack_array("gram", state["gram"], shape=[len(moment), len(moment)])
        if len(moment) not in (1, self._width):
            raise StateError(
                f"the saved ridge has weights for {len(moment) - 1} features, the registered prompts have "
                f"{self._width - 1}; register the same prompts with the same features before loading"
            )
        if not (np.isfinite(gram).all() and np.isfinite(moment).all()):
            raise StateError("the saved ridge holds sums that are not finite")
        return table, gram, moment

    def _adopt(self, parts: Any) -> None:
        self._table, self._gram, self._moment = parts
        self._weights = None
        self._widen()

    @property
    def _width(self) -> int:
        """Weights of the level and of every feature."""
        return 1 + (self._store.matrix.shape[1] if len(self._store) else 0)

    def _widen(self) -> None:
        """Make room for the features' weights once there are features."""
        width = self._width
        if len(self._moment) == width:
            return
        # Sums from before there were features are of the level alone.
        gram, moment = np.zeros((width, width)), np.zeros(width)
        gram[:1, :1], moment[:1] = self._gram[:1, :1], self._moment[:1]
        self._gram, self._moment, self._weights = gram, moment, None

    def _design(self, names: Sequence[PromptId]) -> FloatP:
        """Return (1, x) per prompt, x = 0 where it has no features."""
        z = np.zeros((len(names), len(self._moment)))
        z[:, 0] = 1.0
        rows = self._store.find(names)
        have = np.flatnonzero(rows >= 0)
        if len(have):
            z[have, 1:] = self._store.matrix[rows[have]]
        return z

    def _fit(self) -> FloatP:
        if self._weights is None:
            # Normal equations in float64: the penalty keeps them positive definite with fewer rollouts than features.
            penalty = np.full(len(self._moment), float(self._config["penalty"]))
            penalty[0] = _LEVEL
            factor = cholesky(self._gram + np.diag(penalty))
            self._weights = np.asarray(cholesky_solve(factor, self._moment))
        return self._weights
