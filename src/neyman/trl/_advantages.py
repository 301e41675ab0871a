"""Advantages over ragged groups, as the trainer's own settings define them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from neyman import formulas
from neyman.controller import Batch, MissingReward, advantages
from neyman.errors import ArgumentError
from neyman.strategy import Strategy
from neyman.trl._guard import LARGEST
from neyman.trl._host import is_rloo

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


def aggregation_of(trainer: Any, strategy: Strategy) -> str:
    """Return how the trainer's loss averages tokens; RLOO averages whole sequences.

    Raises:
        ArgumentError: a loss that cannot weigh prompts as the strategy wants, or an unknown one.
    """
    if is_rloo(trainer):
        return "sequence_mean"
    loss = trainer.loss_type
    if loss == "bnpo":
        _check_bnpo(trainer, strategy)
        return "token_mean"
    if loss not in AGGREGATION:
        raise ArgumentError(f"loss_type must be one of {sorted([*AGGREGATION, 'bnpo'])}, got {loss!r}")
    return AGGREGATION[loss]


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


def baseline_problem(trainer: Any) -> str | None:
    """Return why a baseline cannot hold rollouts that do not train, with the way out; None where it can."""
    if not is_rloo(trainer) or trainer.beta == 0.0:
        return None
    return f"RLOO's KL penalty (beta={trainer.beta}) is known of the trained rows alone: set beta=0, use GRPOTrainer"


def estimator_of(trainer: Any, strategy: Strategy, *, scores_itself: bool) -> str:
    """Return the name of the advantages that train.

    The trainer's settings decide among the group baselines, whatever the strategy names: TRL has a trainer or a
    setting for each. REINFORCE++ has none, so that a strategy which names it is taken at its word.
    A modulation may bring advantages of its own, too (``scores_itself``: W-REINFORCE).

    Raises:
        ArgumentError: REINFORCE++ with a trainer, a setting or a modulation that asks for other advantages.
    """
    if strategy.estimator == "reinforce++":
        _check_whitening(trainer, strategy, scores_itself=scores_itself)
        return "reinforce++"
    if is_rloo(trainer):
        return "rloo"
    return "dr_grpo" if _scale(trainer) == "none" else "grpo"


def _scale(trainer: Any) -> str:
    return getattr(trainer, "scale_rewards", "group")


def _order(trainer: Any) -> str:
    return getattr(trainer, "multi_objective_aggregation", "sum_then_normalize")  # as TRL before 1.10 does


def _check_whitening(trainer: Any, strategy: Strategy, *, scores_itself: bool) -> None:
    """Refuse settings that contradict rewards summed over functions, then centred and scaled over the whole batch."""
    scale, order = _scale(trainer), _order(trainer)
    if is_rloo(trainer):
        problem = "RLOOTrainer compares each rollout with the others of its prompt: use GRPOTrainer"
    elif scores_itself:
        problem = "modulation=WReinforce() brings advantages of its own: leave the modulation out"
    elif scale != "group":
        problem = f"scale_rewards={scale!r} asks for GRPO's centred rewards scaled otherwise: leave scale_rewards out"
    elif order != "sum_then_normalize":
        problem = (
            f"multi_objective_aggregation={order!r} normalises each function in its groups: leave it out"
        )
    else:
        return
    raise ArgumentError(
        f"strategy {strategy.name!r} asks for REINFORCE++ (estimator='reinforce++'), whose advantages are centred and "
        f"scaled over the whole batch, but {problem}, or leave estimator out of the strategy"
    )


def total_reward(trainer: Any, matrix: Float) -> Float:
    """Return each row's weighted sum over reward functions, clipped as RLOO does, NaN where none gave a number."""
    total = _weighted_sum(trainer, matrix, matrix)
    clip = getattr(trainer, "reward_clip_range", None)
    return np.asarray(np.clip(total, *clip)) if clip else total


def _weighted_sum(trainer: Any, values: Float, matrix: Float) -> Float:
    """Return the weighted sum of each row's values, NaN where the matrix of rewards has none for the row."""
    weights = trainer.reward_weights.to("cpu").double().numpy()
    total: Float = np.nansum(values * weights, axis=1)
    total[np.isnan(matrix).all(axis=1)] = np.nan
    return total


def reward_of(trainer: Any, rewards: Sequence[float]) -> float:
    """Return the weighted sum of a row's rewards, NaN where a function gave none, without RLOO's KL penalty.

    It is a `MissingReward` where no function gave one, or where TRL cannot compute with it.
    """
    if (too_large := _overflow(trainer, rewards)) is not None:
        return too_large
    total = float(total_reward(trainer, np.array([rewards], dtype=np.float64))[0])
    return MissingReward("every reward function returned None") if math.isnan(total) else total


def _overflow(trainer: Any, rewards: Sequence[float]) -> MissingReward | None:
    """Return the fault of a row whose weighted sum TRL, in float32, cannot hold or take deviations of.

    Values of reward functions are bounded (`Guard`); those of reward models, and the weights, are not.
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


def row_advantages(
    trainer: Any, batch: Batch, matrix: Float, rewards: Float, spares: Float, *, positive: float | None
) -> Float:
    """Return the advantages [all ranks' rows] over ragged groups: the trainer's own, REINFORCE++'s or W-REINFORCE's.

    Rollouts that do not train but are in their group's baseline count in every statistic, those over the batch
    included, which is why they stand here beside the rows.

    Args:
        trainer: for its settings.
        batch: the step's.
        matrix: rewards [rows, functions], NaN in rows that are missing.
        rewards: final rewards [rows], RLOO's KL penalty included.
        spares: rewards [spares, functions] of the rollouts that do not train.
        positive: W-REINFORCE's advantage of a right answer, where a wrong one has -1; None for the other methods.
    """
    if positive is not None:
        return np.where(np.isnan(batch.success), 0.0, np.where(batch.success > 0.5, positive, -1.0))
    found_of = partial(advantages, batch, with_spares=True)
    sums, is_own = total_reward(trainer, spares), not is_rloo(trainer) and batch.estimator != "reinforce++"
    if is_own and _order(trainer) == "normalize_then_sum":
        columns = zip(matrix.T, spares.T, strict=True)
        parts = [found_of(column, spare_rewards=spare, estimator="grpo") for column, spare in columns]
        matrix = np.concatenate([matrix, spares])
        found = _standardised(_weighted_sum(trainer, np.stack(parts, axis=1), matrix))
    elif is_own and _scale(trainer) == "batch":
        found = found_of(rewards, spare_rewards=sums, estimator="dr_grpo")
        found = found / (_batch_std(np.concatenate([rewards, sums])) + 1e-4)
    else:
        found = found_of(rewards, spare_rewards=sums)
        if is_rloo(trainer) and trainer.normalize_advantages:
            found = _standardised(np.where(np.isnan(np.concatenate([rewards, sums])), np.nan, found))
    return found[: len(batch)]


def dead_share(trainer: Any, batch: Batch, rewards: Float) -> float | None:
    """Return the share of rows with a reward in zero-variance groups; None where TRL's own share is of the batch."""
    if _order(trainer) != "sum_then_normalize" or _scale(trainer) == "batch":
        return None
    valid = ~np.isnan(rewards)
    if not valid.any():
        return math.nan
    codes, _ = formulas.group_index(batch.groups[valid])
    return float(1.0 - formulas.effective_groups(rewards[valid], codes)[codes].mean())
