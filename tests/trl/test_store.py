"""The host's rollout store: what is packed comes back, as tensors and JSON, and nothing else."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch
from safetensors.torch import load, save

from neyman.trl._store import Rollout, RolloutStore


def rollout(rollout_id: int, **fields) -> Rollout:
    defaults = {"prompt_id": "p", "prompt_tokens": [1, 2], "completion_ids": [3, 4, 5], "logprobs": None,
                "extra": {}, "logged": {}, "rewards": [1.0, float("nan")], "n_tokens": 3}  # fmt: skip
    return Rollout(rollout_id=rollout_id, **{**defaults, **fields})


def test_packed_rollouts_survive_safetensors_and_json():
    store = RolloutStore()
    store.add(rollout(7, prompt_id=3, behaviour=[-0.1, -0.2, -0.3], logged={"length": 3}))
    store.add(rollout(9, logprobs=[-0.5, None, -0.7], completion_ids=[]))
    tensors, rest = store.pack()
    again = RolloutStore()
    again.unpack(load(save(tensors)), json.loads(json.dumps(rest, allow_nan=False)))
    assert [held.rollout_id for held in again] == [7, 9]
    assert again[7].behaviour == [-0.1, -0.2, -0.3]
    assert (again[7].prompt_id, again[7].logged, again[7].logprobs) == (3, {"length": 3}, None)
    assert again[7].rewards[0] == 1.0
    assert math.isnan(again[7].rewards[1])
    assert again[9].completion_ids == []
    assert math.isnan(again[9].logprobs[1])


def test_tensors_and_arrays_of_rollout_functions_come_back_as_lists():
    store = RolloutStore()
    store.add(rollout(1, extra={"states": torch.tensor([1, 2]), "score": np.float64(0.5)}))
    again = RolloutStore()
    again.unpack(*store.pack())
    assert again[1].extra == {"states": [1, 2], "score": 0.5}


def test_what_cannot_be_saved_is_named():
    store = RolloutStore()
    store.add(rollout(1, extra={"environment": object()}))
    with pytest.raises(TypeError, match="returned object for a rollout that is carried over"):
        store.pack()


def test_only_what_later_steps_need_is_kept():
    store = RolloutStore()
    for i in range(5):
        store.add(rollout(i))
    store.keep([1, 3])
    assert [held.rollout_id for held in store] == [1, 3]
    assert len(store) == 2
