"""How ragged groups weigh in verl's losses, held against the gradient that is wanted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import neyman
from neyman.errors import ArgumentError
from neyman.step.batch import Batch
from neyman.step.messages import StopReason
from neyman.verl._advantages import (
    aggregation_of,
    baseline_problem,
    estimator_of,
    mini_batches_of,
    row_factors,
    with_spares,
    without_signal,
)


def batch_of(groups: list[int], weights: Any = None, **more: Any) -> Batch:
    rows = len(groups)
    values: dict[str, Any] = {
        "rollout_ids": np.arange(rows),
        "prompt_ids": tuple(groups),
        "groups": np.array(groups),
        "rewards": np.zeros(rows),
        "success": np.zeros(rows),
        "advantages": np.zeros(rows),
        "weights": np.ones(rows) if weights is None else np.array(weights, dtype=float),
        "age": np.zeros(rows, dtype=np.int64),
        "policy_version": np.zeros(rows, dtype=np.int64),
        "stop_reason": StopReason.COMPLETE,
        "report": {},
        "estimator": "grpo",
        "counted": np.ones(rows, dtype=bool),
        "copies": np.ones(rows, dtype=np.int64),
        "spare_ids": np.zeros(0, dtype=np.int64),
        "spare_groups": np.zeros(0, dtype=np.int64),
        "spare_rewards": np.zeros(0),
    }
    return Batch(**(values | more))


def config_of(estimator: str = "grpo", mode: str = "token-mean", **algorithm: Any) -> Any:
    from omegaconf import OmegaConf

    return OmegaConf.create(
        {
            "algorithm": {"adv_estimator": estimator, "use_kl_in_reward": False, **algorithm},
            "actor_rollout_ref": {"actor": {"loss_agg_mode": mode}},
        }
    )


@pytest.mark.parametrize(
    "mode", ["seq-mean-token-mean", "seq-mean-token-sum", "seq-mean-token-sum-norm", "token-mean"]
)
@pytest.mark.parametrize("padding", [0, 3])
def test_the_loss_is_the_mean_over_prompts_of_group_means(mode: str, padding: int) -> None:
    """verl's own aggregation of weighted rows against the mean of means, to one factor for the whole batch."""
    from verl.trainer.ppo.core_algos import agg_loss

    rng = np.random.default_rng(0)
    groups, width = np.array([0] * 5 + [1] * 2 + [2] * 3), 6
    places = np.concatenate([np.arange(10), np.full(padding, -1)])
    lengths = np.concatenate([rng.integers(1, width + 1, 10), np.zeros(padding, dtype=int)])
    mask = torch.as_tensor(np.arange(width) < lengths[:, None]).float()
    values = torch.as_tensor(rng.normal(size=(10 + padding, width)))
    strategy = neyman.preset("vip")
    factors = row_factors(
        batch_of(groups.tolist()),
        places,
        lengths,
        strategy,
        aggregation_of(config_of(mode=mode)),
        silent=np.zeros(10, dtype=bool),
    )
    found = agg_loss(
        values * torch.as_tensor(factors)[:, None], mask, mode,
        batch_num_tokens=int(mask.sum()), global_batch_size=len(places), loss_scale_factor=width,
    )  # fmt: skip
    per_row = (values * mask).sum(1).numpy()
    if mode == "seq-mean-token-mean":
        per_row = per_row[:10] / lengths[:10]
    wanted = np.mean([per_row[:10][groups == group].mean() for group in range(3)])
    scale = {"seq-mean-token-sum-norm": width, "token-mean": lengths.sum() / 10}.get(mode, 1.0)
    assert float(found) == pytest.approx(wanted / scale, rel=1e-6)


