"""A rollout's result as the controller takes it: with a reward and a verdict, or missing with its cause."""

from __future__ import annotations

import math

from neyman.controller import MissingReward, Outcome, PromptId


def outcome(
    rollout_id: int,
    prompt_id: PromptId,
    reward: float,
    success: bool | MissingReward | None,
    n_tokens: int,
) -> Outcome:
    """Return the outcome of a rollout that was generated.

    A result is missing where its reward or its verdict is: trained without a verdict, it would count as a failure in
    the belief.

    Args:
        rollout_id: the rollout.
        prompt_id: its prompt.
        reward: the number that trains; a `MissingReward` has the cause where there is none.
        success: the verified outcome; None where the reward is missing, and with it all that could be judged.
        n_tokens: completion tokens.
    """
    if isinstance(success, MissingReward):  # first, as it has the cause where a fault took the reward too
        reward = success
    elif not isinstance(reward, MissingReward) and not math.isfinite(reward):
        reward = MissingReward(f"its reward is {reward:g}")
    is_missing = isinstance(reward, MissingReward)
    return Outcome(
        rollout_id=rollout_id,
        prompt_id=prompt_id,
        reward=reward,
        success=None if is_missing or success is None else bool(success),
        n_tokens=n_tokens,
    )
