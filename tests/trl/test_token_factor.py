"""DynaMO's token factor inside TRL's losses: neutral is stock, and gradients are the ones written down."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from trl import GRPOTrainer, RLOOTrainer

import neyman
from neyman.errors import ArgumentError
from neyman.modulation import Modulation

STRONG = {"alpha": 0.8, "lam": 0.3, "threshold": 0.5}
MICRO_STEPS = {"per_device_train_batch_size": 8, "gradient_accumulation_steps": 2, "steps_per_generation": 4}
NEUTRAL = {
    "exact, whole batch": (GRPOTrainer, {"variant": "exact", "extremes": "batch"}, {}),
    "exact, generations that outlast a batch": (GRPOTrainer, {"extremes": "batch"}, MICRO_STEPS),
    "published, lagged": (GRPOTrainer, {"variant": "published", "extremes": "lagged"}, MICRO_STEPS),
    "published, micro-batch": (GRPOTrainer, {"variant": "published", "extremes": "micro_batch"}, {}),
    "one ratio per sequence": (
        GRPOTrainer,
        {},
        {"importance_sampling_level": "sequence", "loss_type": "grpo"},
    ),
    "cispo": (GRPOTrainer, {}, {"loss_type": "cispo", "epsilon_high": 5.0}),
    "sapo": (GRPOTrainer, {}, {"loss_type": "sapo"}),
    "vespo": (GRPOTrainer, {}, {"loss_type": "vespo"}),
    "rloo": (RLOOTrainer, {}, {"beta": 0.05}),
}


def uniform() -> Any:
    return neyman.preset("uniform")


@pytest.mark.parametrize("name", NEUTRAL)
def test_a_factor_of_one_is_the_stock_trainer_bit_for_bit(bench: Any, name: str) -> None:
    cls, settings, options = NEUTRAL[name]
    stock = bench.train(cls, None, **options)
    neutral = Modulation(alpha=0.0, lam=1.0, **settings)
    ours = bench.train(cls, uniform(), ours={"modulation": neutral}, **options)
    assert stock.comparable_logs() == ours.comparable_logs()
    after, same = stock.weights(), ours.weights()
    assert all((after[key] == same[key]).all() for key in after)


class Loss:
    """The modulated loss of one generated batch, on policy."""

    def __init__(self, bench: Any, cls: Any, modulation: Modulation, **options: Any) -> None:
        run = bench.train(
            cls,
            bench.ragged((13, 15, 2, 2)),
            max_steps=1,
            learning_rate=0.0,
            ours={"modulation": modulation},
            **options,
        )
        self.trainer, self.factor = run.trainer, run.trainer._neyman.token_factor
        self.trainer.model.train()
        self.trainer.current_gradient_accumulation_steps = 1
        self.trainer._step = 0
        self.factor._starting = True
        self.inputs = self.trainer._buffered_inputs[0]

    def gradient(self, loss: torch.Tensor | None = None) -> torch.Tensor:
        model = self.trainer.model
        model.zero_grad()
        (self.trainer._compute_loss(model, self.inputs) if loss is None else loss).backward()
        return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])

    def factors(self) -> torch.Tensor:
        """Return the factor that the loss of this batch is given."""
        with self.factor.applied(self.trainer.model, self.inputs):
            factors = self.factor._factor.clone()
        self.factor._starting = True
        return factors

    def logps(self) -> torch.Tensor:
        inputs = self.inputs
        ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], 1)
        mask = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], 1)
        base = super(type(self.trainer).__mro__[1], self.trainer)._get_per_token_logps_and_entropies
        return base(self.trainer.model, ids, mask, inputs["completion_ids"].size(1))[0]


@pytest.mark.parametrize("name", ["rloo", "sequence", "dapo"])
def test_the_update_is_the_sum_over_tokens_of_factor_times_score(bench: Any, name: str) -> None:
    modulation = Modulation(**STRONG)
    if name == "rloo":
        case = Loss(bench, RLOOTrainer, modulation, beta=0.0)
    elif name == "sequence":
        options = {"importance_sampling_level": "sequence", "loss_type": "grpo"}
        case = Loss(bench, GRPOTrainer, modulation, **options)
    else:
        case = Loss(bench, GRPOTrainer, modulation, loss_type="dapo")
    mask, advantages = case.inputs["completion_mask"], case.inputs["advantages"]
    factors = case.factors()
    acting = factors[mask.bool() & (advantages != 0).unsqueeze(1)]
    assert acting.min() < 0.9
    assert acting.max() > 1.1
    scores = advantages[:, None] * factors * mask * case.logps()
    if name == "rloo":
        by_hand = -scores.sum(1).mean()
    elif name == "sequence":
        by_hand = -(scores.sum(1) / mask.sum(1)).mean()
    else:
        by_hand = -scores.sum() / mask.sum()
    expected, actual = case.gradient(by_hand), case.gradient()
    plain = case.gradient(-(advantages[:, None] * mask * case.logps()).sum() / mask.sum())
    assert float((expected - actual).norm() / expected.norm()) < 2e-5
    assert float((plain - actual).norm() / plain.norm()) > 1e-2


@pytest.mark.parametrize("variant", ["exact", "published"])
def test_extremes_of_the_whole_batch_make_the_update_independent_of_packing(bench: Any, variant: str) -> None:
    def grad_norms(extremes: str) -> list[float]:
        modulation = Modulation(variant=variant, extremes=extremes, **STRONG)
        ours = {"modulation": modulation}
        whole = bench.train(GRPOTrainer, uniform(), max_steps=1, ours=ours)
        pieces = bench.train(
            GRPOTrainer,
            uniform(),
            max_steps=1,
            ours=ours,
            per_device_train_batch_size=4,
            gradient_accumulation_steps=8,
        )
        assert whole.trained() == pieces.trained()
        return [run.logs[0]["grad_norm"] for run in (whole, pieces)]

    whole, pieces = grad_norms("batch")
    assert pieces == pytest.approx(whole, rel=1e-4)
    whole, pieces = grad_norms("micro_batch")
    assert pieces != pytest.approx(whole, rel=1e-3), "the extremes of micro-batches do depend on packing"


def test_lagged_extremes_start_with_the_second_batch(bench: Any) -> None:
    stock = bench.train(GRPOTrainer, None, max_steps=2)
    modulation = Modulation(variant="published", extremes="lagged", **STRONG)
    ours = bench.train(GRPOTrainer, uniform(), max_steps=2, ours={"modulation": modulation})
    assert stock.comparable_logs()[0] == ours.comparable_logs()[0]
    assert stock.trained() == ours.trained()
    assert stock.logs[1]["grad_norm"] != pytest.approx(ours.logs[1]["grad_norm"], rel=1e-3)


def test_dynamo_brings_its_own_factor_and_none_switches_it_off(bench: Any) -> None:
    own = bench.build(GRPOTrainer, neyman.preset("dynamo"))
    off = bench.build(GRPOTrainer, neyman.preset("dynamo"), ours={"modulation": None})
    assert own.trainer._neyman.token_factor is not None
    assert off.trainer._neyman.token_factor is None


def test_the_factor_leaves_evaluation_alone(bench: Any) -> None:
    losses = []
    for modulation in (None, Modulation(**STRONG)):
        run = bench.build(
            GRPOTrainer, uniform(), host={"eval_dataset": bench.dataset(48).select(range(40, 48))},
            ours={"modulation": modulation}, per_device_eval_batch_size=16,
        )  # fmt: skip
        torch.manual_seed(0)
        losses.append(run.trainer.evaluate()["eval_loss"])
    assert losses[0] == losses[1] != 0.0


def test_a_fused_loss_is_refused_with_the_way_out(bench: Any) -> None:
    class Fused(GRPOTrainer):
        use_liger_loss = True  # what TRL before 1.16 sets under use_liger_kernel

    with pytest.raises(ArgumentError, match=r"use_liger_kernel=True.*switch it off.*modulation=None"):
        bench.build(Fused, uniform(), ours={"modulation": Modulation()})
