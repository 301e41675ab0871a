"""The default belief, and the one for "published" variants."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from numpy.typing import ArrayLike

from neyman._checks import choice
from neyman.beliefs._average import ModelAverage
from neyman.beliefs._protocol import Belief
from neyman.beliefs._published_gp import PublishedGP
from neyman.beliefs._residual import BinomialResidual
from neyman.randomness import PromptId

# Chosen by log-loss on two recorded runs of a policy of 0.1M parameters that learns within tens of steps.
_FAST: Final = {"memory": 0.97, "residual_drift": 0.4, "level_drift": 0.3}


def default(
    ids: Sequence[PromptId] | None = None, features: ArrayLike | None = None, **options: Any
) -> ModelAverage:
    """Return a fresh default belief: binomial residual models of slow and of fast drift, weighted by likelihood.

    `BinomialResidual` was chosen over counts with a Gaussian process as prior (`CountsWithGP`) on a real training
    trace and in simulated worlds (``benchmarks/beliefs.py``): its log-loss is lower on new prompts and on prompts
    seen before, with and without embeddings. Two speeds are averaged because no single one fits: success rates
    drift slowly for a large model at a small learning rate, and fast for a small model.

    Args:
        ids: the pool's prompt ids, P of them; more may come later.
        features: their features, shape (P, F): ``neyman.beliefs.embeddings.prompt_features`` makes some.
        options: settings of both models, e.g. ``landmarks``; they override the fast model's own drifts too.

    Raises:
        ArgumentError: features without ids, or of another length.

    >>> default(["a", "b"], [[0.0], [1.0]]).predict(["a", "z"])[0].round(3).tolist()
    [0.5, 0.5]
    """
    slow = BinomialResidual(**options)
    belief = ModelAverage([slow, BinomialResidual(**{**_FAST, **options}, shares=slow)])
    if ids is not None or features is not None:
        belief.register([] if ids is None else ids, features)
    return belief


def for_variant(variant: str) -> Belief:
    """Return VIP's process for "published", the default belief for "exact".

    Raises:
        ArgumentError: another variant.

    >>> type(for_variant("published")).__name__, type(for_variant("exact")).__name__
    ('PublishedGP', 'ModelAverage')
    """
    choice("variant", variant, ("exact", "published"))
    return PublishedGP() if variant == "published" else default()
