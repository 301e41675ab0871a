"""Whether verl's configuration, its dataset and the strategy fit each other, checked before a worker is started."""

from __future__ import annotations

import logging
from typing import Any

from neyman.errors import ArgumentError
from neyman.hosts.refusals import check_baseline, check_prompt_weight, check_prompts
from neyman.hosts.run import HostRun
from neyman.hosts.terms import Terms
from neyman.strategy import Strategy
from neyman.verl._advantages import aggregation_of, baseline_problem, estimator_of
from neyman.verl._prompts import Prompts
from neyman.verl._settings import Settings

_log = logging.getLogger("neyman")


def terms_of(config: Any) -> Terms:
    """Return verl's step in numbers, and verl's names for the settings behind them.

    Raises:
        ArgumentError: a loss whose averaging is not known.
    """
    size = int(config.actor_rollout_ref.rollout.n)
    return Terms(
        rows=int(config.data.train_batch_size) * size,
        group_size=size,
        aggregation=aggregation_of(config),
        batch="step",
        group_setting="actor_rollout_ref.rollout.n",
        batch_settings="data.train_batch_size",
        loss_setting="actor_rollout_ref.actor.loss_agg_mode=token-mean",
        max_rollouts="neyman.max_rollouts",
        option="++neyman.options.{name}={value}",
        accept_change="give ++neyman.accept_strategy_change=true",
        new_run="start a new run in another trainer.default_local_dir (data.train_max_samples with data.seed=null "
        "draws another training set at every start: set data.seed)",
        filler="verl's padding rows",
    )


def open_run(config: Any, settings: Settings, strategy: Strategy, prompts: Prompts) -> HostRun:
    """Return the strategy's run in verl, once everything about it fits.

    Raises:
        ArgumentError: settings that contradict each other; the message has the way out.
    """
    terms, strategy = terms_of(config), strategy.with_options(estimator=estimator_of(config))
    # A row leaves verl's queue with its step, and with it the log-probabilities that a later one would need.
    for kept in ("max_age", "replay_age"):
        if steps := getattr(strategy, kept):
            raise ArgumentError(
                f"strategy {strategy.name!r} keeps rollouts for later steps ({kept}={steps}), and verl's queue is "
                f"emptied after each: set {terms.with_option(kept, 0)}"
            )
    check_prompt_weight(strategy, terms)
    check_baseline(strategy, terms, baseline_problem(config))
    check_prompts(len(prompts.ids), terms, f"lower data.train_batch_size={terms.prompts}")
    return HostRun(
        strategy,
        terms,
        prompts,
        _log.warning,
        max_rollouts=settings.max_rollouts,
        features=settings.resolved_features(),
        accepts_change=settings.accept_strategy_change,
        retries=settings.retries,
        seed=settings.seed,
        fill="none",
    )


def check_config(config: Any) -> None:
    """Refuse settings that the adapter cannot serve, or that decide on rollouts beside the strategy.

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
        raise ArgumentError(
            "neyman needs trainer.v1.sync.parameter_sync_step=1: a step trains its own rollouts"
        )
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
            "trainer.v1.sampler.custom_sampler takes the place that neyman takes: take it out, or train with "
            "trainer.v1.trainer_mode=sync"
        )
