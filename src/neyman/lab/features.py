"""Features of prompts, which a belief has before any rollout."""

from __future__ import annotations

import numpy as np
import torch

from neyman._checks import FloatP, choice
from neyman.lab.policy import Policy
from neyman.lab.task import Prompts

FEATURES = ("none", "metadata", "hidden")


def features(kind: str, policy: Policy, prompts: Prompts) -> FloatP | None:
    """Return features of prompts, float64 [prompts, features], or None.

    Args:
        kind: "none"; "metadata": one-hot family and first digit; "hidden": the policy's hidden state on the prompt
            and the entropy of its first token, standardised, which a host's prefill computes anyway.
        policy: the starting policy.
        prompts: the pool.
    """
    choice("kind", kind, FEATURES)
    if kind == "none":
        return None
    if kind == "metadata":
        return prompts.metadata
    with torch.no_grad():
        hidden, _ = policy.read(prompts.tokens, keep=1)
        log_p = policy.head(hidden[:, 0]).log_softmax(-1)
        entropy = -(log_p.exp() * log_p).sum(-1, keepdim=True)
        table = torch.cat([hidden[:, 0], entropy], dim=1).double().numpy()
    # Kernels and ridge penalties weigh all columns alike.
    scaled: FloatP = (table - table.mean(axis=0)) / np.maximum(table.std(axis=0), 1e-9)
    return scaled
