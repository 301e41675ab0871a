"""What a run says under ``neyman``, and what is refused before a worker is started."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import neyman
from neyman.errors import ArgumentError, ContractError
from neyman.hosts.budget import rollouts_per_step
from neyman.verl._fit import check_config, terms_of
from neyman.verl._settings import Settings
from neyman.verl._success import Success


def tenfold(**options: Any) -> Any:
    """Return what a user's own function may return."""
    return neyman.preset("uniform", **options) if not options.pop("wrong", False) else "uniform"


def bare() -> Any:
    """Return a strategy that has no options."""
    return neyman.preset("uniform")


def test_a_preset_takes_its_options() -> None:
    settings = Settings.from_mapping({"strategy": "vip", "options": {"lower": 3, "upper": 9}})
    assert settings.build_strategy().allocate.lower == 3


def test_a_function_of_the_user_makes_the_strategy() -> None:
    here = f"{__name__}:tenfold"
    assert Settings(strategy=here).build_strategy().name == "uniform"
    with pytest.raises(ArgumentError, match=r"must return a neyman\.Strategy, got 'uniform'"):
        Settings(strategy=here, options={"wrong": True}).build_strategy()


def test_no_section_means_the_default_strategy(stock: Any) -> None:
    assert stock.get("neyman") is None
    assert Settings.from_mapping(None).build_strategy().name == "neyman"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"lower": 4}, r"no setting lower in verl.*\+\+neyman\.options\.lower"),
        ({"strategy": "sarah"}, "neyman.strategy must be one of uniform, vip, sara.*did you mean 'sara'"),
        ({"stratgy": "sara"}, r"did you mean neyman\.strategy"),
        (
            {"strategy": "mopps:explore=mean"},
            r"neyman\.strategy must be a name alone.*set it to 'mopps', and 'explore=mean' by \+\+neyman\.options",
        ),
        (
            {"strategy": "sara", "options": {"group_size": -1}},
            r"\+\+neyman\.options of sara: size must be >= 2, got -1",
        ),
        ({"strategy": "no.such:thing"}, "cannot be imported"),
        ({"strategy": "math:pi"}, "'math:pi' must be a function or class, got 3.14"),
        ({"strategy": None}, "must be text, got None"),
        ({"options": [4]}, r"must be a mapping, got \[4\]"),
        ({"retries": 3}, "neyman.retries"),
        ({"barrier": "yes"}, "must be true or false, got 'yes'"),
        ({"max_rollouts": 0}, "neyman.max_rollouts"),
        ("sara", r"must be a section of settings, got 'sara': \+neyman\.strategy=sara"),
        ({"strategy": "neyman_cpu_rewards:damped", "options": {"size": 8}}, "has no option size"),
        (
            {"strategy": f"{__name__}:bare", "options": {"size": 8}},
            r"does not take \+\+neyman\.options \['size'\]",
        ),
    ],
)
def test_a_wrong_setting_is_named(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        Settings.from_mapping(values).build_strategy()


def test_the_budget_of_fixed_spend_is_the_step(stock: Any) -> None:
    from omegaconf import OmegaConf

    vip, sara = neyman.preset("vip"), neyman.preset("sara")
    config = OmegaConf.create(OmegaConf.to_container(stock, resolve=False))
    OmegaConf.update(config, "data.train_batch_size", 4)
    OmegaConf.update(config, "actor_rollout_ref.rollout.n", 8)
    terms = terms_of(config)
    assert (terms.rows, terms.group_size, terms.prompts, terms.aggregation) == (32, 8, 4, "token_mean")
    assert rollouts_per_step(vip, None, terms) == 32
    assert rollouts_per_step(sara, None, terms) == 128
    assert rollouts_per_step(sara, 40, terms) == 40
    with pytest.raises(
        ArgumentError, match=r"neyman\.max_rollouts=64 is for .* generates exactly the 32 rollouts"
    ):
        rollouts_per_step(vip, 64, terms)
    with pytest.raises(
        ArgumentError, match=r"neyman\.max_rollouts must be at least the 32 rows .*got 16; leave it out"
    ):
        rollouts_per_step(sara, 16, terms)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("algorithm.filter_groups.enable", True, "neyman.strategy=dynamic-sampling"),
        ("algorithm.adv_estimator", "remax", "greedy rollout"),
        ("algorithm.adv_estimator", "grpo_passk", "where a prompt has one rollout"),
        ("trainer.v1.sampler.sync_refill_failed_groups", True, "draws failed rollouts again"),
        ("actor_rollout_ref.actor.shuffle", True, "actor.shuffle=false"),
        ("reward.reward_model.enable", True, "enable_resource_pool=true"),
        ("skip.rollout_tq.enable", True, "skip.rollout_tq.enable=false"),
        ("trainer.v1.sampler.custom_sampler.path", "mine.py", "trainer.v1.trainer_mode=sync"),
        ("trainer.v1.sync.parameter_sync_step", 2, "parameter_sync_step=1"),
    ],
)
def test_what_decides_beside_the_strategy_is_refused(stock: Any, key: str, value: Any, message: str) -> None:
    from omegaconf import OmegaConf

    check_config(stock)
    changed = OmegaConf.create(OmegaConf.to_container(stock, resolve=False))
    OmegaConf.update(changed, key, value, force_add=True)
    with pytest.raises(ArgumentError, match=message):
        check_config(changed)


def test_success_is_the_binary_reward_unless_it_is_named() -> None:
    plain = Success(None, 0.5)
    assert plain(1.0, {}) is True
    assert plain(0.0, {}) is False
    assert plain(-1.0, {}) is False
    with pytest.raises(ContractError, match=r"returned 0\.89, which is not binary.*\+neyman\.success=acc"):
        plain(0.89, {"acc": 1.0})
    assert Success("acc", 0.5)(0.89, {"acc": True}) is True
    assert Success("reward", 0.9)(0.89, {}) is False
    assert Success("reward", 0.9)(float(np.float32(0.9)), {}) is True  # verl keeps rewards in float32
    assert isinstance(Success("acc", 0.5)(1.0, {"acc": float("nan")}), neyman.MissingReward)
    assert isinstance(Success("acc", 0.5)(1.0, {"acc": None}), neyman.MissingReward)
    with pytest.raises(ContractError, match="acc='True', which is no number"):
        Success("acc", 0.5)(1.0, {"acc": "True"})
    with pytest.raises(ContractError, match=r"neyman\.success=acc is not among .*\(score\)"):
        Success("acc", 0.5)(1.0, {"score": 1.0})


@pytest.fixture(scope="module")
def stock() -> Any:
    from hydra import compose, initialize_config_module

    with initialize_config_module("verl.trainer.config", version_base=None):
        return compose("ppo_trainer")
