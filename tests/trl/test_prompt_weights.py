"""Prompts of unequal groups weigh alike: TRL's loss on the whole batch against its loss on each group alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from trl import GRPOTrainer, RLOOTrainer

import neyman
from neyman.errors import ArgumentError
from neyman.formulas import group_advantages

Gradient = torch.Tensor

RAGGED = (13, 15, 2, 2)
# Losses that average over sequences, and those that average over the tokens of the whole batch.
SEQUENCE = {
    "grpo": {"loss_type": "grpo"},
    "grpo-sequence-level": {"loss_type": "grpo", "importance_sampling_level": "sequence"},
    "dr_grpo": {"loss_type": "dr_grpo", "scale_rewards": "none"},
    "sapo": {"loss_type": "sapo"},
    "luspo": {"loss_type": "luspo", "importance_sampling_level": "sequence"},
}
TOKEN = {
    "dapo": {"loss_type": "dapo"},
    "cispo": {"loss_type": "cispo", "epsilon_high": 5.0},
    "vespo": {"loss_type": "vespo"},
    "bnpo": {"loss_type": "bnpo"},
}


class Case:
    """One generated batch of a trainer whose weights stand still, off policy so that ratios matter."""

    def __init__(self, bench: Any, cls: Any, strategy: Any, **options: Any) -> None:
        run = bench.train(cls, strategy, max_steps=1, learning_rate=0.0, **options)
        self.trainer = run.trainer
        self.inputs, self.batch = run.batches[0]
        self.trainer.model.train()
        self.trainer.current_gradient_accumulation_steps = 1
        self.is_rloo = cls is RLOOTrainer
        noise = torch.Generator().manual_seed(1)
        mask = self.inputs["completion_mask"]
        logps = self.logps()
        drift = 0.3 * torch.randn(logps.shape, generator=noise)
        if self.is_rloo:
            self.inputs["old_logps"] = ((logps + drift / 3) * mask).sum(1)
        else:
            self.inputs["old_per_token_logps"] = logps + drift
        self.raw = torch.tensor(
            group_advantages(self.batch.rewards, self.batch.groups, estimator=self._estimator()),
            dtype=torch.float32,
        )

    def _estimator(self) -> str:
        if self.is_rloo:
            return "rloo"
        return "dr_grpo" if self.trainer.scale_rewards == "none" else "grpo"

    def logps(self) -> torch.Tensor:
        inputs = self.inputs
        ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], 1)
        mask = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], 1)
        with torch.no_grad():
            result = self.trainer._get_per_token_logps_and_entropies(
                self.trainer.model, ids, mask, inputs["completion_ids"].size(1)
            )
        return result[0]

    def gradient(self, rows: Any = None, advantages: torch.Tensor | None = None) -> Gradient:
        """Return the gradient of TRL's loss on some rows as if they were the whole batch."""
        inputs = dict(self.inputs)
        if advantages is not None:
            inputs["advantages"] = advantages
        if rows is not None:
            chosen = torch.as_tensor(rows)
            inputs = {
                k: v[chosen] if isinstance(v, torch.Tensor) and v.dim() else v for k, v in inputs.items()
            }
        inputs["num_items_in_batch"] = inputs["completion_mask"].sum()
        self.trainer.model.zero_grad()
        self.trainer._compute_loss(self.trainer.model, inputs).backward()
        return torch.cat([p.grad.flatten() for p in self.trainer.model.parameters() if p.grad is not None])

    def of_group(self, group: int) -> Gradient:
        """Return the gradient of TRL's loss on one group alone, with plain advantages."""
        return self.gradient(np.flatnonzero(self.batch.groups == group), self.raw)

    def of_groups(self) -> list[Gradient]:
        return [self.of_group(g) for g in range(int(self.batch.groups.max()) + 1)]

    def tokens(self) -> np.ndarray:
        return self.inputs["completion_mask"].sum(1).numpy()


def assert_same(expected: Gradient, actual: Gradient) -> None:
    assert float(expected.norm()) > 1e-4, "the check would say nothing"
    assert float((expected - actual).norm() / expected.norm()) < 2e-5


