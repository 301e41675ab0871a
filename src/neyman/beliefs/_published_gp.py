"""VIP's Gaussian process as published: a point prediction without noise, from each prompt's last visit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, final

import numpy as np
from numpy.typing import ArrayLike

from neyman._checks import FloatP, IntP, choice, integer, prompt_ids, real
from neyman._scipy import logit
from neyman.beliefs._families import LogitNormalFamily
from neyman.beliefs._features import (
    FeatureStore,
    NystromMap,
    check_fingerprints,
    median_distance,
    squared_distances,
)
from neyman.beliefs._state import check_number, pack_array, unpack_array
from neyman.beliefs._stored import StoredBelief
from neyman.beliefs._table import PromptTable
from neyman.errors import StateError
from neyman.randomness import PromptId

_COLUMNS: Final[Mapping[str, Any]] = {
    "offset": np.float64,
    "dual": np.float64,
    "successes": np.int64,
    "trials": np.int64,
    "seen": np.int64,
}
_JITTER = 1e-8  # keeps K_BB invertible where two prompts have the same embedding


@final
class PublishedGP(LogitNormalFamily, StoredBelief):
    """``p = sigmoid(g)``, ``g ~ GP(0, K)``, K radial with the median distance as bandwidth.

    The published recursion, at each step with the observed prompts B and their empirical rates:
    ``ghat = logit(clip(s / n, eps, 1 - eps))``; observed prompts are overwritten, ``m_B <- ghat``; all others
    become ``m + K_{.B} K_BB^{-1} (ghat - m_B)``. There is no noise term, the covariance is never updated, and
    neither n nor the age of an observation matters.

    Up to ``dense_limit`` registered prompts the kernel is exact and cached (8 N^2 bytes); above, ``K_{.B}`` is
    approximated by ``landmarks`` Nystrom features, and ``K_BB`` stays exact. Prompts without features keep the prior
    until they are observed, and their results do not reach other prompts.

    Args:
        eps: empirical rates are clipped to [eps, 1 - eps]; in (0, 0.5). The paper gives no value, the authors' code
            has 1e-6; 0.05 was the better of two values tried on synthetic data.
        bandwidth: ``"median"``, or a length in the features' units.
        prior_mean: the logit before any observation.
        dense_limit: most registered prompts for which the kernel is exact.
        landmarks: rank of the kernel above that.
        variance: ``"plug_in"``, the published form, takes the prediction as certain, so that E[p(1-p)] is m(1-m);
            ``"prior"`` gives the logit the prior's variance of 1, which is never updated.

    Guarantee: portions of a step add up: a prompt is overwritten by the rate of all its rollouts since the last
    ``advance``. Use it for comparison only: without noise or memory it predicts worse than counts on a real trace.
    Cost: dense O(B^3 + B N) a step; low-rank O(B^3 + B M F).
    Source: VIP, arXiv 2602.01601 (ICLR 2026), section on the success predictor.

    >>> belief = PublishedGP()
    >>> belief.register(["a", "b", "c"], [[0.0], [1.0], [2.0]])
    >>> belief.update(["a"], [3], [4])
    >>> belief.predict(["a", "b", "c"])[0].round(3).tolist()
    [0.75, 0.661, 0.537]
    """

    KIND = "published_gp"
    KEYS = ("ids", *_COLUMNS, "features", "bandwidth", "basis", "weights")

    def __init__(
        self,
        *,
        eps: float = 0.05,
        bandwidth: str | float = "median",
        prior_mean: float = 0.0,
        dense_limit: int = 4000,
        landmarks: int = 384,
        variance: str = "plug_in",
    ) -> None:
        width: str | float = (
            "median" if bandwidth == "median" else real("bandwidth", bandwidth, low=0.0, open_low=True)
        )
        self._config = {
            "eps": real("eps", eps, low=1e-12, high=0.499),
            "bandwidth": width,
            "prior_mean": real("prior_mean", prior_mean, low=-30.0, high=30.0),
            "dense_limit": integer("dense_limit", dense_limit, low=0),
            "landmarks": integer("landmarks", landmarks, low=1, high=4096),
            "variance": choice("variance", variance, ("plug_in", "prior")),
        }
        self._table = PromptTable(_COLUMNS)
        self._store = FeatureStore()
        self._basis: NystromMap | None = None
        self._bandwidth: float | None = None if width == "median" else float(width)
        self._weights = np.zeros(0)  # of the low-rank features; while dense, of prompts, in the column "dual"
        self._kernel: FloatP | None = None

    def register(self, ids: Sequence[PromptId], features: ArrayLike | None = None) -> None:
        """Give prompts their feature rows, shape (P, F); the first ones fix the bandwidth."""
        names = prompt_ids("ids", ids)
        if features is None:
            return
        fresh, matrix, prints = self._store.check(names, features)
        seen = [name for name in fresh if name in self._table]
        before = self._mean(seen)
        # Prompts observed before they had features keep their predictions: these are read first and put back after.
        self._store.add(fresh, matrix, prints)
        self._kernel = None
        self._settle()
        self._overwrite(seen, before)

    def predict_logit(self, ids: Sequence[PromptId]) -> tuple[FloatP, FloatP]:
        """Return m per prompt, and the variance of the logit: 0 as published, 1 with ``variance="prior"``."""
        mean = self._mean(prompt_ids("ids", ids))
        return mean, np.full(len(mean), 0.0 if self._config["variance"] == "plug_in" else 1.0)

    def _learn(self, names: list[PromptId], s: IntP, n: IntP) -> None:
        before = self._mean(names)
        rows = self._table.add(names)
        # Counts of earlier visits are dropped, as published; those of this step's other portions add up.
        same_visit = (self._table.column("seen")[rows] == self._clock).astype(np.int64)
        self._table.add_visit(rows, s, n, kept=same_visit, clock=self._clock)
        rates = self._table.column("successes")[rows] / self._table.column("trials")[rows]
        eps = self._config["eps"]
        target = logit(np.clip(rates, eps, 1.0 - eps))
        self._propagate(names, target - before)
        self._overwrite(names, target)

    def _parts(self) -> dict[str, Any]:
        return {
            **self._table.state(),
            "features": pack_array(self._store.fingerprints(self._table.ids)),
            "bandwidth": self._bandwidth,
            "basis": None if self._basis is None else self._basis.state(),
            "weights": pack_array(self._weights),
        }

    def _read(self, state: Mapping[str, Any], clock: int) -> Any:
        width = state["bandwidth"]
        bandwidth = None if width is None else check_number("bandwidth", width, low=1e-12)
        basis = None if state["basis"] is None else NystromMap.from_state(state["basis"])
        weights = unpack_array("weights", state["weights"], shape=[0 if basis is None else basis.width])
        table = PromptTable(_COLUMNS)
        table.load(state)
        if (table.column("seen") > clock).any() or (table.column("trials") < 1).any():
            raise StateError("the saved published_gp has a visit in the future or without rollouts")
        prints = check_fingerprints(self._store, table.ids, state["features"], basis)
        return bandwidth, basis, weights, table, prints

    def _adopt(self, parts: Any) -> None:
        self._bandwidth, self._basis, self._weights, table, prints = parts
        self._table, self._kernel = table, None
        # Prompts that were saved without features and have some now: their predictions stay as they were.
        moved = np.flatnonzero((prints == 0) & (self._store.fingerprints(table.ids) != 0))
        before = table.column("offset")[moved]
        self._settle()
        self._overwrite([table.ids[row] for row in moved.tolist()], before)

    def _settle(self) -> None:
        """Fix the bandwidth once there are features, and leave the exact kernel once there are too many."""
        if self._bandwidth is None and len(self._store):
            self._bandwidth = median_distance(self._store.matrix)
        if self._basis is not None or len(self._store) <= self._config["dense_limit"]:
            return
        names = self._table.ids
        before = self._mean(names)
        self._basis = NystromMap.fit(
            self._store.matrix, landmarks=self._config["landmarks"], bandwidth=float(self._bandwidth or 1.0)
        )
        self._weights = np.zeros(self._basis.width)
        self._kernel = None
        self._table.column("dual")[:] = 0.0
        # The low-rank kernel starts from one published update with the present predictions of all observed prompts.
        self._propagate(names, before - self._config["prior_mean"])
        self._overwrite(names, before)

    def _mean(self, names: Sequence[PromptId]) -> FloatP:
        mean = self._table.gather("offset", self._table.find(names), missing=self._config["prior_mean"])
        return mean + self._shared(names)

    def _shared(self, names: Sequence[PromptId]) -> FloatP:
        """Return the sum that other prompts' observations have added to each prompt's logit."""
        out = np.zeros(len(names))
        rows = self._store.find(names)
        have = np.flatnonzero(rows >= 0)
        if not len(have) or not len(self._table):
            return out
        if self._basis is not None:
            out[have] = self._basis(self._store.matrix[rows[have]]) @ self._weights
            return out
        sources = self._store.find(self._table.ids)
        good = np.flatnonzero(sources >= 0)
        out[have] = self._dense()[np.ix_(rows[have], sources[good])] @ self._table.column("dual")[good]
        return out

    def _dense(self) -> FloatP:
        if self._kernel is None:
            matrix, width = self._store.matrix, float(self._bandwidth or 1.0)
            self._kernel = np.exp(squared_distances(matrix, matrix) / (-2.0 * width**2))
        return self._kernel

    def _propagate(self, names: list[PromptId], news: FloatP) -> None:
        """Add ``K_{.B} K_BB^{-1} news`` to every prompt, in the form of weights."""
        rows = self._store.find(names)
        have = np.flatnonzero(rows >= 0)
        if not len(have):
            return
        raw = self._store.matrix[rows[have]]
        exact = np.exp(squared_distances(raw, raw) / (-2.0 * float(self._bandwidth or 1.0) ** 2))
        solved = np.linalg.solve(exact + _JITTER * np.eye(len(have)), news[have])
        if self._basis is not None:
            self._weights = self._weights + self._basis(raw).T @ solved
        else:
            self._table.column("dual")[self._table.find(names)[have]] += solved

    def _overwrite(self, names: list[PromptId], logits: FloatP) -> None:
        """Set the prediction of observed prompts to these logits."""
        if names:
            self._table.column("offset")[self._table.find(names)] = logits - self._shared(names)
