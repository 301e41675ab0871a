"""Prompt features for beliefs that generalise between prompts."""

from __future__ import annotations

from typing import Any

import numpy as np

from neyman.beliefs import Belief
from neyman.errors import ArgumentError
from neyman.trl._fit import warn
from neyman.trl._prompts import Prompts


def register_features(trainer: Any, belief: Belief, prompts: Prompts, features: Any) -> None:
    """Make the training prompts known to the belief.

    Args:
        trainer: the adapted trainer.
        belief: the controller's belief.
        prompts: the training prompts.
        features: None, an array [prompts, dimensions], a callable from texts to such an array, or the name of
            an embedding model.

    Raises:
        ArgumentError: features for a streaming dataset, or another number of rows than prompts.
    """
    if prompts.ids is None:
        if features is not None:
            raise ArgumentError(
                "features need a dataset with a length, and this one streams: pass a map-style dataset or features=None"
            )
        return
    if features is not None and not belief.uses_features:
        warn(
            trainer,
            "features are given, but the strategy's belief %s makes nothing of them: leave features out, or give the "
            "strategy a belief that does, for example belief=neyman.beliefs.default()",
            type(belief).__name__,
        )
        features = None if isinstance(features, str) or callable(features) else features
    if features is None:
        belief.register(list(prompts.ids))
        return
    if isinstance(features, str) or callable(features):
        from neyman.beliefs.embeddings import prompt_features  # noqa: PLC0415 (an extra)

        features = prompt_features(prompts.texts(), model=features)
    array = np.asarray(features)
    if array.ndim != 2 or len(array) != len(prompts.ids):
        raise ArgumentError(
            f"features must have one row per training prompt ({len(prompts.ids)}), got shape {array.shape}"
        )
    belief.register(list(prompts.ids), array)
