"""Logistic regression on features with a drifting residual per prompt: the model behind the default belief."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, final

import numpy as np

from neyman._checks import FloatP, IntP, prompt_ids, real
from neyman.beliefs._families import LogitNormalFamily
from neyman.beliefs._features import FeatureStore
from neyman.beliefs._logit_normal import tilted_moments
from neyman.beliefs._regression import RegressionBelief, regression_settings
from neyman.beliefs._state import check_clock, check_number
from neyman.beliefs._table import PromptTable
from neyman.errors import StateError
from neyman.randomness import PromptId

_COLUMNS: Final[Mapping[str, Any]] = {"centre": np.float64, "precision": np.float64, "seen": np.int64}
# A batch is matched again, each prompt against all others of it, until no logit moves by more than this.
_SETTLED, _PASSES = 0.05, 4


@final
class BinomialResidual(LogitNormalFamily, RegressionBelief):
    """A logistic model with shared features, a state per prompt, and drift.

    ``logit p_q(t) = level(t) + z_q' w + r_q(t)``, ``r_q ~ N(0, residual_scale^2)`` and drifting,
    ``s | n ~ Binomial(n, p)``. The evidence on a prompt is one Gaussian pseudo-observation of its logit, whose
    moments are matched to the exact binomial posterior at each visit. Given w, ``r_q`` has a closed form, so that
    the prediction for a prompt with evidence rests on that evidence, and for one without on its features.

    Without features it is a filter per prompt with a common level.

    Args:
        residual_scale: standard deviation of r, the part of a logit that features do not explain.
        residual_drift: standard deviation of r's random walk, logits per square root of a step.
        level_drift: the same for the level that all prompts share, which moves as the policy gets better or worse.
        level_scale: prior standard deviation of the level.
        landmarks: basis functions, at most; 128 keeps the quality of 512 on real embeddings. 0 ignores features.
        length_scale: the kernel's bandwidth in units of the median distance between prompts.
        memory: share of an old visit's weight in the regression that a step leaves, in (0, 1].
        shares: another such belief over the same prompts, with which feature rows are shared, so that they are held
            once.

    The defaults: ``level_scale`` is vague; ``residual_scale`` gives the U-shaped success rates of real pools; the
    drifts are within 1 % of the best log-loss from no drift to 0.15 logits a step in simulation; and the weight of
    the features is not a setting, but maximises the marginal likelihood as data come in.
    ``residual_scale``, ``residual_drift`` and ``length_scale`` were chosen with the public trace of
    ``benchmarks/beliefs.py`` in view, so its figures are not held out. They are flat around the choice: .3496 to
    .3512 on later visits and .602 to .604 on first ones for scales 1.8 to 2.5, drifts .02 to .1, lengths .5 to 1.

    Guarantee: O(1) memory per prompt beside its features, and no work for prompts outside a request. The model's
    posterior is approximate: the Gaussian in the logit overstates the variance of prompts with zero-variance groups
    (.0085 for .0049 at 0 of 8), while the mean and E[p(1-p)] are within .005. Voided by features registered in
    portions: the first ones fix the landmarks, so register the whole pool at once.
    Cost: O(B M F + B M^2) a call, O(M^3) a few times per step: about 10 ms of one core at 128 prompts and landmarks.
    Source: our own. Kernel and link as in VIP (arXiv 2602.01601); moment matching after Opper and Winther (2000).

    >>> belief = BinomialResidual()
    >>> belief.register(["a", "b", "c"], [[0.0, 1.0], [0.1, 1.0], [5.0, 0.0]])
    >>> belief.update(["a"], [8], [8])
    >>> mean, variance = belief.predict(["a", "b", "c"])
    >>> bool(mean[0] > mean[1] > mean[2] > 0.5), bool(variance[0] < variance[1])
    (True, True)
    """

    KIND = "binomial_residual"
    KEYS = ("level", "level_clock", "ids", *_COLUMNS, "features", "regression")
    COLUMNS = _COLUMNS

    def __init__(
        self,
        *,
        residual_scale: float = 2.2,
        residual_drift: float = 0.06,
        level_drift: float = 0.06,
        level_scale: float = 2.5,
        landmarks: int = 128,
        length_scale: float = 0.7,
        memory: float = 0.999,
        shares: BinomialResidual | None = None,
    ) -> None:
        self._config = {
            "residual_scale": real("residual_scale", residual_scale, low=0.0, open_low=True),
            "residual_drift": real("residual_drift", residual_drift, low=0.0),
            "level_drift": real("level_drift", level_drift, low=0.0),
            **regression_settings(landmarks, length_scale, level_scale, memory),
        }
        self._spread = residual_scale**2
        self._walk = residual_drift**2
        self._level_walk = level_drift**2
        self._level = 0.0
        self._level_clock = 0
        self._regress(None if shares is None else shares.store)

    @property
    def store(self) -> FeatureStore:
        """The feature rows, which another belief may share."""
        return self._regression.store

    def predict_logit(self, ids: Sequence[PromptId]) -> tuple[FloatP, FloatP]:
        """Return the posterior mean and variance of each logit."""
        names = prompt_ids("ids", ids)
        return self._logit(names, *self._regression.predict_ids(names))

    def _learn(self, names: list[PromptId], s: IntP, n: IntP) -> None:
        z = self._regression.design(names)
        mean, variance = self._logit(names, *self._regression.predict(z))
        first, site, moment = _match(mean, variance, s, n)
        known = self._table.find(names) >= 0
        self._move_level(first - mean, variance, site, known)
        rows = self._table.add(names)
        weight, centre = self._contribution_of(rows)
        kept, own = self._aged_precision(rows), centre
        # Each prompt's new counts were matched against the features before this batch; now against the others of it.
        for _ in range(_PASSES):
            self._record(rows, kept, own, site, moment)
            old, (weight, centre) = (weight, centre), self._contribution_of(rows)
            self._regression.replace_evidence(z, old, (weight, centre))
            before = first
            mean, variance = self._without_own(z, weight, centre, kept, own)
            first, site, moment = _match(mean, variance, s, n)
            if np.abs(first - before).max() < _SETTLED:
                break

    def _parts(self) -> dict[str, Any]:
        return {"level": self._level, "level_clock": self._level_clock, **super()._parts()}

    def _read(self, state: Mapping[str, Any], clock: int) -> Any:
        level_clock = check_clock(state["level_clock"])
        if level_clock > clock:
            raise StateError(f"state['level_clock'] is {level_clock}, after the clock {clock}")
        return check_number("level", state["level"]), level_clock, super()._read(state, clock)

    def _check_columns(self, table: PromptTable, clock: int) -> None:
        if (table.column("precision") < 0.0).any() or (table.column("seen") > clock).any():
            raise StateError("the saved binomial_residual has a negative precision or a visit in the future")

    def _adopt(self, parts: Any) -> None:
        self._level, self._level_clock, rest = parts
        super()._adopt(rest)

    def _logit(self, names: list[PromptId], mean: FloatP, variance: FloatP) -> tuple[FloatP, FloatP]:
        """Return mean and variance of the logits, given those of the features' part."""
        rows = self._table.find(names)
        share = self._spread * self._aged_precision(rows)
        rest = 1.0 / (1.0 + share)  # weight of the features in the logit; 1 for a prompt without visits
        own = self._table.gather("centre", rows)
        level_variance = self._level_walk * (self._clock - self._level_clock)
        logit = self._level + rest * mean + (1.0 - rest) * own
        return logit, rest**2 * variance + self._spread * rest + level_variance

    def _without_own(
        self, z: FloatP, weight: FloatP, centre: FloatP, kept: FloatP, own: FloatP
    ) -> tuple[FloatP, FloatP]:
        """Return the logits' moments from the whole batch and each prompt's past, without its new counts.

        The cavity of expectation propagation: leave-one-out moments of a linear regression follow from the leverage.
        """
        mean, variance = self._regression.predict(z)
        leverage = np.minimum(weight * variance, 1.0 - 1e-9)  # below 1 but for rounding
        prior = variance / (1.0 - leverage) + self._spread
        precision = 1.0 / prior + kept
        others = (mean - leverage * centre) / (1.0 - leverage)
        level_variance = self._level_walk * (self._clock - self._level_clock)
        return self._level + (others / prior + kept * own) / precision, 1.0 / precision + level_variance

    def _record(self, rows: IntP, kept: FloatP, own: FloatP, site: FloatP, moment: FloatP) -> None:
        """Write each prompt's pseudo-observation: the product of its aged past and the site of its new counts."""
        total = kept + site
        good = total > 0.0
        centre = (kept * own + moment - site * self._level) / np.where(good, total, 1.0)
        self._table.column("centre")[rows] = np.where(good, centre, 0.0)
        self._table.column("precision")[rows] = total
        self._table.column("seen")[rows] = self._clock

    def _aged_precision(self, rows: Any) -> FloatP:
        precision = self._table.gather("precision", rows)
        age = self._table.idle(rows, self._clock)
        # A random walk adds its variance: 1 / (1 / precision + walk age), written so that precision may be 0.
        return np.asarray(precision / (1.0 + precision * self._walk * age), dtype=np.float64)

    def _contribution(self, names: Sequence[PromptId]) -> tuple[FloatP, FloatP]:
        """Return weight and centre of each prompt's pseudo-observation as it counts in the regression now."""
        return self._contribution_of(self._table.find(names))

    def _contribution_of(self, rows: IntP) -> tuple[FloatP, FloatP]:
        precision = self._table.gather("precision", rows)
        age = self._table.idle(rows, self._clock)
        weight = precision / (1.0 + self._spread * precision) * self._regression.decay(age)
        return weight, self._table.gather("centre", rows)

    def _move_level(self, surprise: FloatP, variance: FloatP, site: FloatP, known: Any) -> None:
        """Shift the level by the common surprise of all revisited prompts: a Kalman step in one number."""
        walk = self._level_walk * (self._clock - self._level_clock)
        # New prompts have no prediction of their own to be surprised against, only the features'.
        if walk <= 0.0 or not known.any():
            return
        gain = site / (1.0 + variance * site)  # the precision of each prompt's innovation
        score = (surprise / variance)[known].sum()
        self._level += float(score / (1.0 / walk + gain[known].sum()))
        self._level_clock = self._clock


def _match(mean: FloatP, variance: FloatP, s: IntP, n: IntP) -> tuple[FloatP, FloatP, FloatP]:
    """Return the tilted mean, and precision and precision-weighted mean of the Gaussian site for s of n."""
    first, second = tilted_moments(mean, variance, s, n)
    site = np.maximum(1.0 / second - 1.0 / variance, 0.0)
    return first, site, first / second - mean / variance
