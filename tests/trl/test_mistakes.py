"""What users get wrong ends in an error that names the argument, the value and the way out."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from trl import GRPOTrainer, RLOOTrainer

import neyman
from neyman.errors import ArgumentError, InfeasibleError
from neyman.trl import adaptive


@pytest.mark.parametrize("cls", [GRPOTrainer, RLOOTrainer])
@pytest.mark.parametrize("strategy", [None, "vip"])
def test_a_missing_strategy(cls: Any, strategy: Any) -> None:
    given = {} if strategy is None else {"strategy": strategy}
    with pytest.raises(ArgumentError, match=rf"got {strategy!r}.*preset\('vip'.*preset\('uniform'\)"):
        adaptive(cls)(**given)


def test_a_class_that_is_no_such_trainer() -> None:
    with pytest.raises(
        ArgumentError, match=r"GRPOTrainer.*RLOOTrainer.*got <class 'torch.nn.*Linear'>.*lacks"
    ):
        adaptive(torch.nn.Linear)


def test_max_rollouts_where_spend_is_fixed(bench: Any) -> None:
    with pytest.raises(
        ArgumentError, match=r"max_rollouts=64.*'uniform'.*exactly the 32.*leave max_rollouts out"
    ):
        bench.build(GRPOTrainer, neyman.preset("uniform"), ours={"max_rollouts": 64})


@pytest.mark.parametrize("bound", [0, 16])
def test_max_rollouts_below_the_batch(bench: Any, bound: int) -> None:
    with pytest.raises(ArgumentError, match=rf"max_rollouts.*32 rows.*got {bound}; leave it out for 128"):
        bench.build(GRPOTrainer, neyman.preset("sara"), ours={"max_rollouts": bound})


def test_rows_that_groups_of_this_size_can_never_fill(bench: Any) -> None:
    run = bench.build(GRPOTrainer, neyman.preset("sara", group_size=5))
    with pytest.raises(ArgumentError, match=r"train_rows must be a multiple of .*5, got 32.*30.*35"):
        run.trainer.train()


@pytest.mark.parametrize(("lower", "upper"), [(10, 32), (3, 6)])
def test_bounds_that_do_not_fit_the_budget(bench: Any, lower: int, upper: int) -> None:
    strategy = neyman.preset("vip", lower=lower, upper=upper, belief=neyman.beliefs.Counts())
    run = bench.build(GRPOTrainer, strategy)
    with pytest.raises(InfeasibleError, match=r"budget.*32"):
        run.trainer.train()


def test_modulation_by_a_name(bench: Any) -> None:
    with pytest.raises(ArgumentError, match=r"modulation must be .* got 'dynamo'.*Modulation\(\)"):
        bench.build(GRPOTrainer, neyman.preset("uniform"), ours={"modulation": "dynamo"})


def test_features_of_another_number_of_prompts(bench: Any) -> None:
    with pytest.raises(ArgumentError, match=r"one row per training prompt \(40\), got shape \(3, 1\)"):
        bench.build(GRPOTrainer, neyman.preset("uniform"), ours={"features": [[1.0]] * 3})


def test_a_negative_share_of_retries(bench: Any) -> None:
    with pytest.raises(ArgumentError, match=r"retries.*-0.5"):
        bench.build(GRPOTrainer, neyman.preset("uniform"), ours={"retries": -0.5})


def test_an_argument_that_trl_does_not_know_is_trls_own_error(bench: Any) -> None:
    with pytest.raises(TypeError, match="sucess"):
        bench.build(GRPOTrainer, neyman.preset("uniform"), ours={"sucess": None})


def test_the_adapted_class_is_made_once_and_is_still_the_trainer() -> None:
    assert adaptive(GRPOTrainer) is adaptive(GRPOTrainer)
    assert issubclass(adaptive(GRPOTrainer), GRPOTrainer)
    assert adaptive(RLOOTrainer).__name__ == "AdaptiveRLOOTrainer"
