"""Predictions shared by beliefs of one family: a Beta per prompt, or a normal logit per prompt."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from neyman._checks import FloatP, sizes_per_prompt
from neyman._scipy import expit
from neyman.beliefs._beta import beta_mixed_probability, beta_sample, expected_spread
from neyman.beliefs._logit_normal import mixed_moment, rate_moments
from neyman.beliefs._protocol import Belief
from neyman.randomness import PromptId


class MomentFamily(Belief):
    """A belief whose predictions follow from a mean and a variance per prompt."""

    def expected_variance(self, ids: Sequence[PromptId]) -> FloatP:
        """Return E[p(1-p)] per prompt."""
        return expected_spread(*self.predict(ids))


class BetaFamily(MomentFamily):
    """Beliefs with a Beta posterior per prompt."""

    @abstractmethod
    def beta_parameters(self, ids: Sequence[PromptId]) -> tuple[FloatP, FloatP]:
        """Return the posterior Beta(a, b) per prompt."""

    def predict(self, ids: Sequence[PromptId]) -> tuple[FloatP, FloatP]:
        """Return the posterior mean and variance of each success rate."""
        a, b = self.beta_parameters(ids)
        total = a + b
        mean = a / total
        return mean, mean * (1.0 - mean) / (total + 1.0)

    def mixed_probability(self, ids: Sequence[PromptId], group_size: ArrayLike) -> FloatP:
        """Return the chance that a group of this size is mixed."""
        return beta_mixed_probability(*self.beta_parameters(ids), group_size)

    def sample(self, ids: Sequence[PromptId], rng: np.random.Generator) -> FloatP:
        """Return one independent posterior draw per id."""
        return beta_sample(*self.beta_parameters(ids), rng)


class LogitNormalFamily(MomentFamily):
    """Beliefs with a normal posterior of each prompt's logit."""

    @abstractmethod
    def predict_logit(self, ids: Sequence[PromptId]) -> tuple[FloatP, FloatP]:
        """Return the mean and variance of each logit."""

    def predict(self, ids: Sequence[PromptId]) -> tuple[FloatP, FloatP]:
        """Return the mean and variance of each success rate, by quadrature over the logit."""
        return rate_moments(*self.predict_logit(ids))

    def mixed_probability(self, ids: Sequence[PromptId], group_size: ArrayLike) -> FloatP:
        """Return the chance that a group of this size is mixed, by quadrature over the logit."""
        mean, variance = self.predict_logit(ids)
        return mixed_moment(mean, variance, sizes_per_prompt("group_size", group_size, len(mean)))

    def sample(self, ids: Sequence[PromptId], rng: np.random.Generator) -> FloatP:
        """Return one independent draw per id; a logit without variance gives its own rate."""
        mean, variance = self.predict_logit(ids)
        return np.asarray(expit(mean + np.sqrt(variance) * rng.standard_normal(len(mean))), dtype=np.float64)
