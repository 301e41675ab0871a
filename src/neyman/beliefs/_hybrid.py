"""Discounted counts whose prior mean is a Gaussian process's prediction from features."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, final

import numpy as np
from numpy.typing import ArrayLike

from neyman._checks import FloatP, IntP, integer, prompt_ids, real
from neyman.beliefs._families import BetaFamily
from neyman.beliefs._features import check_fingerprints
from neyman.beliefs._logit_normal import rate_moments
from neyman.beliefs._regression import FeatureRegression
from neyman.beliefs._state import check_clock, check_state, pack_array
from neyman.beliefs._table import PromptTable, checked_counts
from neyman.errors import StateError
from neyman.randomness import PromptId

_VERSION = 1
_COLUMNS = ("successes", "trials", "seen")
_KEYS = ("clock", "ids", *_COLUMNS, "features", "regression")
_SCALES = (1.0, 0.3, 2.0, 3.0)


@final
class CountsWithGP(BetaFamily):
    """Counts per prompt, with a Gaussian process over features as the prior mean.

    ``p_q | data ~ Beta(k m_q + S, k (1 - m_q) + N - S)``, S and N discounted as in ``Counts``, k the strength and
    ``m_q = E[sigmoid(level + z_q' w + r_q)]`` from a low-rank process on the empirical logits
    ``log((S + 1/2) / (N - S + 1/2))`` with noise ``1 / (N p (1-p))`` and an independent term r per prompt.

    Args:
        discount: what an earlier visit's evidence keeps at the next visit, in [0, 1].
        fade: what all evidence keeps per training step, in [0, 1].
        strength: pseudo-rollouts k of the prior, > 0.
        residual_scale: standard deviation of r, in logits.
        landmarks: basis functions, at most; 0 ignores features.
        length_scale: the kernel's bandwidth in units of the median distance between prompts.
        level_scale: prior standard deviation of the common logit.
        memory: what the process keeps of an old visit per step.

    Guarantee: with strength near 0 it is ``Counts`` where there is evidence. Voided, in its mean, by fast
    drift: a visit at which the rate jumped is averaged with those before.

    Cost: as ``BinomialResidual``.

    Source: our own hybrid of VIP's process (arXiv 2602.01601) with counts.

    Example:
        >>> belief = CountsWithGP()
        >>> belief.register(["a", "b", "c"], [[0.0, 1.0], [0.1, 1.0], [5.0, 0.0]])
        >>> belief.update(["a"], [8], [8])
        >>> mean, _ = belief.predict(["a", "b", "c"])
        >>> bool(mean[0] > mean[1] > mean[2] > 0.5)
        True
    """

    def __init__(
        self,
        *,
        discount: float = 0.9,
        fade: float = 0.999,
        strength: float = 1.0,
        residual_scale: float = 0.7,
        landmarks: int = 128,
        length_scale: float = 0.7,
        level_scale: float = 2.5,
        memory: float = 0.999,
    ) -> None:
        self._config: dict[str, Any] = {
            "discount": real("discount", discount, low=0.0, high=1.0),
            "fade": real("fade", fade, low=0.0, high=1.0),
            "strength": real("strength", strength, low=0.0, open_low=True),
            "residual_scale": real("residual_scale", residual_scale, low=0.0, open_low=True),
            "landmarks": integer("landmarks", landmarks, low=0, high=4096),
            "length_scale": real("length_scale", length_scale, low=0.0, open_low=True),
            "level_scale": real("level_scale", level_scale, low=0.0, open_low=True),
            "memory": real("memory", memory, low=0.0, high=1.0, open_low=True),
        }
        self._clock = 0
        self._table = _table()
        self._regression = FeatureRegression(
            landmarks=int(self._config["landmarks"]),
            length_scale=length_scale,
            scales=_SCALES,
            level=level_scale,
            memory=memory,
        )

    def register(self, ids: Sequence[PromptId], features: ArrayLike | None = None) -> None:
        """Give prompts their feature rows, shape (P, F); those without features get the level alone.

        Raises:
            ArgumentError: a matrix that is not (P, F) or not finite, or other features for a known prompt.
        """
        names = prompt_ids("ids", ids)
        if features is not None:
            self._regression.register(names, features, self._contribution)

    def prior_mean(self, ids: Sequence[PromptId]) -> FloatP:
        """Return what the features say about each prompt's success rate."""
        mean, variance = self._regression.predict_ids(prompt_ids("ids", ids))
        return rate_moments(mean, variance + self._config["residual_scale"] ** 2)[0]

    def beta_parameters(self, ids: Sequence[PromptId]) -> tuple[FloatP, FloatP]:
        """Return the posterior Beta(a, b) per prompt."""
        names = prompt_ids("ids", ids)
        rows = self._table.find(names)
        kept = self._kept(rows)
        successes = self._table.gather("successes", rows) * kept
        trials = self._table.gather("trials", rows) * kept
        mean, strength = self.prior_mean(names), self._config["strength"]
        return strength * mean + successes, strength * (1.0 - mean) + np.maximum(trials - successes, 0.0)

    def update(self, ids: Sequence[PromptId], successes: ArrayLike, trials: ArrayLike) -> None:
        """Take in verified counts; zero trials are ignored, an id given twice counts as its sum.

        Raises:
            ArgumentError: unequal lengths, fractions, negatives, or more successes than trials.
        """
        names, s, n = checked_counts(ids, successes, trials)
        if not names:
            return
        z = self._regression.design(names)
        weight, centre = self._contribution(names)
        self._regression.add_evidence(z, -weight, centre)
        rows = self._table.add(names)
        seen = self._table.column("seen")
        keep = self._kept(rows) * np.where(seen[rows] < self._clock, self._config["discount"], 1.0)
        for name, fresh in (("successes", s), ("trials", n)):
            column = self._table.column(name)
            column[rows] = column[rows] * keep + fresh
        seen[rows] = self._clock
        self._regression.add_evidence(z, *self._contribution(names))

    def advance(self, steps: int = 1) -> None:
        """Let ``steps`` training steps pass."""
        count = integer("steps", steps, low=0)
        if count:
            self._clock += count
            self._regression.advance(count)

    def state_dict(self) -> dict[str, Any]:
        """Return the whole state, JSON-safe; of features only fingerprints and the landmarks are in it."""
        ids = self._table.ids
        return {
            "kind": "counts_with_gp",
            "version": _VERSION,
            "config": dict(self._config),
            "clock": self._clock,
            "ids": ids,
            **{name: pack_array(self._table.column(name)) for name in _COLUMNS},
            "features": pack_array(self._regression.store.fingerprints(ids)),
            "regression": self._regression.state(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Replace the state by a saved one; register the prompts' features first.

        Raises:
            StateError: another kind, version, configuration or key set, damaged arrays, or other features.
        """
        check_state(state, kind="counts_with_gp", version=_VERSION, config=self._config, keys=_KEYS)
        clock = check_clock(state["clock"])
        parsed = self._regression.parse(state["regression"])
        table = _table()
        table.load(state["ids"], state)
        successes, trials = table.column("successes"), table.column("trials")
        if (successes < 0.0).any() or (successes > trials * (1.0 + 1e-9)).any():
            raise StateError("the saved counts_with_gp has counts outside 0 <= successes <= trials")
        if (table.column("seen") > clock).any():
            raise StateError("the saved counts_with_gp has a visit in the future")
        prints = check_fingerprints(self._regression.store, table.ids, state["features"], parsed[0])
        self._table, self._clock = table, clock
        self._regression.load(parsed, table.ids, prints, self._contribution)

    def _kept(self, rows: IntP) -> FloatP:
        idle = self._clock - self._table.gather("seen", rows, missing=float(self._clock))
        return np.asarray(self._config["fade"] ** idle, dtype=np.float64)

    def _contribution(self, names: Sequence[PromptId]) -> tuple[FloatP, FloatP]:
        """Return weight and empirical logit of what each prompt's last visit still tells the process."""
        rows = self._table.find(names)
        successes, trials = self._table.gather("successes", rows), self._table.gather("trials", rows)
        rate = (successes + 0.5) / (trials + 1.0)
        information = trials * rate * (1.0 - rate)
        weight = information / (1.0 + self._config["residual_scale"] ** 2 * information)
        age = self._clock - self._table.gather("seen", rows, missing=float(self._clock))
        return weight * self._regression.decay(age), np.log(rate / (1.0 - rate))


def _table() -> PromptTable:
    return PromptTable({"successes": np.float64, "trials": np.float64, "seen": np.int64})
