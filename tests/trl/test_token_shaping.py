"""Entropy advantages, Clip-Cov, KL-Cov and W-REINFORCE inside TRL's losses, and what TRL has of its own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from trl import GRPOTrainer, RLOOTrainer

import neyman
from neyman.errors import ArgumentError
from neyman.modulation import (
    ClipCov,
    EntropyAdvantage,
    ForkTokens,
    KLCov,
    WReinforce,
    entropy_advantage_factor,
    kl_cov_advantages,
)

NEUTRAL = {
    "grpo": (GRPOTrainer, {"loss_type": "grpo"}),
    "dapo": (GRPOTrainer, {}),
    "sequence": (GRPOTrainer, {"importance_sampling_level": "sequence", "loss_type": "grpo"}),
    "rloo": (RLOOTrainer, {}),
}


@pytest.mark.parametrize("name", NEUTRAL)
@pytest.mark.parametrize("settings", [EntropyAdvantage(alpha=0.0), ClipCov(low=1e6, high=1e7)])
def test_a_factor_of_one_is_the_stock_trainer(bench: Any, name: str, settings: Any) -> None:
    cls, options = NEUTRAL[name]
    stock = bench.train(cls, None, **options)
    ours = bench.train(cls, neyman.preset("uniform"), ours={"modulation": settings}, **options)
    after, same = stock.weights(), ours.weights()
    assert all((after[key] == same[key]).all() for key in after)


def loss_of(bench: Any, cls: Any, settings: Any, **options: Any) -> Any:
    """Return the trainer and one generated micro-batch, at weights that stand still."""
    run = bench.train(
        cls,
        bench.ragged((13, 15, 2, 2)),
        max_steps=1,
        learning_rate=0.0,
        ours={"modulation": settings},
        **options,
    )
    run.trainer.model.train()
    run.trainer.current_gradient_accumulation_steps = 1
    return run.trainer, run.trainer._buffered_inputs[0]


def gradient(trainer: Any, loss: torch.Tensor) -> torch.Tensor:
    trainer.model.zero_grad()
    loss.backward()
    return torch.cat([p.grad.flatten() for p in trainer.model.parameters() if p.grad is not None])


def forward(trainer: Any, inputs: Any) -> tuple[torch.Tensor, torch.Tensor]:
    ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], 1)
    mask = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], 1)
    base = super(type(trainer).__mro__[1], trainer)._get_per_token_logps_and_entropies
    logps, entropies = base(trainer.model, ids, mask, inputs["completion_ids"].size(1), compute_entropy=True)[
        :2
    ]
    return logps, entropies.detach()


@pytest.mark.parametrize("name", ["dapo", "rloo"])
def test_the_update_is_that_of_raised_advantages(bench: Any, name: str) -> None:
    cls = RLOOTrainer if name == "rloo" else GRPOTrainer
    trainer, inputs = loss_of(bench, cls, EntropyAdvantage(alpha=0.2))
    logps, entropies = forward(trainer, inputs)
    mask, advantages = inputs["completion_mask"], inputs["advantages"][:, None]
    raised = advantages + torch.minimum(0.2 * entropies, advantages.abs() / 2.0)
    assert ((raised - advantages).abs() * mask).max() > 0.1
    score = raised * mask * logps
    by_hand = -score.sum(1).mean() if name == "rloo" else -score.sum() / mask.sum()
    expected = gradient(trainer, by_hand)
    actual = gradient(trainer, trainer._compute_loss(trainer.model, inputs))
    assert float((expected - actual).norm() / expected.norm()) < 2e-5
    factor = entropy_advantage_factor(entropies, inputs["advantages"], mask, 0.2, 2.0)
    assert factor[mask.bool()].max() <= 1.5


def test_fork_tokens_alone_train_under_rloo(bench: Any) -> None:
    trainer, inputs = loss_of(bench, RLOOTrainer, ForkTokens(share=0.3))
    logps, entropies = forward(trainer, inputs)
    mask, advantages = inputs["completion_mask"], inputs["advantages"][:, None]
    known = entropies[mask.bool()]
    forks = entropies >= torch.quantile(known, 0.7)
    assert 0.25 < forks[mask.bool()].float().mean() < 0.4
    expected = gradient(trainer, -(advantages * mask * forks * logps).sum(1).mean())
    actual = gradient(trainer, trainer._compute_loss(trainer.model, inputs))
    assert float((expected - actual).norm() / expected.norm()) < 2e-5


def test_fork_tokens_of_grpo_are_trls(bench: Any) -> None:
    with pytest.raises(ArgumentError, match=r"top_entropy_quantile=0\.2"):
        bench.build(GRPOTrainer, neyman.preset("uniform"), ours={"modulation": ForkTokens()})


def test_clip_covs_tokens_have_no_gradient_and_the_others_theirs(bench: Any) -> None:
    settings = ClipCov(share=0.2, low=0.2, high=50.0)
    trainer, inputs = loss_of(bench, GRPOTrainer, settings)
    factor: list[torch.Tensor] = []
    shaping = trainer._neyman.token_factor
    original = shaping.apply

    def recorded(logps: torch.Tensor, entropies: torch.Tensor) -> torch.Tensor:
        result = original(logps, entropies)
        factor.append(shaping._inputs["advantages"] / inputs["advantages"][:, None])
        return result

    shaping.apply = recorded
    actual = gradient(trainer, trainer._compute_loss(trainer.model, inputs))
    mask = inputs["completion_mask"]
    kept = torch.nan_to_num(factor[0], nan=1.0)
    left_out = int(((kept == 0.0) & mask.bool()).sum())
    assert 0 < left_out <= 0.2 * int(mask.sum())
    logps, _ = forward(trainer, inputs)
    by_hand = -(inputs["advantages"][:, None] * kept * mask * logps).sum() / mask.sum()
    expected = gradient(trainer, by_hand)
    assert float((expected - actual).norm() / expected.norm()) < 2e-5
    again = gradient(trainer, trainer._compute_loss(trainer.model, inputs))
    torch.testing.assert_close(actual, again, msg="the draw is keyed by the step")


@pytest.mark.parametrize("loss_type", ["dapo", "grpo", "dr_grpo"])
def test_kl_covs_update_is_that_of_its_penalty(bench: Any, loss_type: str) -> None:
    settings = KLCov(share=0.3, coefficient=0.4)
    trainer, inputs = loss_of(bench, GRPOTrainer, settings, loss_type=loss_type)
    logps, _ = forward(trainer, inputs)
    mask, advantages = inputs["completion_mask"], inputs["advantages"][:, None]
    # Some steps after the rollouts, within the clipping.
    drift = 0.1 * (torch.rand(logps.shape, generator=torch.Generator().manual_seed(0)) - 0.5)
    inputs = {**inputs, "old_per_token_logps": logps.detach() - drift}
    changed = kl_cov_advantages(inputs["advantages"], logps.detach(), drift.exp(), mask, settings)
    chosen = ((changed != advantages) & mask.bool()).float()
    assert int(chosen.sum()) == int(0.3 * int(mask.sum()))
    change = logps - inputs["old_per_token_logps"]
    tokens = (-change.exp() * advantages + 0.4 * change.abs() * chosen) * mask
    by_hand = {
        "dapo": tokens.sum() / mask.sum(),
        "grpo": (tokens.sum(1) / mask.sum(1)).mean(),
        "dr_grpo": tokens.sum() / (len(tokens) * trainer.max_completion_length),
    }[loss_type]
    expected = gradient(trainer, by_hand)
    actual = gradient(trainer, trainer._compute_loss(trainer.model, inputs))
    assert float((expected - actual).norm() / expected.norm()) < 2e-5


def test_kl_cov_without_a_penalty_is_the_stock_trainer(bench: Any) -> None:
    options = {"num_iterations": 2, "max_steps": 4}
    stock = bench.train(GRPOTrainer, None, **options)
    ours = bench.train(
        GRPOTrainer, neyman.preset("uniform"), ours={"modulation": KLCov(coefficient=0.0)}, **options
    )
    after, same = stock.weights(), ours.weights()
    assert all((after[key] == same[key]).all() for key in after)
    held = bench.train(
        GRPOTrainer, neyman.preset("uniform"), ours={"modulation": KLCov(share=0.5)}, **options
    )
    assert any((after[key] != value).any() for key, value in held.weights().items())


@pytest.mark.parametrize(
    ("cls", "options", "found"),
    [
        (RLOOTrainer, {}, "RLOO"),
        (GRPOTrainer, {"importance_sampling_level": "sequence"}, "importance_sampling_level='sequence'"),
        (GRPOTrainer, {"loss_type": "cispo"}, "loss_type='cispo'"),
    ],
)
def test_kl_cov_without_a_ratio_per_token_is_refused(bench: Any, cls: Any, options: Any, found: str) -> None:
    with pytest.raises(ArgumentError, match=found):
        bench.build(cls, neyman.preset("uniform"), ours={"modulation": KLCov()}, **options)


@pytest.mark.parametrize("cls", [GRPOTrainer, RLOOTrainer])
def test_w_reinforce_trains_every_row_by_its_own_outcome(bench: Any, cls: Any) -> None:
    strategy = bench.ragged((13, 15, 2, 2))
    run = bench.train(cls, strategy, max_steps=2, ours={"modulation": WReinforce(positive=0.1)}, **(
        {} if cls is RLOOTrainer else {"loss_type": "grpo"}
    ))  # fmt: skip
    for inputs, batch in run.batches:
        by_outcome = np.where(batch.success == 1.0, 0.1, -1.0)
        np.testing.assert_allclose(inputs["advantages"].numpy(), by_outcome * batch.weights, rtol=1e-6)
        dead = [g for g in range(4) if len(set(batch.success[batch.groups == g])) == 1]
        assert all((inputs["advantages"].numpy()[batch.groups == g] != 0.0).all() for g in dead)


def test_equal_groups_are_not_taken_for_stock_ones(bench: Any) -> None:
    run = bench.train(GRPOTrainer, neyman.preset("uniform"), max_steps=1, ours={"modulation": WReinforce()})
    inputs, batch = run.batches[0]
    assert set(np.round(inputs["advantages"].tolist(), 4)) <= {0.1, -1.0}
    assert len(set(batch.success.tolist())) == 2


@pytest.mark.since_trl("1.16.0", "entropy_coef")
@pytest.mark.parametrize(
    "options", [{"epsilon_high": 0.28}, {"top_entropy_quantile": 0.2}, {"entropy_coef": 0.01}]
)
def test_clip_higher_fork_tokens_and_the_entropy_bonus_are_trls_own(bench: Any, options: Any) -> None:
    # Under neyman they do what they do without it.
    settings = {"num_iterations": 2, "max_steps": 4, "learning_rate": 3e-2, "epsilon": 0.02}
    stock = bench.train(GRPOTrainer, None, **options, **settings)
    ours = bench.train(GRPOTrainer, neyman.preset("uniform"), **options, **settings)
    plain = bench.train(GRPOTrainer, None, **settings)
    after, same, other = stock.weights(), ours.weights(), plain.weights()
    assert all((after[key] == same[key]).all() for key in after)
    assert any((after[key] != other[key]).any() for key in after), "the option does something"


def test_settings_of_another_kind_are_refused(bench: Any) -> None:
    with pytest.raises(ArgumentError, match=r"settings of neyman\.modulation"):
        bench.build(GRPOTrainer, neyman.preset("uniform"), ours={"modulation": 0.3})
