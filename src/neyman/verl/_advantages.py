"""verl's advantages over ragged groups: its own estimators, times the factors that weigh prompts."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from neyman import formulas
from neyman.controller import Batch, advantages
from neyman.errors import ArgumentError
from neyman.hosts.weights import row_weights
from neyman.strategy import Strategy

Float = NDArray[np.float64]
Int = NDArray[np.int64]
Bool = NDArray[np.bool_]

# Which of neyman's advantages, whose variance allocations are about, each of verl's estimators is. The others (gae with
# a critic, one of the user's) are taken for RLOO's, whose variance falls as 1 / (n - 1).
_ESTIMATORS = {
    "grpo": "grpo",
    "grpo_vectorized": "grpo",
    "rloo": "rloo",
    "rloo_vectorized": "rloo",
    "reinforce_plus_plus": "reinforce++",
    "reinforce_plus_plus_baseline": "dr_grpo",
}
# Those that compare a rollout with others of its prompt: verl leaves a group of one its raw reward. One of them centres
# the whole batch after that, which moves groups of equal rewards too.
_BY_GROUP = {*_ESTIMATORS, "opo", "gpg"} - {"reinforce_plus_plus"}
_CENTRED = "reinforce_plus_plus_baseline"
# How each of verl's losses averages.
_AGGREGATION = {
    "token-mean": "token_mean",
    "seq-mean-token-mean": "sequence_mean",
    "seq-mean-token-sum": "sequence_mean",
    "seq-mean-token-sum-norm": "constant",
}
_EPS = 1e-6  # verl's, beside the standard deviation


def estimator_of(config: Any) -> str:
    """Return the name of the advantage that verl's configuration asks for, as strategies know it."""
    name = str(config.algorithm.adv_estimator)
    if name == "grpo" and not config.algorithm.get("norm_adv_by_std_in_grpo", True):  # of this one alone
        return "dr_grpo"
    return _ESTIMATORS.get(name, "rloo")


def aggregation_of(config: Any) -> str:
    """Return how verl's loss averages tokens.

    Raises:
        ArgumentError: a mode whose averaging is not known.
    """
    mode = str(config.actor_rollout_ref.actor.loss_agg_mode)
    if mode not in _AGGREGATION:
        raise ArgumentError(
            f"actor_rollout_ref.actor.loss_agg_mode must be one of {', '.join(_AGGREGATION)} under neyman, got {mode!r}"
        )
    return _AGGREGATION[mode]


def row_factors(
    batch: Batch,
    places: Int,
    tokens: Int,
    strategy: Strategy,
    aggregation: str,
    *,
    silent: Bool,
    mini_batches: Int | None = None,
) -> Float:
    """Return the factor on each row's advantages; all 1 where verl's own view of the batch is right to the bit.

    Args:
        batch: the step's batch of rollouts.
        places: as those after it, see `neyman.hosts.weights.row_weights`.
        tokens: [rows] that the loss counts.
        strategy: decides how prompts weigh.
        aggregation: how the loss averages.
        silent: [rollouts] of the batch whose advantage is 0 (`without_signal`).
        mini_batches: [rows] the mini-batch of each row, from 0, where a step has several; None where it has one.
    """
    factors = row_weights(batch, tokens, strategy, aggregation, places=places)
    if mini_batches is not None and aggregation == "token_mean" and (factors != 1.0).any():
        factors = factors * _undivided(tokens, mini_batches)
    factors[(places >= 0) & silent[places]] = 0.0
    return factors


def _undivided(tokens: Int, mini_batches: Int) -> Float:
    """Return the factor that turns a mean over each mini-batch's tokens into its share of the mean over the step's."""
    totals = np.bincount(mini_batches, weights=tokens)
    return np.asarray(totals * len(totals) / max(float(totals.sum()), 1.0))[mini_batches]


def mini_batches_of(rows: int, size: int, ranks: int) -> Int | None:
    """Return the mini-batch [rows] that verl trains each row in, unshuffled; None where there is one.

    verl gives each rank an equal run of rows, and cuts each run into as many pieces.

    Args:
        rows: of the step, a multiple of ``size``.
        size: rows of a mini-batch over all ranks, a multiple of ``ranks``.
        ranks: data-parallel ones.
    """
    if rows <= size:
        return None
    return np.arange(rows) % (rows // ranks) // (size // ranks)


def without_signal(batch: Batch, config: Any) -> Bool:
    """Return which rollouts of a batch [rollouts] have an advantage of 0 because nothing differs in their group.

    Where verl compares a rollout with others of its prompt, it leaves one alone its raw reward, and gives equal rewards
    the rounding error of their mean over 1e-6. With a penalty inside the reward equal scores are no equal rewards.
    """
    name = str(config.algorithm.adv_estimator)
    if name not in _BY_GROUP:
        return np.zeros(len(batch), dtype=bool)
    codes, labels = formulas.group_index(np.concatenate([batch.groups, batch.spare_groups]))
    mute = np.bincount(codes, minlength=len(labels)) < 2
    if not (config.algorithm.use_kl_in_reward or name == _CENTRED):
        mute |= ~formulas.effective_groups(np.concatenate([batch.rewards, batch.spare_rewards]), codes)
    silent: Bool = mute[codes][: len(batch)]
    return silent


def baseline_problem(config: Any) -> str | None:
    """Return why a baseline cannot hold rollouts that do not train, with the way out; None where it can."""
    name = str(config.algorithm.adv_estimator)
    if _ESTIMATORS.get(name) not in ("grpo", "rloo"):
        return f"that is there for algorithm.adv_estimator=grpo and rloo, got {name}: use one of them"
    if config.algorithm.use_kl_in_reward:
        return (
            "the KL penalty of algorithm.use_kl_in_reward=true is known of the trained rows alone: set it to false "
            "(actor.use_kl_loss puts the penalty into the loss)"
        )
    return None


def with_spares(batch: Batch, estimator: str) -> Float:
    """Return each rollout's advantage, by verl's formula, where the baseline holds rollouts that do not train too."""
    return advantages(batch, batch.rewards, estimator=estimator, eps=_EPS)
