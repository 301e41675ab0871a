"""Feature rows by prompt id, and a low-rank radial basis map over them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, repeat
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from neyman._checks import FloatP, IntP, feature_matrix
from neyman.beliefs._state import check_number, pack_array, unpack_array
from neyman.errors import ArgumentError, StateError
from neyman.randomness import PromptId

_EIGEN_FLOOR = 1e-8  # directions of the landmark kernel below this share of the largest are noise
_BLOCK = 16_384  # rows handled at once, so that no temporary grows with the pool
_MAP_BLOCK = 1_024  # the same for the map, whose temporaries then stay in the processor's cache
_HELD = 64 * 2**20  # bytes of mapped rows that are cached; a larger pool's rows are mapped on each request


class FeatureStore:
    """The host's feature rows by prompt id, held as float32.

    Saved states leave the rows out, since a million embeddings are gigabytes that the host has anyway. They hold a
    64-bit fingerprint of each row instead, so that no state is continued with other features.

    Several models may share a store; then rows, and their images under a common map, are held once.
    """

    def __init__(self) -> None:
        self._rows: dict[PromptId, int] = {}
        self._matrix: NDArray[np.float32] = np.zeros((0, 0), np.float32)
        self._prints: IntP = np.zeros(0, np.int64)
        self._basis: NystromMap | None = None
        self._mapped: FloatP = np.zeros((0, 0))
        self._last: tuple[NystromMap, list[PromptId], FloatP] | None = None

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def matrix(self) -> NDArray[np.float32]:
        """All rows in order of registration."""
        return self._matrix[: len(self._rows)]

    def find(self, ids: Sequence[PromptId]) -> IntP:
        """Return the row of each id, -1 where it has no features."""
        return np.fromiter(map(self._rows.get, ids, repeat(-1)), dtype=np.int64, count=len(ids))

    def ids(self, start: int) -> list[PromptId]:
        """Return the ids from the ``start``-th registered on."""
        return list(islice(self._rows, start, None))

    def share(self, basis: NystromMap) -> NystromMap:
        """Return the equal map of another model over these rows, if there is one, else this map."""
        if self._basis is None or not self._basis.equals(basis):
            self._basis, self._mapped = basis, np.zeros((0, basis.width))
        return self._basis

    def design(self, basis: NystromMap, ids: Sequence[PromptId]) -> FloatP:
        """Return a 1 and the mapped features of each prompt, shape (P, 1 + D); zeros where it has no row.

        The last result is cached: models that share a store are asked about the same prompts one after another.
        """
        if self._last is None or self._last[0] is not basis or self._last[1] != ids:
            rows = self.find(ids)
            have = rows >= 0
            z = np.zeros((len(ids), 1 + basis.width))
            z[:, 0] = 1.0
            if have.any():
                z[have, 1:] = self._map(basis, rows[have])
            self._last = basis, list(ids), z
        return self._last[2]

    def _map(self, basis: NystromMap, rows: IntP) -> FloatP:
        """Return the mapped features of rows, from the cache where the pool is small enough for one."""
        if basis is not self._basis or 8 * len(self) * basis.width > _HELD:
            return basis(self._matrix[rows])
        if len(self._mapped) < len(self):
            self._mapped = np.concatenate([self._mapped, basis(self.matrix[len(self._mapped) :])])
        return self._mapped[rows]

    def check(
        self, ids: Sequence[PromptId], features: ArrayLike
    ) -> tuple[list[PromptId], NDArray[np.float32], IntP]:
        """Return the ids that have no features yet with their rows and fingerprints; refuse other rows of known ids."""
        columns = self._matrix.shape[1] if self._rows else None
        matrix = feature_matrix("features", features, rows=len(ids), columns=columns)
        prints = fingerprints(matrix)
        fresh: dict[PromptId, int] = {}
        for index, item in enumerate(ids):
            row = self._rows.get(item)
            known = prints[fresh.setdefault(item, index)] if row is None else self._prints[row]
            if known != prints[index]:
                raise ArgumentError(
                    f"features of prompt {item!r:.80} differ from those registered before; "
                    "a prompt keeps its features, use a new belief or a new id for others"
                )
        picked = list(fresh.values())
        return list(fresh), matrix[picked], prints[picked]

    def add(self, ids: Sequence[PromptId], matrix: NDArray[np.float32], prints: IntP) -> None:
        """Append checked rows of new ids."""
        if not ids:
            return
        self._last = None
        start, stop = len(self._rows), len(self._rows) + len(ids)
        if stop > len(self._prints):
            size = stop if start == 0 else max(stop, 2 * len(self._prints))
            grown = np.zeros((size, matrix.shape[1]), np.float32)
            if start:
                grown[:start] = self._matrix[:start]
            self._matrix = grown
            self._prints = np.concatenate([self._prints[:start], np.zeros(size - start, np.int64)])
        self._matrix[start:stop] = matrix
        self._prints[start:stop] = prints
        for offset, item in enumerate(ids):
            self._rows[item] = start + offset

    def fingerprints(self, ids: Sequence[PromptId]) -> IntP:
        """Return each id's fingerprint, 0 where it has no features."""
        rows = self.find(ids)
        if not len(self._prints):
            return np.zeros(len(rows), np.int64)
        return np.where(rows >= 0, self._prints[np.maximum(rows, 0)], 0)