@pytest.mark.parametrize("name", [*SEQUENCE, "rloo"])
def test_equal_weight_is_the_mean_over_prompts_of_each_groups_mean(bench: Any, name: str) -> None:
    if name == "rloo":
        case = Case(bench, RLOOTrainer, bench.ragged(RAGGED), beta=0.0)
    else:
        case = Case(bench, GRPOTrainer, bench.ragged(RAGGED), **SEQUENCE[name])
    assert tuple(np.bincount(case.batch.groups)) == RAGGED
    assert_same(torch.stack(case.of_groups()).mean(0), case.gradient())


@pytest.mark.parametrize("name", TOKEN)
def test_equal_weight_under_token_means_is_the_mean_of_group_token_sums_up_to_one_scalar(
    bench: Any, name: str
) -> None:
    case = Case(bench, GRPOTrainer, bench.ragged(RAGGED), **TOKEN[name])
    groups, tokens = case.batch.groups, case.tokens()
    mean_tokens = [tokens[groups == g].mean() for g in range(len(RAGGED))]
    sums = [m * gradient for m, gradient in zip(mean_tokens, case.of_groups(), strict=True)]
    assert_same(len(tokens) / tokens.sum() * torch.stack(sums).mean(0), case.gradient())


@pytest.mark.parametrize("name", TOKEN)
def test_equal_tokens_is_the_mean_over_prompts_of_each_groups_token_mean(bench: Any, name: str) -> None:
    case = Case(bench, GRPOTrainer, bench.ragged(RAGGED, prompt_weight="equal_tokens"), **TOKEN[name])
    assert_same(torch.stack(case.of_groups()).mean(0), case.gradient())


@pytest.mark.parametrize("options", [SEQUENCE["grpo"], TOKEN["dapo"]], ids=["grpo", "dapo"])
def test_by_rollouts_leaves_the_trainers_own_weighting(bench: Any, options: dict[str, Any]) -> None:
    case = Case(bench, GRPOTrainer, bench.ragged(RAGGED, prompt_weight="by_rollouts"), **options)
    assert (case.batch.weights == 1.0).all()
    assert case.raw.tolist() == pytest.approx(case.inputs["advantages"].tolist(), abs=1e-6)
    assert_same(case.gradient(advantages=case.raw), case.gradient())


@pytest.mark.parametrize("name", [*SEQUENCE, *TOKEN, "rloo"])
def test_excluded_groups_do_not_dilute_the_loss(bench: Any, name: str) -> None:
    strategy = neyman.preset("uniform", dead_groups="exclude")
    if name == "rloo":
        case = Case(bench, RLOOTrainer, strategy, beta=0.0)
    else:
        case = Case(bench, GRPOTrainer, strategy, **{**SEQUENCE, **TOKEN}[name])
    groups, successes = case.batch.groups, case.batch.success
    live = np.array([0 < successes[groups == g].mean() < 1 for g in groups])
    assert 0 < live.sum() < len(live), "the batch needs groups with and without signal"
    assert_same(case.gradient(np.flatnonzero(live), case.raw), case.gradient())


def test_kept_groups_dilute_the_loss_as_the_stock_trainer_does(bench: Any) -> None:
    case = Case(bench, GRPOTrainer, neyman.preset("uniform"), **SEQUENCE["grpo"])
    assert (case.batch.weights == 1.0).all()
    groups, successes = case.batch.groups, case.batch.success
    live = np.array([0 < successes[groups == g].mean() < 1 for g in groups])
    assert_same(float(live.mean()) * case.gradient(np.flatnonzero(live), case.raw), case.gradient())


@pytest.mark.parametrize("excluding", [False, True], ids=["unequal groups", "dead groups excluded"])
def test_bnpo_over_several_micro_batches_is_refused_with_the_way_out(bench: Any, excluding: bool) -> None:
    strategy = neyman.preset("uniform", dead_groups="exclude") if excluding else bench.ragged(RAGGED)
    with pytest.raises(ArgumentError, match=r"bnpo.*dapo.*by_rollouts"):
        bench.build(
            GRPOTrainer,
            strategy,
            loss_type="bnpo",
            per_device_train_batch_size=8,
            gradient_accumulation_steps=4,
        )


