"""Linear regression of logits on features, whose prior is chosen by its own evidence."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import ArrayLike

from neyman._checks import FloatP, IntP, integer, prompt_ids, real
from neyman._scipy import cholesky, cholesky_inverse, cholesky_solve
from neyman.beliefs._features import FeatureStore, NystromMap, check_fingerprints, median_distance
from neyman.beliefs._state import pack_array, unpack_array
from neyman.beliefs._stored import StoredBelief
from neyman.beliefs._table import PromptTable
from neyman.errors import StateError
from neyman.randomness import PromptId

_BLOCK = 16_384  # prompts predicted at once, so that no temporary grows with the pool
_CACHED = 1_024  # rows of a quadratic form at once, so that the product stays in the processor's cache

# Prior scales of the features' weights that compete; 1 first, so that it wins while there is no evidence.
_SCALES: Final = (1.0, 0.3, 2.0, 3.0)

# Weight and centre of each prompt's pseudo-observation as it stands in the sums now; weight 0 if it has none.
Contribution = Callable[[Sequence[PromptId]], tuple[FloatP, FloatP]]
Parsed = tuple[NystromMap | None, FloatP, FloatP]


class FeatureRegression:
    """``y_q ~ N(z_q' w, 1 / c_q)``, ``w ~ N(0, diag(level^2, s^2, ..., s^2))``, z_q = (1, radial basis).

    Each prompt contributes one pseudo-observation; a new visit replaces it, and each step takes ``1 - memory`` of
    the weight of all. The scale s is the one of a short list that maximises the marginal likelihood of the present
    pseudo-observations, so that the data switch useless features off; the first of the ``scales`` wins ties.

    Args:
        landmarks: at most this many basis functions; 0 ignores features.
        length_scale: the kernel's bandwidth in units of the median distance between prompts.
        store: feature rows of another model over the same prompts, so that they are held once; None makes a store.

    Cost: O(B D^2) an update and O(D^3) a step for D features, O(D^2) memory, whatever the number of prompts.
    """

    def __init__(
        self,
        *,
        landmarks: int,
        length_scale: float,
        scales: Sequence[float],
        level: float,
        memory: float,
        store: FeatureStore | None = None,
    ) -> None:
        self._landmarks = landmarks
        self._length_scale = length_scale
        self._scales = tuple(scales)
        self._level = level
        self._memory = memory
        self.store = FeatureStore() if store is None else store
        self._taken = 0  # rows of the store that are registered here, too
        self._map: NystromMap | None = None
        self._information = np.zeros((1, 1))
        self._moment = np.zeros(1)
        self._fitted: tuple[FloatP, FloatP, float] | None = None

    def register(self, ids: Sequence[PromptId], features: ArrayLike, contribution: Contribution) -> None:
        """Register feature rows; the first ones ever fix the landmarks and the bandwidth.

        The pseudo-observations of prompts that were visited before they had features move to their new rows.
        """
        self.store.add(*self.store.check(ids, features))
        fresh = self.store.ids(self._taken)
        self._taken = len(self.store)
        weights = contribution(fresh)[0].tolist()
        seen = [item for item, weight in zip(fresh, weights, strict=True) if weight > 0.0]
        self._choose_basis()
        self._move(seen, *contribution(seen))

    def _move(self, ids: list[PromptId], weight: FloatP, centre: FloatP) -> None:
        """Move pseudo-observations that were made without features to the rows that the prompts have now."""
        if ids:
            now = self.design(ids)
            level_only = np.zeros_like(now)
            level_only[:, 0] = 1.0
            self.add_evidence(level_only, -weight, centre)
            self.add_evidence(now, weight, centre)

    def _choose_basis(self) -> None:
        if self._map is None and self._landmarks and len(self.store):
            matrix = self.store.matrix
            bandwidth = self._length_scale * median_distance(matrix)
            basis = NystromMap.fit(matrix, landmarks=self._landmarks, bandwidth=bandwidth)
            self._resize(self.store.share(basis))

    def _resize(self, basis: NystromMap) -> None:
        size = 1 + basis.width
        information, moment = np.zeros((size, size)), np.zeros(size)
        information[:1, :1], moment[:1] = self._information[:1, :1], self._moment[:1]
        self._map, self._information, self._moment, self._fitted = basis, information, moment, None

    def design(self, ids: Sequence[PromptId]) -> FloatP:
        """Return z, shape (P, 1 + D); only the level for prompts without features."""
        return np.ones((len(ids), 1)) if self._map is None else self.store.design(self._map, ids)

    def add_evidence(self, z: FloatP, weight: FloatP, centre: FloatP) -> None:
        """Add pseudo-observations ``centre`` of precision ``weight``; a negative weight takes them away."""
        self._information += (z * weight[:, None]).T @ z
        self._moment += z.T @ (weight * centre)
        self._fitted = None

    def replace_evidence(self, z: FloatP, old: tuple[FloatP, FloatP], new: tuple[FloatP, FloatP]) -> None:
        """Put new pseudo-observations, each weight and centre, in the place of old ones of the same prompts."""
        self._information += (z * (new[0] - old[0])[:, None]).T @ z
        self._moment += z.T @ (new[0] * new[1] - old[0] * old[1])
        self._fitted = None

    def decay(self, ages: Any) -> FloatP:
        """Return the share of their first weight that pseudo-observations of these ages have left."""
        return np.asarray(self._memory ** np.asarray(ages, dtype=np.float64))

    def advance(self, steps: int) -> None:
        """Age all pseudo-observations by some training steps."""
        keep = self._memory**steps
        self._information *= keep
        self._moment *= keep
        self._fitted = None

    def predict(self, z: FloatP) -> tuple[FloatP, FloatP]:
        """Return mean and variance of ``z' w``."""
        mean, covariance, _ = self._fit()
        variance = np.empty(len(z))
        for start in range(0, len(z), _CACHED):
            part = z[start : start + _CACHED]
            variance[start : start + _CACHED] = np.einsum("ij,ij->i", part @ covariance, part)
        return z @ mean, np.maximum(variance, 0.0)

    def predict_ids(self, ids: Sequence[PromptId]) -> tuple[FloatP, FloatP]:
        """Return mean and variance of ``z' w`` for prompts, in blocks so that memory stays bounded."""
        mean, variance = np.empty(len(ids)), np.empty(len(ids))
        for start in range(0, len(ids), _BLOCK):
            part = slice(start, start + _BLOCK)
            mean[part], variance[part] = self.predict(self.design(ids[part]))
        return mean, variance

    def _fit(self) -> tuple[FloatP, FloatP, float]:
        if self._fitted is None:
            # Sums of evidence added and taken away are symmetric only up to rounding, which Cholesky does not accept.
            information = 0.5 * (self._information + self._information.T)
            best = -np.inf
            for scale in self._scales if len(self._moment) > 1 else self._scales[:1]:
                prior = np.full(len(self._moment), scale**-2.0)
                prior[0] = self._level**-2.0
                factor = cholesky(information + np.diag(prior))
                mean = cholesky_solve(factor, self._moment)
                # log N(y; 0, Z S Z' + 1/c) up to terms without S, by the matrix determinant lemma.
                evidence = 0.5 * (np.log(prior).sum() + self._moment @ mean) - np.log(np.diag(factor)).sum()
                if evidence > best + 1e-9:  # near-ties go to the earlier scale, whatever rounding does
                    best, chosen = evidence, (factor, mean, scale)
            factor, mean, scale = chosen
            self._fitted = mean, cholesky_inverse(factor), float(scale)
        return self._fitted

    def state(self) -> dict[str, Any]:
        """Return landmarks and sums, JSON-safe."""
        basis = self._map
        return {
            "basis": None if basis is None else basis.state(),
            "information": pack_array(self._information),
            "moment": pack_array(self._moment),
        }

    def parse(self, state: Any) -> Parsed:
        """Check a saved state and return its parts, changing nothing."""
        if not isinstance(state, Mapping) or set(state) != {"basis", "information", "moment"}:
            raise StateError("state['regression'] must have the keys basis, information, moment")
        basis = None if state["basis"] is None else NystromMap.from_state(state["basis"])
        size = 1 if basis is None else 1 + basis.width
        information = unpack_array("information", state["information"], shape=[size, size])
        moment = unpack_array("moment", state["moment"], shape=[size])
        if not (np.isfinite(information).all() and np.isfinite(moment).all()):
            raise StateError("state['regression'] holds values that are not finite")
        return basis, information, moment

    def load(
        self, parsed: Parsed, ids: list[PromptId], saved_prints: IntP, contribution: Contribution
    ) -> None:
        """Take over parsed parts; prompts that got features only since are moved to them."""
        basis, self._information, self._moment = parsed
        self._map = None if basis is None else self.store.share(basis)
        self._fitted = None
        self._choose_basis()
        moved = np.flatnonzero((saved_prints == 0) & (self.store.fingerprints(ids) != 0))
        names = [ids[index] for index in moved.tolist()]
        self._move(names, *contribution(names))


def regression_settings(
    landmarks: int, length_scale: float, level_scale: float, memory: float
) -> dict[str, Any]:
    """Return the checked settings of a regression."""
    return {
        "landmarks": integer("landmarks", landmarks, low=0, high=4096),
        "length_scale": real("length_scale", length_scale, low=0.0, open_low=True),
        "level_scale": real("level_scale", level_scale, low=0.0, open_low=True),
        "memory": real("memory", memory, low=0.0, high=1.0, open_low=True),
    }


class RegressionBelief(StoredBelief):
    """A belief that regresses on features, with one pseudo-observation per prompt.

    ``COLUMNS`` has the columns per prompt and their types; "seen" is the step of the last visit.
    """

    COLUMNS: ClassVar[Mapping[str, Any]]

    def _regress(self, store: FeatureStore | None = None) -> None:
        """Make the empty table and regression, once ``_config`` is set."""
        self._table = PromptTable(self.COLUMNS)
        self._regression = FeatureRegression(
            landmarks=self._config["landmarks"],
            length_scale=self._config["length_scale"],
            scales=_SCALES,
            level=self._config["level_scale"],
            memory=self._config["memory"],
            store=store,
        )

    def register(self, ids: Sequence[PromptId], features: ArrayLike | None = None) -> None:
        """Give prompts their feature rows, shape (P, F); those without features get the level alone."""
        names = prompt_ids("ids", ids)
        if features is not None:
            self._regression.register(names, features, self._contribution)

    @abstractmethod
    def _contribution(self, names: Sequence[PromptId]) -> tuple[FloatP, FloatP]:
        """Return weight and centre of each prompt's pseudo-observation as it counts now."""

    def _age(self, count: int) -> None:
        self._regression.advance(count)

    def _parts(self) -> dict[str, Any]:
        prints = pack_array(self._regression.store.fingerprints(self._table.ids))
        return {**self._table.state(), "features": prints, "regression": self._regression.state()}

    def _read(self, state: Mapping[str, Any], clock: int) -> Any:
        parsed = self._regression.parse(state["regression"])
        table = PromptTable(self.COLUMNS)
        table.load(state)
        self._check_columns(table, clock)
        prints = check_fingerprints(self._regression.store, table.ids, state["features"], parsed[0])
        return table, parsed, prints

    @abstractmethod
    def _check_columns(self, table: PromptTable, clock: int) -> None:
        """Raise `StateError` unless the loaded columns are possible."""

    def _adopt(self, parts: Any) -> None:
        self._table, parsed, prints = parts
        self._regression.load(parsed, self._table.ids, prints, self._contribution)