def fingerprints(matrix: NDArray[np.float32]) -> IntP:
    """Return a 64-bit hash of each row's bits, never 0, the same on every machine."""
    # Odd multipliers by SplitMix64's finaliser, so that no library's random stream is part of a saved state.
    mix = np.arange(1, matrix.shape[1] + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    mix = (mix ^ (mix >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mix = (mix ^ (mix >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    multipliers = (mix ^ (mix >> np.uint64(31))) | np.uint64(1)
    out = np.empty(len(matrix), np.uint64)
    for start in range(0, len(matrix), _BLOCK):
        bits = matrix[start : start + _BLOCK].view(np.uint32).astype(np.uint64) + np.uint64(1)
        out[start : start + _BLOCK] = (bits * multipliers).sum(axis=1, dtype=np.uint64)
    return np.maximum(out, np.uint64(1)).view(np.int64)


def squared_distances(x: NDArray[Any], y: NDArray[Any]) -> FloatP:
    """Return all squared Euclidean distances, shape (len(x), len(y))."""
    # |x|^2 + |y|^2 - 2 x'y is one matrix product, but cancels for close rows: in float64, and clipped at zero.
    x, y = x.astype(np.float64), y.astype(np.float64)
    cross = x @ y.T
    total = (x * x).sum(axis=1)[:, None] + (y * y).sum(axis=1)[None, :] - 2.0 * cross
    return np.asarray(np.maximum(total, 0.0), dtype=np.float64)


def median_distance(matrix: NDArray[Any], *, limit: int = 1000) -> float:
    """Return the median distance over pairs of at most ``limit`` evenly spaced rows; 1 if all coincide."""
    picked = np.unique(np.linspace(0, len(matrix) - 1, min(limit, len(matrix))).astype(np.int64))
    rows = matrix[picked]
    above = np.sqrt(squared_distances(rows, rows)[np.triu_indices(len(rows), 1)])
    median = float(np.median(above)) if len(above) else 0.0
    return median if median > 1e-9 else 1.0


@dataclass(frozen=True, slots=True, eq=False)
class NystromMap:
    """Features z with ``z(x) z(y)' ~ exp(-|x - y|^2 / (2 h^2))``, h the bandwidth, from M landmarks.

    Cost: O(M F) per row.
    Source: Williams and Seeger (2001), "Using the Nystrom method to speed up kernel machines".
    """

    landmarks: FloatP  # shape (M, F)
    projection: FloatP  # shape (M, D), D <= M
    bandwidth: float

    @classmethod
    def fit(cls, matrix: NDArray[np.float32], *, landmarks: int, bandwidth: float) -> NystromMap:
        """Choose landmarks among the rows by a fixed shuffle, and whiten their kernel."""
        # A generator of its own, always the same: the landmarks are part of a belief's result, not of a run's seed.
        order = np.random.Generator(np.random.PCG64(0)).permutation(len(matrix))[:landmarks]
        points = matrix[np.sort(order)].astype(np.float64)
        kernel = np.exp(squared_distances(points, points) / (-2.0 * bandwidth**2))
        values, vectors = np.linalg.eigh(kernel)
        # K_MM^{-1/2} without the directions whose eigenvalues are rounding noise, which it would blow up.
        good = values > _EIGEN_FLOOR * values[-1]
        return cls(points, np.ascontiguousarray(vectors[:, good] / np.sqrt(values[good])), bandwidth)

    @property
    def width(self) -> int:
        """The number of features, D."""
        return int(self.projection.shape[1])

    def __call__(self, matrix: NDArray[np.float32]) -> FloatP:
        """Return the features of raw rows, shape (rows, D)."""
        out = np.empty((len(matrix), self.width))
        for start in range(0, len(matrix), _MAP_BLOCK):
            part = slice(start, start + _MAP_BLOCK)
            distances = squared_distances(matrix[part], self.landmarks)
            out[part] = np.exp(distances / (-2.0 * self.bandwidth**2)) @ self.projection
        return out

    def equals(self, other: NystromMap) -> bool:
        """Whether another map gives the same features."""
        return (
            self.bandwidth == other.bandwidth
            and np.array_equal(self.landmarks, other.landmarks)
            and np.array_equal(self.projection, other.projection)
        )

    def state(self) -> dict[str, Any]:
        """Return the map, JSON-safe."""
        return {
            "landmarks": pack_array(self.landmarks),
            "projection": pack_array(self.projection),
            "bandwidth": self.bandwidth,
        }

    @classmethod
    def from_state(cls, state: Any) -> NystromMap:
        """Return a saved map, or raise ``StateError``."""
        if not isinstance(state, Mapping) or set(state) != {"landmarks", "projection", "bandwidth"}:
            raise StateError("a saved basis must have the keys landmarks, projection, bandwidth")
        landmarks = unpack_array("landmarks", state["landmarks"], shape=[None, None])
        projection = unpack_array("projection", state["projection"], shape=[len(landmarks), None])
        if not (np.isfinite(landmarks).all() and np.isfinite(projection).all()):
            raise StateError("a saved basis holds values that are not finite")
        return cls(landmarks, projection, check_number("bandwidth", state["bandwidth"], low=1e-12))


def check_fingerprints(
    store: FeatureStore, ids: Sequence[PromptId], packed: Any, basis: NystromMap | None
) -> IntP:
    """Return the saved fingerprints; refuse a state whose features are not those registered here."""
    saved = unpack_array("features", packed, shape=[len(ids)])
    if saved.dtype != np.int64:
        raise StateError("state['features'] must hold 64-bit integers")
    # 0 is "no features": a prompt may get its row after the state was saved, but never another row.
    bad = np.flatnonzero((saved != store.fingerprints(ids)) & (saved != 0))
    if len(bad):
        raise StateError(
            f"{len(bad)} prompts of the saved belief had other features, first {ids[int(bad[0])]!r:.80}; "
            "register the same prompts with the same features before loading"
        )
    if basis is not None and len(store) and basis.landmarks.shape[1] != store.matrix.shape[1]:
        raise StateError(
            f"the saved landmarks have {basis.landmarks.shape[1]} features, "
            f"the registered prompts {store.matrix.shape[1]}"
        )
    return saved
