"""Whether verl's configuration, its dataset and the strategy fit each other: said before a worker is started."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from neyman._checks import integer
from neyman.errors import ArgumentError
from neyman.hosts.dry_run import rehearse
from neyman.strategy import Strategy
from neyman.verl._advantages import check_baseline


def rows_of(config: Any) -> int:
    """Return the rollouts that verl trains in a step."""
    return int(config.data.train_batch_size) * int(config.actor_rollout_ref.rollout.n)


def budget_of(strategy: Strategy, max_rollouts: int | None, rows: int) -> int:
    """Return the rollouts of a step that trains ``rows``.

    Raises:
        ArgumentError: a bound where the strategy leaves nothing to bound, or one below the rows.
    """
    if strategy.close != "fixed_train":
        if max_rollouts is None:
            return rows
        raise ArgumentError(
            f"neyman.max_rollouts={max_rollouts} is for strategies that close with fixed_train; {strategy.name!r} "
            f"closes with {strategy.close} and generates exactly the {rows} rollouts of data.train_batch_size * "
            "rollout.n: leave max_rollouts out"
        )
    if max_rollouts is None:
        return 4 * rows
    if integer("neyman.max_rollouts", max_rollouts) < rows:
        raise ArgumentError(
            f"neyman.max_rollouts must be at least the {rows} rollouts that a step trains (data.train_batch_size * "
            f"rollout.n), got {max_rollouts}; leave it out for {4 * rows}"
        )
    return max_rollouts


def check_config(config: Any) -> None:
    """Refuse what the adapter cannot do, or what decides on rollouts beside the strategy.

    Raises:
        ArgumentError: names the setting and the way out.
    """
    _check_sampling(config)
    if str(config.algorithm.adv_estimator) == "remax":
        raise ArgumentError(
            "algorithm.adv_estimator=remax needs a greedy rollout of every prompt, which no strategy asks for: use "
            "rloo, grpo or gae"
        )
    if str(config.algorithm.adv_estimator) == "grpo_passk":
        raise ArgumentError(
            "algorithm.adv_estimator=grpo_passk raises where a prompt has one rollout, and a strategy or a failure may "
            "leave one: use rloo, grpo or gae"
        )
    _check_mini_batches(config)
    reward_model = config.reward.reward_model
    if reward_model.enable and not reward_model.enable_resource_pool:
        raise ArgumentError(
            "a reward model that shares the actor's devices scores after all rollouts are drawn, and neyman decides "
            "while they come: set reward.reward_model.enable_resource_pool=true, or use a rule-based reward function"
        )
    if int(config.trainer.v1.sync.get("parameter_sync_step", 1)) != 1:
        raise ArgumentError("neyman needs trainer.v1.sync.parameter_sync_step=1: a step trains what it drew")
    if config.skip.rollout_tq.enable:
        raise ArgumentError(
            "neyman cannot serve rollouts of an earlier run: set skip.rollout_tq.enable=false"
        )


def _check_mini_batches(config: Any) -> None:
    actor = config.actor_rollout_ref.actor
    several = int(actor.ppo_mini_batch_size) < int(config.data.train_batch_size)
    if several and actor.get("shuffle", False) and str(actor.loss_agg_mode) == "token-mean":
        raise ArgumentError(
            "loss_agg_mode=token-mean divides each mini-batch by its own tokens, and actor.shuffle=true leaves open "
            "which rows share one, so that prompts cannot weigh alike: set actor_rollout_ref.actor.shuffle=false, "
            "loss_agg_mode=seq-mean-token-mean, or ppo_mini_batch_size to data.train_batch_size"
        )


def _check_sampling(config: Any) -> None:
    sampler, filtering = config.trainer.v1.sampler, config.algorithm.get("filter_groups") or {}
    custom = sampler.get("custom_sampler") or {}
    if sampler.get("sync_refill_failed_groups", False):
        raise ArgumentError(
            "trainer.v1.sampler.sync_refill_failed_groups=true replaces failed prompts beside the strategy, which "
            "draws failed rollouts again: set it to false"
        )
    if filtering.get("enable"):
        raise ArgumentError(
            "algorithm.filter_groups.enable=true discards groups beside the strategy: set it to false, and "
            "++neyman.strategy=dynamic-sampling for the same rule"
        )
    if custom.get("path"):
        raise ArgumentError(
            "trainer.v1.sampler.custom_sampler replaces what neyman replaces: take it out, or train with "
            "trainer.v1.trainer_mode=sync"
        )


def check_strategy_fits(
    config: Any, strategy: Strategy, ids: Sequence[int], budget: int, aggregation: str
) -> None:
    """Refuse a strategy whose numbers do not fit a step, or that keeps rollouts for later ones.

    Raises:
        ArgumentError: names the numbers and the way out.
    """
    if strategy.max_age or strategy.replay_age:
        kept = "max_age" if strategy.max_age else "replay_age"
        raise ArgumentError(
            f"strategy {strategy.name!r} keeps rollouts for later steps ({kept}={getattr(strategy, kept)}), and verl's "
            f"queue is emptied after each: set ++neyman.options.{kept}=0"
        )
    check_baseline(config, strategy)
    if strategy.prompt_weight == "equal_tokens" and aggregation != "token_mean":
        raise ArgumentError(
            f"strategy {strategy.name!r} gives every prompt the same tokens (prompt_weight='equal_tokens'), which is "
            "for actor_rollout_ref.actor.loss_agg_mode=token-mean: set that, or ++neyman.options.prompt_weight=equal"
        )
    rows, brought = rows_of(config), int(config.data.train_batch_size)
    if len(ids) < brought:
        raise ArgumentError(
            f"the training dataset has {len(ids)} prompts, and data.train_batch_size={brought} takes as many different "
            "ones: lower it, or add prompts"
        )
    try:
        rehearse(strategy, budget, list(ids[:brought]), train_rows=rows, pool=ids, aggregation=aggregation)
    except ArgumentError as error:
        raise type(error)(
            f"strategy {strategy.name!r} does not fit a step of {rows} rollouts (train_rows is data.train_batch_size="
            f"{brought} x rollout.n={int(config.actor_rollout_ref.rollout.n)}): {error}"
        ) from error
