"""The belief to use when nothing speaks for another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from numpy.typing import ArrayLike

from neyman.beliefs._protocol import PromptId
from neyman.beliefs._residual import BinomialResidual


def default(
    ids: Sequence[PromptId] | None = None, features: ArrayLike | None = None, **options: Any
) -> BinomialResidual:
    """Return the default belief, ``BinomialResidual``, with the pool's features registered if given.

    It was chosen between the two candidates, counts with a Gaussian process as prior and the binomial residual
    model, on a real training trace and in simulated worlds (``benchmarks/beliefs.py``): it has the lower
    log-loss on prompts never seen and on prompts seen, without embeddings too.

    Args:
        ids: the pool's prompt ids, P of them; more may come later.
        features: their features, shape (P, F): ``neyman.beliefs.embeddings.prompt_features`` makes some.
        options: settings of ``BinomialResidual``.

    Returns:
        A fresh belief.

    Raises:
        ArgumentError: features without ids, or of another length.

    Example:
        >>> default(["a", "b"], [[0.0], [1.0]]).predict(["a", "z"])[0].round(3).tolist()
        [0.5, 0.5]
    """
    belief = BinomialResidual(**options)
    if ids is not None or features is not None:
        belief.register([] if ids is None else ids, features)
    return belief
