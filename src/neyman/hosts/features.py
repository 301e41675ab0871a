"""Prompts made known to a belief, with features where it generalises between them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from neyman.beliefs import Belief
from neyman.errors import ArgumentError
from neyman.hosts.terms import TrainingPrompts


def register_prompts(
    belief: Belief, prompts: TrainingPrompts, features: Any, warn: Callable[[str], None]
) -> None:
    """Make the training prompts known to the belief.

    Args:
        belief: the controller's belief.
        prompts: the training prompts.
        features: None, an array [prompts, dimensions], a callable from texts to such an array, or the name of an
            embedding model. None are computed where the belief uses none.
        warn: takes a warning.

    Raises:
        ArgumentError: features for a stream, or another number of rows than prompts.
    """
    if prompts.ids is None:
        if features is not None:
            raise ArgumentError(
                "features need a dataset with a length, and this one streams: pass a map-style dataset or features=None"
            )
        return
    ids, is_computed = list(prompts.ids), isinstance(features, str) or callable(features)
    if features is not None and not belief.uses_features:
        warn(
            f"features are given, but the strategy's belief {type(belief).__name__} makes nothing of them: leave "
            "features out, or give the strategy a belief that does, for example belief=neyman.beliefs.default()"
        )
        features = None if is_computed else features  # embedding a large dataset for nothing takes minutes
    if features is None:
        belief.register(ids)
        return
    if is_computed:
        from neyman.beliefs.embeddings import prompt_features  # noqa: PLC0415 (an extra)

        features = prompt_features(prompts.texts(), model=features)
    array = np.asarray(features)
    if array.ndim != 2 or len(array) != len(ids):
        raise ArgumentError(
            f"features must have one row per training prompt ({len(ids)}), got shape {array.shape}"
        )
    belief.register(ids, array)
