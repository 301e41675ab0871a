"""Groups with signal in the place of groups without: POLARIS' replacement, as weights instead of copied rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from neyman.randomness import keyed_rng
from neyman.step._group import Group

if TYPE_CHECKING:
    from neyman.step._engine import Engine


def group_copies(engine: Engine, trained: Sequence[Group]) -> NDArray[np.int64]:
    """Return how often each group of the batch counts, int64 [groups].

    A group without signal counts 0 times and a group with signal, drawn at random, once more in its place: without
    replacement where there are enough, else with. Twice the weight is the gradient of two copies, under every loss
    that `neyman.formulas.prompt_weights` knows, and no rollout trains twice. Rows that the host protects train
    without signal, so their groups stay. Unless more than ``replace_above`` of the groups carry signal, all count
    once, as they do under the other ways. Groups without any valid result are in no count.

    Args:
        engine: the step; the draw is keyed by its seed and number, and by the groups handed out before.
        trained: the groups of the batch.
    """
    copies = np.ones(len(trained), dtype=np.int64)
    strategy = engine.strategy
    if strategy.dead_groups != "replace":
        return copies
    good = [place for place, group in enumerate(trained) if group.is_mixed]
    judged = [place for place, group in enumerate(trained) if group.outcomes()[1]]
    dead = [place for place in judged if not trained[place].is_trainable]
    if not dead or len(good) <= strategy.replace_above * len(judged):
        return copies
    rng = keyed_rng(engine.seed, engine.step, "replace", len(engine.drained))
    drawn = rng.choice(len(good), size=len(dead), replace=len(dead) > len(good))
    copies[dead] = 0
    np.add.at(copies, np.array(good)[drawn], 1)
    return copies
