"""Discounted successes and failures per prompt: the belief that needs no features."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, final

import numpy as np
from numpy.typing import ArrayLike

from neyman._checks import FloatP, IntP, integer, prompt_ids, real
from neyman.beliefs._families import BetaFamily
from neyman.beliefs._state import check_clock, check_number, check_state, pack_array
from neyman.beliefs._table import PromptTable, checked_counts
from neyman.errors import ArgumentError, StateError
from neyman.randomness import PromptId

_VERSION = 1
_KEYS = ("clock", "pool_successes", "pool_trials", "ids", "successes", "trials", "seen")


@final
class Counts(BetaFamily):
    """A discounted Beta-Bernoulli per prompt.

    ``p | data ~ Beta(a + S, b + N - S)`` with the evidence ``S <- discount S + s``, ``N <- discount N + n``
    at each visit, both times ``fade`` per training step in between. The prior is either fixed, or has the
    pool's running mean and ``strength`` pseudo-rollouts.

    All updates between two calls of ``advance`` are one visit: the discount is taken once.

    Args:
        discount: what an earlier visit's evidence keeps at the next visit, in [0, 1]; 1 keeps everything.
        fade: what all evidence keeps per training step, in [0, 1], observed or not; 0 is a belief per
            step, as SARA has it.
        prior: ``"pool"``, or Beta parameters ``(a, b)``, both positive.
        strength: pseudo-rollouts of the pool prior, > 0; unused with a fixed prior.

    Guarantee: with ``discount = fade = 1`` and a fixed prior this is the exact posterior of a success rate
    that never moves. Voided by drift, which the discount only approximates.

    Cost: O(ids) a call, ``advance`` O(1), three numbers per prompt.

    Source: discounted counts are folklore; figures on a real trace in the documentation of beliefs.

    Example:
        >>> belief = Counts(prior=(1.0, 1.0))
        >>> belief.update(["easy", "hard"], [7, 0], [8, 8])
        >>> belief.predict(["easy", "hard", "new"])[0].round(3).tolist()
        [0.8, 0.1, 0.5]
    """

    uses_features = False

    def __init__(
        self,
        *,
        discount: float = 0.9,
        fade: float = 0.999,
        prior: str | tuple[float, float] = "pool",
        strength: float = 2.0,
    ) -> None:
        self._discount = real("discount", discount, low=0.0, high=1.0)
        self._fade = real("fade", fade, low=0.0, high=1.0)
        self._strength = real("strength", strength, low=0.0, open_low=True)
        self._prior = _check_prior(prior)
        self._clock = 0
        self._pool_successes = 0.0
        self._pool_trials = 0.0
        self._table = _table()

    def register(self, ids: Sequence[PromptId], features: ArrayLike | None = None) -> None:  # noqa: ARG002 (the protocol's signature)
        """Check the ids; counts need neither features nor a list of prompts."""
        prompt_ids("ids", ids)

    def prior(self) -> tuple[float, float]:
        """Return the Beta parameters of a prompt that was never seen."""
        if self._prior is not None:
            return self._prior
        # One pseudo-rollout at 1/2 keeps the mean inside (0, 1) when all that was seen succeeded or failed.
        mean = (self._pool_successes + 0.5) / (self._pool_trials + 1.0)
        return self._strength * mean, self._strength * (1.0 - mean)

    def evidence(self, ids: Sequence[PromptId]) -> tuple[FloatP, FloatP]:
        """Return the discounted successes and trials per prompt, without the prior; 0 where never seen."""
        rows = self._table.find(prompt_ids("ids", ids))
        keep = self._kept(rows)
        return self._table.gather("successes", rows) * keep, self._table.gather("trials", rows) * keep

    def beta_parameters(self, ids: Sequence[PromptId]) -> tuple[FloatP, FloatP]:
        """Return the exact posterior Beta(a, b) per prompt."""
        successes, trials = self.evidence(ids)
        a, b = self.prior()
        return a + successes, b + np.maximum(trials - successes, 0.0)

    def update(self, ids: Sequence[PromptId], successes: ArrayLike, trials: ArrayLike) -> None:
        """Take in verified counts; zero trials are ignored, an id given twice counts as its sum.

        Raises:
            ArgumentError: unequal lengths, fractions, negatives, or more successes than trials.
        """
        names, s, n = checked_counts(ids, successes, trials)
        if not names:
            return
        rows = self._table.add(names)
        seen = self._table.column("seen")
        # A row made just now has no evidence, so what is kept of it does not matter.
        keep = self._kept(rows) * np.where(seen[rows] < self._clock, self._discount, 1.0)
        for name, fresh in (("successes", s), ("trials", n)):
            column = self._table.column(name)
            column[rows] = column[rows] * keep + fresh
        seen[rows] = self._clock
        self._pool_successes += float(s.sum())
        self._pool_trials += float(n.sum())

    def advance(self, steps: int = 1) -> None:
        """Let ``steps`` training steps pass."""
        self._clock += integer("steps", steps, low=0)

    def state_dict(self) -> dict[str, Any]:
        """Return the whole state, JSON-safe."""
        return {
            "kind": "counts",
            "version": _VERSION,
            "config": self._config(),
            "clock": self._clock,
            "pool_successes": self._pool_successes,
            "pool_trials": self._pool_trials,
            "ids": self._table.ids,
            **{name: pack_array(self._table.column(name)) for name in ("successes", "trials", "seen")},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Replace the state by a saved one.

        Raises:
            StateError: another kind, version, configuration or key set, or damaged arrays.
        """
        check_state(state, kind="counts", version=_VERSION, config=self._config(), keys=_KEYS)
        clock = check_clock(state["clock"])
        pool = [check_number(name, state[name], low=0.0) for name in ("pool_successes", "pool_trials")]
        if pool[0] > pool[1] * (1.0 + 1e-9):
            raise StateError(f"the saved counts have {pool[0]:g} successes of {pool[1]:g} trials in the pool")
        table = _table()
        table.load(state["ids"], state)
        successes, trials = table.column("successes"), table.column("trials")
        if (successes < 0.0).any() or (successes > trials * (1.0 + 1e-9)).any():
            raise StateError("the saved counts are outside 0 <= successes <= trials")
        if (table.column("seen") > clock).any():
            raise StateError("the saved counts have a visit in the future")
        self._table = table
        self._clock = clock
        self._pool_successes, self._pool_trials = pool

    def _config(self) -> dict[str, Any]:
        prior = "pool" if self._prior is None else list(self._prior)
        return {"discount": self._discount, "fade": self._fade, "prior": prior, "strength": self._strength}

    def _kept(self, rows: IntP) -> FloatP:
        """Return what the passing of time has left of each row's evidence."""
        idle = self._clock - self._table.gather("seen", rows, missing=float(self._clock))
        return np.asarray(self._fade**idle, dtype=np.float64)


def _table() -> PromptTable:
    return PromptTable({"successes": np.float64, "trials": np.float64, "seen": np.int64})


def _check_prior(prior: str | tuple[float, float]) -> tuple[float, float] | None:
    if isinstance(prior, str):
        if prior != "pool":
            raise ArgumentError(f'prior must be "pool" or a pair (a, b), got {prior!r}')
        return None
    if len(prior) != 2:
        raise ArgumentError(f'prior must be "pool" or a pair (a, b), got {prior!r}')
    a, b = (real("prior", value, low=0.0, open_low=True) for value in prior)
    return a, b
