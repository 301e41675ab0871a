"""Advantages over ragged groups, computed as the trainer's own settings say."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from neyman import formulas
from neyman.errors import ArgumentError
from neyman.step.missing import MissingReward
from neyman.strategy import Strategy
from neyman.trl._guard import LARGEST

Float = NDArray[np.float64]

# How each loss type averages: over sequences, by a constant, or over the tokens of the whole batch.
AGGREGATION = {
    "grpo": "sequence_mean",
    "sapo": "sequence_mean",
    "dr_grpo": "constant",
    "luspo": "constant",
    "dapo": "token_mean",
    "cispo": "token_mean",
    "vespo": "token_mean",
}


def aggregation(trainer: Any, strategy: Strategy, *, is_rloo: bool) -> str:
    """Return how the trainer's loss averages tokens.

    Args:
        trainer: a TRL trainer.
        strategy: decides how prompts are to weigh.
        is_rloo: RLOO averages whole sequences.

    Raises:
        ArgumentError: a loss that cannot weigh prompts as the strategy wants, or an unknown one.
    """
    loss = None if is_rloo else trainer.loss_type
    if loss == "bnpo":
        _check_bnpo(trainer, strategy)
        return "token_mean"
    if loss is not None and loss not in AGGREGATION:
        raise ArgumentError(f"loss_type must be one of {sorted([*AGGREGATION, 'bnpo'])}, got {loss!r}")
    kind = "sequence_mean" if loss is None else AGGREGATION[loss]
    if strategy.prompt_weight == "equal_tokens" and kind != "token_mean":
        averaging = sorted(name for name, how in AGGREGATION.items() if how == "token_mean")
        raise ArgumentError(
            f"prompt_weight='equal_tokens' is for losses that average over the tokens of the batch, and "
            f"{'RLOO' if loss is None else f'loss_type={loss!r}'} does not: use prompt_weight='equal', which weighs "
            f"prompts alike here, or loss_type one of {averaging}"
        )
    return kind


def _check_bnpo(trainer: Any, strategy: Strategy) -> None:
    packed_whole = trainer.args.steps_per_generation == 1 and trainer.accelerator.num_processes == 1
    unequal = strategy.prompt_weight != "by_rollouts" and strategy.name != "uniform"
    if (unequal or strategy.dead_groups != "keep") and not packed_whole:
        raise ArgumentError(
            "loss_type='bnpo' averages the tokens of each micro-batch by itself, so that a prompt's weight depends on "
            "which rows share its micro-batch, and no factor can give unequal groups equal weight or leave dead groups "
            "out; use loss_type='dapo' (the same mean over the whole batch), or the strategy options "
            "prompt_weight='by_rollouts' and dead_groups='keep'"
        )


def w_reinforce(success: Float, positive: float) -> Float:
    """Return W-REINFORCE's advantages [rows]: ``positive`` where right, -1 where wrong, 0 where missing (NaN)."""
    advantages: Float = np.where(success > 0.5, positive, -1.0)
    return np.where(np.isnan(success), 0.0, advantages)


def check_baseline(trainer: Any, strategy: Strategy, *, is_rloo: bool) -> None:
    """Refuse a baseline over rollouts that do not train where their part of the reward is not computed.

    Raises:
        ArgumentError: RLOO with a KL penalty in the reward.
    """
    if strategy.baseline == "group" and is_rloo and trainer.beta != 0.0:
        raise ArgumentError(
            f"strategy {strategy.name!r} compares rewards with all rollouts of the prompt (baseline='group'), and "
            f"RLOO's KL penalty (beta={trainer.beta}) is known of the trained rows alone: set beta=0, use GRPOTrainer, "
            "or baseline='rows'"
        )


def estimator(trainer: Any, strategy: Strategy, *, is_rloo: bool, scores_itself: bool = False) -> str:
    """Return the name of the advantages that train.

    The trainer's settings decide among the group baselines, whatever the strategy names: TRL has a trainer or a
    setting for each. REINFORCE++ has none, so that a strategy which names it is taken at its word.

    Args:
        trainer: a TRL trainer.
        strategy: may name REINFORCE++.
        is_rloo: whether it is RLOOTrainer.
        scores_itself: whether a modulation brings advantages of its own (W-REINFORCE).

    Raises:
        ArgumentError: REINFORCE++ with a trainer, a setting or a modulation that asks for other advantages.
    """
    if strategy.estimator == "reinforce++":
        _check_whitening(trainer, strategy, is_rloo=is_rloo, scores_itself=scores_itself)
        return "reinforce++"
    if is_rloo:
        return "rloo"
    return "grpo" if getattr(trainer, "scale_rewards", "group") != "none" else "dr_grpo"