@pytest.mark.parametrize("ranks", [1, 2])
def test_mini_batches_of_unequal_tokens_weigh_as_one(ranks: int) -> None:
    """verl's mean over the tokens of each mini-batch, summed, against the mean of group means; padding comes last."""
    from verl.trainer.ppo.core_algos import agg_loss

    rng = np.random.default_rng(1)
    groups, width, rows, size = np.array([0] * 11 + [1] * 4 + [2] * 5), 6, 24, 8
    places = np.concatenate([np.arange(20), np.full(4, -1)])
    lengths = np.concatenate([rng.integers(1, width + 1, 20), np.zeros(4, dtype=int)])
    mask = torch.as_tensor(np.arange(width) < lengths[:, None]).float()
    values = torch.as_tensor(rng.normal(size=(rows, width)))
    mini = mini_batches_of(rows, size, ranks)
    factors = row_factors(
        batch_of(groups.tolist()), places, lengths, neyman.preset("vip"), "token_mean",
        silent=np.zeros(20, dtype=bool), mini_batches=mini,
    )  # fmt: skip
    weighed, found = values * torch.as_tensor(factors)[:, None], 0.0
    chunks = np.arange(rows).reshape(ranks, -1)
    for part in range(rows // size):
        ours = chunks[:, part * size // ranks : (part + 1) * size // ranks].ravel()
        assert (mini[ours] == part).all()
        tokens = int(mask[ours].sum())
        found += float(agg_loss(weighed[ours], mask[ours], "token-mean", batch_num_tokens=max(tokens, 1)))
    per_row = (values * mask).sum(1).numpy()[:20]
    wanted = np.mean([per_row[groups == group].mean() for group in range(3)])
    assert found / 3 == pytest.approx(wanted * 20 / lengths.sum(), rel=1e-6)


@pytest.mark.parametrize(("rows", "size", "ranks"), [(24, 8, 1), (24, 8, 2), (32, 8, 4)])
def test_mini_batches_are_those_that_verl_cuts(rows: int, size: int, ranks: int) -> None:
    """verl's dispatch to ranks and its iterator over a rank's rows, against the place of each row."""
    from tensordict import TensorDict
    from verl.protocol import BatchData
    from verl.utils.tensordict_utils import make_iterator

    everything = TensorDict({"row": torch.arange(rows)}, batch_size=rows)
    found = np.full(rows, -1)
    for rank in BatchData(everything).chunk(chunks=ranks):
        pieces = make_iterator(rank, size // ranks, 1, seed=42, dataloader_kwargs={"shuffle": False})
        for part, piece in enumerate(pieces):
            found[piece["row"].numpy()] = part
    assert mini_batches_of(rows, size, ranks).tolist() == found.tolist()


def test_one_mini_batch_needs_no_telling_apart() -> None:
    assert mini_batches_of(32, 32, 2) is None


def test_equal_groups_are_left_alone_to_the_bit() -> None:
    batch = batch_of([0, 0, 1, 1])
    factors = row_factors(
        batch,
        np.array([3, 1, 0, 2]),
        np.array([4, 2, 9, 1]),
        neyman.preset("vip"),
        "token_mean",
        silent=np.zeros(4, dtype=bool),
    )
    assert (factors == 1.0).all()


@pytest.mark.parametrize(
    ("config", "silent"),
    [
        (config_of("grpo"), [False, False, True, True, True]),
        (config_of("grpo", use_kl_in_reward=True), [False, False, False, False, True]),
        (config_of("gae"), [False] * 5),
        (config_of("reinforce_plus_plus_baseline"), [False, False, False, False, True]),
    ],
)
def test_rows_have_no_advantage_where_nothing_differs_in_their_group(config: Any, silent: list[bool]) -> None:
    batch = batch_of([0, 0, 1, 1, 2], rewards=np.array([0.9, 0.8, 0.9, 0.9, 1.0]))
    found = without_signal(batch, config)
    assert found.tolist() == silent
    factors = row_factors(
        batch, np.arange(5), np.ones(5, dtype=int), neyman.preset("vip"), "sequence_mean", silent=found
    )
    assert ((factors == 0.0) == found).all()


def test_verl_gives_equal_rewards_the_rounding_error_of_their_mean() -> None:
    """What the factor of 0 is for; should verl mend it, the factor changes nothing any more."""
    from verl.trainer.ppo.core_algos import compute_grpo_outcome_advantage

    scores = torch.full((6, 1), 0.9)
    theirs, _ = compute_grpo_outcome_advantage(
        scores, torch.ones(6, 1), index=np.array(["g"] * 6, dtype=object)
    )
    assert theirs.abs().max() > 0.01


def test_excluded_groups_do_not_dilute() -> None:
    batch = batch_of([0, 0, 1, 1], weights=[1, 1, 0, 0])
    factors = row_factors(
        batch,
        np.arange(4),
        np.ones(4, dtype=int),
        neyman.preset("vip"),
        "sequence_mean",
        silent=np.zeros(4, dtype=bool),
    )
    assert factors.tolist() == [2.0, 2.0, 0.0, 0.0]


@pytest.mark.parametrize(("name", "estimator"), [("grpo", "grpo"), ("rloo", "rloo")])
def test_spares_count_in_the_baseline_by_verl_s_formula(name: str, estimator: str) -> None:
    """The rows' advantages with spares are those that verl gives when the spares stand in the batch."""
    from verl.trainer.ppo import core_algos

    rewards, groups = np.array([1.0, 0, 1, 0, 0, 1, 1]), np.array([0, 0, 1, 1, 0, 1, 1])
    batch = batch_of(
        [0, 0, 1, 1], rewards=rewards[:4],
        spare_ids=np.array([7, 8, 9]), spare_groups=groups[4:], spare_rewards=rewards[4:],
    )  # fmt: skip
    compute = {
        "grpo": core_algos.compute_grpo_outcome_advantage,
        "rloo": core_algos.compute_rloo_outcome_advantage,
    }[name]
    scores = torch.as_tensor(rewards)[:, None].float()
    theirs, _ = compute(
        scores, torch.ones_like(scores), index=np.array([f"g{g}" for g in groups], dtype=object)
    )
    assert with_spares(batch, estimator) == pytest.approx(theirs[:4, 0].numpy(), abs=1e-5)


@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [
        ("grpo", {}, "grpo"),
        ("grpo", {"norm_adv_by_std_in_grpo": False}, "dr_grpo"),
        ("grpo_vectorized", {"norm_adv_by_std_in_grpo": False}, "grpo"),
        ("rloo", {}, "rloo"),
        ("reinforce_plus_plus", {}, "reinforce++"),
        ("gae", {}, "rloo"),
        ("my_own", {}, "rloo"),
    ],
)
def test_verl_s_estimators_have_their_names_here(name: str, options: dict[str, Any], expected: str) -> None:
    assert estimator_of(config_of(name, **options)) == expected


def test_an_unknown_loss_is_refused() -> None:
    with pytest.raises(ArgumentError, match=r"loss_agg_mode must be one of .* got 'median'"):
        aggregation_of(config_of(mode="median"))
    with pytest.raises(ArgumentError, match="got 'token-sum'"):
        aggregation_of(config_of(mode="token-sum"))


def test_a_baseline_over_untrained_rollouts_needs_an_estimator_that_has_one() -> None:
    assert baseline_problem(config_of("rloo")) is None
    assert "adv_estimator=grpo and rloo, got gae" in (baseline_problem(config_of("gae")) or "")
    assert "use_kl_in_reward=true" in (baseline_problem(config_of("grpo", use_kl_in_reward=True)) or "")
