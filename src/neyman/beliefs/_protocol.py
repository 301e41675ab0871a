"""What a strategy may ask of a belief: one small protocol, and the identity of a prompt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike

from neyman._checks import FloatP

PromptId = str | int


@runtime_checkable
class Belief(Protocol):
    """What is thought about each prompt's success rate, and how sure that is.

    Every array has one entry per requested id, in the order of the request. Ids are strings or integers
    (``1`` and ``"1"`` are two prompts). An id that was never seen is no error: it gets the prior.
    ``predict``, ``expected_variance``, ``mixed_probability`` and ``sample`` change nothing.

    **Time.** ``advance`` marks that the policy has taken optimiser steps: call it once per training step.
    All updates between two calls are one visit, however many portions they come in, so rounds within a
    step do not discount one another.

    **Features.** A belief that makes nothing of features says so by ``uses_features = False``, so that hosts can warn
    who gives some.

    Guarantee: the same calls in the same order give the same numbers, bit for bit, and ``load_state_dict``
    of a saved state continues as if nothing had happened. Voided by another NumPy or BLAS build, or another
    number of BLAS threads, in beliefs that multiply matrices.
    """

    def register(self, ids: Sequence[PromptId], features: ArrayLike | None = None) -> None:
        """Make prompts known, with their feature rows (P, F) where the belief uses features."""
        ...

    def predict(self, ids: Sequence[PromptId]) -> tuple[FloatP, FloatP]:
        """Return the posterior mean and variance of each success rate."""
        ...

    def expected_variance(self, ids: Sequence[PromptId]) -> FloatP:
        """Return E[p(1-p)] = m(1-m) - Var(p), the posterior expectation of a rollout's variance."""
        ...

    def mixed_probability(self, ids: Sequence[PromptId], group_size: ArrayLike) -> FloatP:
        """Return E[1 - p^n - (1-p)^n]: the chance that a group of n is mixed."""
        ...

    def sample(self, ids: Sequence[PromptId], rng: np.random.Generator) -> FloatP:
        """Return one posterior draw per id; draws of different ids are independent."""
        ...

    def update(self, ids: Sequence[PromptId], successes: ArrayLike, trials: ArrayLike) -> None:
        """Take in verified counts; zero trials are ignored, an id given twice counts as its sum."""
        ...

    def advance(self, steps: int = 1) -> None:
        """Let time pass: all beliefs, of observed prompts or not, lose confidence as the policy drifts."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Return the whole state, JSON-safe."""
        ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Replace the state by a saved one of the same kind and configuration."""
        ...
