"""Discounted counts per prompt, with a Gaussian process over features as the prior mean."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, final

import numpy as np

from neyman._checks import FloatP, IntP, prompt_ids, real
from neyman.beliefs._families import BetaFamily
from neyman.beliefs._logit_normal import rate_moments
from neyman.beliefs._regression import RegressionBelief, regression_settings
from neyman.beliefs._table import PromptTable
from neyman.randomness import PromptId

_COLUMNS: Final[Mapping[str, Any]] = {"successes": np.float64, "trials": np.float64, "seen": np.int64}


@final
class CountsWithGP(BetaFamily, RegressionBelief):
    """Counts per prompt, with a Gaussian process over features as the prior mean.

    ``p_q | data ~ Beta(k m_q + S, k (1 - m_q) + N - S)``, S and N discounted as in ``Counts``, k the strength and
    ``m_q = E[sigmoid(level + z_q' w + r_q)]`` from a low-rank process on the empirical logits
    ``log((S + 1/2) / (N - S + 1/2))`` with noise ``1 / (N p (1-p))`` and an independent term r per prompt.

    Args:
        discount: share of a prompt's evidence that its next visit leaves, in [0, 1].
        fade: share of all evidence that a training step leaves, in [0, 1].
        strength: pseudo-rollouts k of the prior, > 0.
        residual_scale: standard deviation of r, in logits.
        landmarks: basis functions, at most; 0 ignores features.
        length_scale: the kernel's bandwidth in units of the median distance between prompts.
        level_scale: prior standard deviation of the common logit.
        memory: share of an old visit's weight in the process that a step leaves, in (0, 1].

    Guarantee: with a strength near 0 it equals ``Counts`` for prompts with evidence. Voided, in its mean, by fast
    drift: a visit after a jump of the success rate is averaged with those before it.
    Cost: as ``BinomialResidual``.
    Source: our own hybrid of VIP's process (arXiv 2602.01601) with counts.

    >>> belief = CountsWithGP()
    >>> belief.register(["a", "b", "c"], [[0.0, 1.0], [0.1, 1.0], [5.0, 0.0]])
    >>> belief.update(["a"], [8], [8])
    >>> mean, _ = belief.predict(["a", "b", "c"])
    >>> bool(mean[0] > mean[1] > mean[2] > 0.5)
    True
    """

    KIND = "counts_with_gp"
    KEYS = ("ids", *_COLUMNS, "features", "regression")
    COLUMNS = _COLUMNS

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
            **regression_settings(landmarks, length_scale, level_scale, memory),
        }
        self._regress()

    def prior_mean(self, ids: Sequence[PromptId]) -> FloatP:
        """Return the success rate that the features predict for each prompt, before its own counts."""
        mean, variance = self._regression.predict_ids(prompt_ids("ids", ids))
        return rate_moments(mean, variance + self._config["residual_scale"] ** 2)[0]

    def beta_parameters(self, ids: Sequence[PromptId]) -> tuple[FloatP, FloatP]:
        """Return the posterior Beta(a, b) per prompt."""
        names = prompt_ids("ids", ids)
        rows = self._table.find(names)
        successes, trials = self._table.evidence(rows, self._config["fade"], self._clock)
        mean, strength = self.prior_mean(names), self._config["strength"]
        return strength * mean + successes, strength * (1.0 - mean) + np.maximum(trials - successes, 0.0)

    def _learn(self, names: list[PromptId], s: IntP, n: IntP) -> None:
        # The prompts' old pseudo-observations leave the process before their new ones enter it.
        z = self._regression.design(names)
        weight, centre = self._contribution(names)
        self._regression.add_evidence(z, -weight, centre)
        self._table.add_discounted(self._table.add(names), s, n, self._config, self._clock)
        self._regression.add_evidence(z, *self._contribution(names))

    def _check_columns(self, table: PromptTable, clock: int) -> None:
        table.check_visits(self.KIND, clock)

    def _contribution(self, names: Sequence[PromptId]) -> tuple[FloatP, FloatP]:
        """Return weight and empirical logit of each prompt's counts, as they enter the process."""
        rows = self._table.find(names)
        successes, trials = self._table.gather("successes", rows), self._table.gather("trials", rows)
        # Half a success and half a failure keep the empirical logit finite (Anscombe, 1956).
        rate = (successes + 0.5) / (trials + 1.0)
        # Delta method: Var(logit of s/n) = 1 / (n p (1-p)); the prompt's own term r adds its variance to the noise.
        information = trials * rate * (1.0 - rate)
        weight = information / (1.0 + self._config["residual_scale"] ** 2 * information)
        age = self._table.idle(rows, self._clock)
        return weight * self._regression.decay(age), np.log(rate / (1.0 - rate))
