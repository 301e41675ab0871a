"""The statements of a belief's author, and how the checks drive a belief."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from neyman._checks import FloatP
from neyman.beliefs import Belief, PromptId
from neyman.testing._contract import Suite


class BeliefHooks(Suite):
    """The attributes and hooks of `BeliefSuite`, documented there."""

    __test__ = False

    ids: Sequence[PromptId] = ("a", "b", 1, "1", 2, "c", "d", -7)
    feature_columns: int = 5
    convinced: float = 0.9
    trust: float = 1e-4
    portion_tolerance: float = 1e-9
    order_tolerance: float = 1e-9
    relearn_within: int = 64
    absorbing: str | None = None
    never_forgets: str | None = None

    def make(self) -> Belief:
        """Return a fresh belief, with the same settings at each call."""
        belief: Belief = super().make()
        return belief

    def strangers(self) -> Sequence[Belief]:
        """Return beliefs of another kind or with other settings, whose saved states must be refused."""
        return ()

    def ready(self) -> Belief:
        """Return a fresh belief that knows the prompts ``ids`` and, where it takes them, their features."""
        belief = self.make()
        columns = self.feature_columns
        features = self.rng(3).normal(size=(len(self.ids), columns)).astype(np.float32) if columns else None
        belief.register(list(self.ids), features)
        return belief

    def drive(self, belief: Belief, key: int, steps: int) -> FloatP:
        """Lead a belief through random visits and return all its predictions and draws on the way."""
        rng, pool = self.rng(key), list(self.ids)
        found: list[FloatP] = []
        for _ in range(steps):
            chosen = [pool[k] for k in rng.choice(len(pool), min(4, len(pool)), replace=False)]
            trials = rng.integers(0, 9, len(chosen))
            belief.update(chosen, rng.binomial(trials, 0.4), trials)
            found += [*belief.predict([*pool, "unseen"]), belief.sample(pool, rng)]
            found.append(belief.mixed_probability(pool, 8))
            belief.advance(int(rng.integers(0, 4)))
        return np.concatenate(found)