def test_bnpo_over_several_micro_batches_is_allowed_where_groups_are_equal(bench: Any) -> None:
    run = bench.train(
        GRPOTrainer,
        neyman.preset("uniform"),
        loss_type="bnpo",
        per_device_train_batch_size=8,
        gradient_accumulation_steps=4,
        max_steps=1,
    )
    assert [set(batch.weights.tolist()) for _, batch in run.batches] == [{1.0}]


def test_equal_tokens_needs_a_loss_that_averages_over_tokens(bench: Any) -> None:
    with pytest.raises(ArgumentError, match=r"equal_tokens.*equal"):
        bench.build(GRPOTrainer, bench.ragged(RAGGED, prompt_weight="equal_tokens"), loss_type="grpo")


def test_accumulated_micro_batches_give_the_gradient_of_the_whole_batch(bench: Any) -> None:
    whole = bench.train(GRPOTrainer, bench.ragged(RAGGED), max_steps=1, loss_type="dapo")
    pieces = bench.train(
        GRPOTrainer,
        bench.ragged(RAGGED),
        max_steps=1,
        loss_type="dapo",
        per_device_train_batch_size=4,
        gradient_accumulation_steps=8,
    )
    assert whole.trained() == pieces.trained()
    assert whole.logs[0]["grad_norm"] == pytest.approx(pieces.logs[0]["grad_norm"], rel=1e-4)


@pytest.mark.parametrize("options", [SEQUENCE["grpo"], TOKEN["dapo"]], ids=["grpo", "dapo"])
def test_excluded_groups_leave_unequal_ones_their_weight(bench: Any, options: dict[str, Any]) -> None:
    sizes = (14, 10, 5, 3)
    equal = Case(bench, GRPOTrainer, bench.ragged(sizes, dead_groups="exclude"), **options)
    by_rollouts = bench.ragged(sizes, dead_groups="exclude", prompt_weight="by_rollouts")
    flat = Case(bench, GRPOTrainer, by_rollouts, **options)
    groups, successes = equal.batch.groups, equal.batch.success
    mixed = [g for g in range(len(sizes)) if 0 < successes[groups == g].mean() < 1]
    assert 0 < len(mixed) < len(sizes), "the batch needs groups with and without signal"
    live = np.flatnonzero(np.isin(groups, mixed))
    assert_same(flat.gradient(live, flat.raw), flat.gradient())
    means = torch.stack([equal.of_group(g) for g in mixed])
    if options["loss_type"] == "dapo":
        tokens = equal.tokens()
        sums = torch.tensor([tokens[groups == g].mean() for g in mixed], dtype=torch.float32)
        means = len(live) / tokens[live].sum() * sums[:, None] * means
    assert_same(means.mean(0), equal.gradient())


@pytest.mark.parametrize("weight", ["equal_tokens", "equal"])
def test_tokens_that_the_trainer_masks_do_not_count(bench: Any, weight: str) -> None:
    strategy = bench.ragged((12, 10, 6, 4), prompt_weight=weight, dead_groups="exclude")
    case = Case(bench, GRPOTrainer, strategy, loss_type="dapo", mask_truncated_completions=True)
    tokens, groups, successes = case.tokens(), case.batch.groups, case.batch.success
    assert 0 < (tokens == 0).sum() < 32, "the batch needs truncated completions"
    mixed = [g for g in range(4) if 0 < successes[groups == g].mean() < 1]
    assert 0 < len(mixed) < 4, "the batch needs groups with and without signal"
    means = torch.stack([case.of_group(g) for g in mixed])
    if weight == "equal":
        live = np.isin(groups, mixed)
        sums = torch.tensor([tokens[groups == g].mean() for g in mixed], dtype=torch.float32)
        means = live.sum() / tokens[live].sum() * sums[:, None] * means
    assert_same(means.mean(0), case.gradient())
