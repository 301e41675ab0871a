"""The contract of beliefs: predicted success rates, updates by verified counts, drift, and state."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike

from neyman._checks import FloatP
from neyman._defaults import default
from neyman.randomness import PromptId


@runtime_checkable
class Belief(Protocol):
    """The predicted success rate of each prompt, and its uncertainty.

    A belief inherits from this class, and with it the defaults of ``uses_features`` and ``evidence``.

    Every array has one entry per requested id, in the order of the request. Ids are strings or integers
    (``1`` and ``"1"`` are two prompts). An unknown id is no error: it gets the prior.
    ``predict``, ``expected_variance``, ``mixed_probability`` and ``sample`` change nothing.

    **Time.** ``advance`` marks that the policy has taken optimiser steps; the controller calls it once per training
    step. All updates between two calls are one visit, in however many portions they come, so that the rounds of a
    step do not discount one another.

    Guarantee: the same calls in the same order give the same numbers, bit for bit, and ``load_state_dict``
    of a saved state continues as if nothing had happened. Voided by another NumPy or BLAS build, or another
    number of BLAS threads, in beliefs that multiply matrices.
    """

    @default
    def uses_features(self) -> bool:
        """Whether predictions depend on the features given to ``register``; if not, hosts warn about given ones."""
        return True

    def evidence(self, ids: Sequence[PromptId]) -> tuple[FloatP, FloatP] | None:
        """Return the observed successes and trials per id, without the prior; None where a belief keeps no counts."""
        del ids
        return None

    @abstractmethod
    def register(self, ids: Sequence[PromptId], features: ArrayLike | None = None) -> None:
        """Register prompts, with their feature rows, shape (P, F), where the belief uses features.

        Raises:
            ArgumentError: a matrix that is not (P, F) or not finite, or other features for a known prompt.
        """
        ...

    @abstractmethod
    def predict(self, ids: Sequence[PromptId]) -> tuple[FloatP, FloatP]:
        """Return the posterior mean and variance of each success rate."""
        ...

    @abstractmethod
    def expected_variance(self, ids: Sequence[PromptId]) -> FloatP:
        """Return E[p(1-p)] = m(1-m) - Var(p), the expected variance of a rollout's success."""
        ...

    @abstractmethod
    def mixed_probability(self, ids: Sequence[PromptId], group_size: ArrayLike) -> FloatP:
        """Return E[1 - p^n - (1-p)^n]: the chance that a group of n is mixed."""
        ...

    @abstractmethod
    def sample(self, ids: Sequence[PromptId], rng: np.random.Generator) -> FloatP:
        """Return one posterior draw per id; draws of different ids are independent."""
        ...

    @abstractmethod
    def update(self, ids: Sequence[PromptId], successes: ArrayLike, trials: ArrayLike) -> None:
        """Learn verified counts; zero trials are ignored, an id given twice counts as its sum.

        Raises:
            ArgumentError: unequal lengths, fractions, negatives, or more successes than trials.
        """
        ...

    @abstractmethod
    def advance(self, steps: int = 1) -> None:
        """Let training steps pass: predictions lose confidence as the policy drifts, for visited prompts or not."""
        ...

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """Return the whole state, JSON-safe."""
        ...

    @abstractmethod
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Replace the state by a saved one; prompts' features must be registered before.

        Raises:
            StateError: another kind, version, configuration or key set, damaged arrays, or other features.
        """
        ...
