"""Discounted successes and failures per prompt: the belief that needs no features."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, final

import numpy as np

from neyman._checks import FloatP, IntP, prompt_ids, real
from neyman.beliefs._families import BetaFamily
from neyman.beliefs._state import check_number
from neyman.beliefs._stored import StoredBelief, WithoutFeatures
from neyman.beliefs._table import PromptTable
from neyman.errors import ArgumentError, StateError
from neyman.randomness import PromptId

_COLUMNS: Final[Mapping[str, Any]] = {"successes": np.float64, "trials": np.float64, "seen": np.int64}


@final
class Counts(BetaFamily, WithoutFeatures, StoredBelief):
    """A discounted Beta-Bernoulli per prompt.

    ``p | data ~ Beta(a + S, b + N - S)`` with the evidence ``S <- discount S + s``, ``N <- discount N + n``
    at each visit, both times ``fade`` per training step in between. The prior is either fixed, or has the
    pool's running mean and ``strength`` pseudo-rollouts.

    All updates between two calls of ``advance`` are one visit: the discount is taken once.

    Args:
        discount: share of a prompt's evidence that its next visit leaves, in [0, 1]; 1 keeps everything.
        fade: share of all evidence that a training step leaves, in [0, 1], for visited prompts or not; 0 starts
            every step afresh, as SARA does.
        prior: ``"pool"``, or Beta parameters ``(a, b)``, both positive.
        strength: pseudo-rollouts of the pool prior, > 0; unused with a fixed prior.

    Guarantee: with ``discount = fade = 1`` and a fixed prior this is the exact posterior of a constant success
    rate. Voided by drift, which the discount only approximates.
    Cost: O(ids) a call, ``advance`` O(1), three numbers per prompt.
    Source: discounted counts are folklore; benchmarks/RESULTS.md compares beliefs on a real trace.

    >>> belief = Counts(prior=(1.0, 1.0))
    >>> belief.update(["easy", "hard"], [7, 0], [8, 8])
    >>> belief.predict(["easy", "hard", "new"])[0].round(3).tolist()
    [0.8, 0.1, 0.5]
    """

    KIND = "counts"
    KEYS = ("pool_successes", "pool_trials", "ids", *_COLUMNS)

    def __init__(
        self,
        *,
        discount: float = 0.9,
        fade: float = 0.999,
        prior: str | tuple[float, float] = "pool",
        strength: float = 2.0,
    ) -> None:
        self._prior = _check_prior(prior)
        self._config = {
            "discount": real("discount", discount, low=0.0, high=1.0),
            "fade": real("fade", fade, low=0.0, high=1.0),
            "prior": "pool" if self._prior is None else list(self._prior),
            "strength": real("strength", strength, low=0.0, open_low=True),
        }
        self._pool_successes = 0.0
        self._pool_trials = 0.0
        self._table = PromptTable(_COLUMNS)

    def prior(self) -> tuple[float, float]:
        """Return the Beta parameters of a prompt that was never seen."""
        if self._prior is not None:
            return self._prior
        # One pseudo-rollout at 1/2 keeps the mean inside (0, 1) when all rollouts so far succeeded, or all failed.
        mean = (self._pool_successes + 0.5) / (self._pool_trials + 1.0)
        strength = self._config["strength"]
        return strength * mean, strength * (1.0 - mean)

    def evidence(self, ids: Sequence[PromptId]) -> tuple[FloatP, FloatP]:
        """Return the discounted successes and trials per prompt, without the prior; 0 where never seen."""
        rows = self._table.find(prompt_ids("ids", ids))
        return self._table.evidence(rows, self._config["fade"], self._clock)

    def beta_parameters(self, ids: Sequence[PromptId]) -> tuple[FloatP, FloatP]:
        """Return the exact posterior Beta(a, b) per prompt."""
        successes, trials = self.evidence(ids)
        a, b = self.prior()
        # Discounting rounds both sums, so failures may come out below zero by an ulp.
        return a + successes, b + np.maximum(trials - successes, 0.0)

    def _learn(self, names: list[PromptId], s: IntP, n: IntP) -> None:
        self._table.add_discounted(self._table.add(names), s, n, self._config, self._clock)
        self._pool_successes += float(s.sum())
        self._pool_trials += float(n.sum())

    def _parts(self) -> dict[str, Any]:
        pool = {"pool_successes": self._pool_successes, "pool_trials": self._pool_trials}
        return {**pool, **self._table.state()}

    def _read(self, state: Mapping[str, Any], clock: int) -> Any:
        pool = [check_number(name, state[name], low=0.0) for name in ("pool_successes", "pool_trials")]
        if pool[0] > pool[1] * (1.0 + 1e-9):
            raise StateError(f"the saved counts have {pool[0]:g} successes of {pool[1]:g} trials in the pool")
        table = PromptTable(_COLUMNS)
        table.load(state)
        table.check_visits(self.KIND, clock)
        return table, pool

    def _adopt(self, parts: Any) -> None:
        self._table, (self._pool_successes, self._pool_trials) = parts


def _check_prior(prior: str | tuple[float, float]) -> tuple[float, float] | None:
    if prior == "pool":
        return None
    if isinstance(prior, str) or len(prior) != 2:
        raise ArgumentError(f'prior must be "pool" or a pair (a, b), got {prior!r}')
    a, b = (real("prior", value, low=0.0, open_low=True) for value in prior)
    return a, b
