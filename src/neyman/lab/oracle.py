"""Beliefs with exact success rates: of every prompt at any time, or of those that were just rolled out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, final

import numpy as np
import torch
from numpy.typing import ArrayLike

from neyman._checks import FloatP, prompt_ids, sizes_per_prompt
from neyman.beliefs import Belief, PromptId, check_state, checked_counts
from neyman.lab.policy import Policy
from neyman.lab.task import Prompts

_VERSION = 1


@final
class OracleBelief(Belief):
    """Exact success rates, without variance, from a function that is called anew each time.

    Args:
        rates: returns the current success rate of each id, float64 [ids].

    Guarantee: follows the policy at once, learns nothing from outcomes, and holds no state. Copies share
    ``rates``, as there is one policy.

    Example:
        >>> belief = OracleBelief(lambda ids: np.array([0.25] * len(ids)))
        >>> belief.predict(["a"])
        (array([0.25]), array([0.]))
    """

    def __init__(self, rates: Callable[[Sequence[PromptId]], FloatP]) -> None:
        self._rates = rates

    def __deepcopy__(self, memo: dict[int, Any]) -> OracleBelief:
        """Return itself: a copied policy would stand still."""
        return self

    def register(self, ids: Sequence[PromptId], features: ArrayLike | None = None) -> None:  # noqa: ARG002
        """Check the ids; nothing else is needed."""
        prompt_ids("ids", ids)

    def predict(self, ids: Sequence[PromptId]) -> tuple[FloatP, FloatP]:
        """Return the success rates, and zeros."""
        rates = self._rates(prompt_ids("ids", ids))
        return rates, np.zeros(len(rates))

    def expected_variance(self, ids: Sequence[PromptId]) -> FloatP:
        """Return p(1-p)."""
        rates, _ = self.predict(ids)
        return rates * (1.0 - rates)

    def mixed_probability(self, ids: Sequence[PromptId], group_size: ArrayLike) -> FloatP:
        """Return 1 - p^n - (1-p)^n."""
        rates, _ = self.predict(ids)
        sizes = sizes_per_prompt("group_size", group_size, len(rates))
        return np.clip(1.0 - rates**sizes - (1.0 - rates) ** sizes, 0.0, 1.0)

    def sample(self, ids: Sequence[PromptId], rng: np.random.Generator) -> FloatP:  # noqa: ARG002
        """Return the success rates: there is nothing to draw."""
        return self.predict(ids)[0]

    def update(self, ids: Sequence[PromptId], successes: ArrayLike, trials: ArrayLike) -> None:
        """Learn nothing."""

    def advance(self, steps: int = 1) -> None:
        """Forget nothing."""

    def state_dict(self) -> dict[str, Any]:
        """Return the kind alone."""
        return {"kind": "oracle", "version": _VERSION, "config": {}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Accept a state of the same kind.

        Raises:
            StateError: another kind or version.
        """
        check_state(state, kind="oracle", version=_VERSION, config={}, keys=())


def _delegated(name: str) -> Any:
    """Return the method of a wrapper that calls the wrapped belief's."""
    return lambda self, *args, **kwargs: getattr(self._belief, name)(*args, **kwargs)


@final
class ToldBelief(Belief):
    """A belief that learns the exact success rate of each prompt it gets outcomes of, in place of the outcomes.

    Its error on a prompt is the change of the policy since that prompt's last rollout, so it separates the two errors
    of a predictor: the noise of few rollouts, and their age.

    Args:
        belief: learns.
        oracle: has the exact rates.

    Example:
        >>> from neyman.beliefs import Counts
        >>> belief = ToldBelief(Counts(), OracleBelief(lambda ids: np.array([0.25] * len(ids))))
        >>> belief.update(["a"], [1], [1])
        >>> belief.predict(["a"])[0].round(2)
        array([0.25])
    """

    SURE = 256  # rollouts that an exact rate counts for

    def __init__(self, belief: Belief, oracle: Belief) -> None:
        self._belief, self._oracle = belief, oracle

    # All but `update` is the learner's own.
    register, predict, expected_variance, mixed_probability, sample, advance, state_dict, load_state_dict = map(
        _delegated,
        (
            "register", "predict", "expected_variance", "mixed_probability", "sample", "advance", "state_dict",
            "load_state_dict",
        ),
    )  # fmt: skip

    def update(self, ids: Sequence[PromptId], successes: ArrayLike, trials: ArrayLike) -> None:
        """Learn the exact rates of the prompts that have trials."""
        names, _, n = checked_counts(ids, successes, trials)  # the successes are checked, and replaced
        if names:
            rates, _ = self._oracle.predict(names)
            self._belief.update(
                names, np.rint(self.SURE * rates).astype(np.int64), np.full_like(n, self.SURE)
            )


class ExactRates:
    """Success rates of the current policy by prompt id, each computed once per policy."""

    def __init__(self, policy: Policy, prompts: Prompts) -> None:
        self._policy, self._prompts = policy, prompts
        self.forget()

    def forget(self) -> None:
        """Drop the computed rates: the policy has changed."""
        # Rules ask for the same prompts several times a step, and a forward pass is most of its cost.
        self._known: FloatP = np.full(len(self._prompts), np.nan)

    def __call__(self, ids: Sequence[PromptId]) -> FloatP:
        """Return the success rate of each id, float64 [ids]."""
        rows = np.array(ids, dtype=np.int64)
        missing = np.unique(rows[np.isnan(self._known[rows])])
        if len(missing):
            at = torch.from_numpy(missing)
            self._known[missing] = self._policy.success_rates(
                self._prompts.tokens[at], self._prompts.answers[at]
            )
        return self._known[rows]