def _check_whitening(trainer: Any, strategy: Strategy, *, is_rloo: bool, scores_itself: bool) -> None:
    """Refuse what contradicts rewards summed over functions, then centred and scaled over the whole batch."""
    scale = getattr(trainer, "scale_rewards", "group")
    aggregation = getattr(trainer, "multi_objective_aggregation", "sum_then_normalize")
    if is_rloo:
        problem = "RLOOTrainer compares each rollout with the others of its prompt: use GRPOTrainer"
    elif scores_itself:
        problem = "modulation=WReinforce() brings advantages of its own: leave the modulation out"
    elif scale != "group":
        problem = f"scale_rewards={scale!r} asks for GRPO's centred rewards scaled otherwise: leave scale_rewards out"
    elif aggregation != "sum_then_normalize":
        problem = f"multi_objective_aggregation={aggregation!r} normalises each function in its groups: leave it out"
    else:
        return
    raise ArgumentError(
        f"strategy {strategy.name!r} asks for REINFORCE++ (estimator='reinforce++'), whose advantages are centred and "
        f"scaled over the whole batch, but {problem}, or leave estimator out of the strategy"
    )


def total_reward(trainer: Any, matrix: Float) -> Float:
    """Return each row's weighted sum over reward functions, NaN where none gave a number."""
    weights = trainer.reward_weights.to("cpu").double().numpy()
    total = np.nansum(matrix * weights, axis=1)
    total[np.isnan(matrix).all(axis=1)] = np.nan
    clip = getattr(trainer, "reward_clip_range", None)
    clipped: Float = np.clip(total, *clip) if clip else total
    return clipped


def reward_of(trainer: Any, rewards: Sequence[float]) -> float | MissingReward | None:
    """Return what a row's rewards come to, as the trainer's advantages take it (without RLOO's KL penalty).

    Args:
        trainer: for the weights, and the range that RLOO clips to.
        rewards: one for each reward function, NaN where it gave none.

    Returns:
        The number; None where no function gave one; what is wrong where TRL cannot compute with it.
    """
    if (too_large := _overflow(trainer, rewards)) is not None:
        return too_large
    total = float(total_reward(trainer, np.array([rewards], dtype=np.float64))[0])
    return None if math.isnan(total) else total


def _overflow(trainer: Any, rewards: Sequence[float]) -> MissingReward | None:
    """Return what is wrong with a row's weighted sum that TRL, in float32, cannot hold or take deviations of.

    What a reward function returns is bounded (`Guard`); what a reward model returns, and the weights, are not.

    Args:
        trainer: for the weights.
        rewards: one for each reward function, NaN where it gave none.
    """
    weights = trainer.reward_weights.to("cpu", torch.float32)
    total = float((torch.tensor(rewards, dtype=torch.float32) * weights).nansum())
    if abs(total) <= LARGEST:  # NaN, the sum of two infinities, is not
        return None
    return MissingReward(
        f"the weighted sum of rewards is {total:g}, which is not finite"
        if not math.isfinite(total)
        else f"the weighted sum of rewards is {total:g}, beyond {LARGEST:g}, of which float32 keeps no deviations"
    )


def _batch_std(values: Float) -> float:
    valid = values[~np.isnan(values)]
    return float(valid.std(ddof=1)) if len(valid) > 1 else 0.0


def _standardised(values: Float) -> Float:
    """Centre and scale over the batch, missing entries to 0."""
    if np.isnan(values).all():
        return np.zeros_like(values)
    standard: Float = np.nan_to_num((values - np.nanmean(values)) / (_batch_std(values) + 1e-4), nan=0.0)
    return standard


def grpo_advantages(trainer: Any, matrix: Float, groups: NDArray[np.int64]) -> Float:
    """Return GRPO's advantages [rows] from the reward matrix [rows, functions]; NaN rows are missing."""
    if getattr(trainer, "multi_objective_aggregation", "sum_then_normalize") == "normalize_then_sum":
        weights = trainer.reward_weights.to("cpu").double().numpy()
        parts = np.stack([formulas.group_advantages(column, groups) for column in matrix.T], axis=1)
        total = np.nansum(parts * weights, axis=1)
        total[np.isnan(matrix).all(axis=1)] = np.nan
        return _standardised(total)
    rewards = total_reward(trainer, matrix)
    scale = getattr(trainer, "scale_rewards", "group")
    if scale == "group":
        return formulas.group_advantages(rewards, groups)
    centred = formulas.group_advantages(rewards, groups, estimator="dr_grpo")
    return centred if scale == "none" else centred / (_batch_std(rewards) + 1e-4)


def rloo_advantages(trainer: Any, rewards: Float, groups: NDArray[np.int64]) -> Float:
    """Return RLOO's advantages [rows] from the final rewards, the KL penalty included; NaN rows are missing."""
    advantages = formulas.group_advantages(rewards, groups, estimator="rloo")
    if not trainer.normalize_advantages:
        return advantages
    scorable = np.where(np.isnan(rewards), np.nan, advantages)
    return _standardised(scorable)
