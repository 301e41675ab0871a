"""What users get wrong ends in an error that names the argument, the value and the way out."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from datasets import IterableDataset
from trl import GRPOTrainer, RLOOTrainer

import neyman
from neyman.errors import ArgumentError, InfeasibleError
from neyman.trl import adaptive


@pytest.mark.parametrize("cls", [GRPOTrainer, RLOOTrainer])
@pytest.mark.parametrize("strategy", [None, "vip", "sara"])
def test_a_missing_strategy(cls: Any, strategy: Any) -> None:
    given = {} if strategy is None else {"strategy": strategy}
    example = rf"preset\({(strategy or 'vip')!r}\).*preset\('uniform'\)"
    with pytest.raises(ArgumentError, match=rf"must be a neyman.Strategy, got {strategy!r}.*{example}"):
        adaptive(cls)(**given)


def test_a_class_that_is_no_such_trainer() -> None:
    with pytest.raises(
        ArgumentError, match=r"GRPOTrainer.*RLOOTrainer.*got <class 'torch.nn.*Linear'>.*lacks"
    ):
        adaptive(torch.nn.Linear)


def test_a_trainer_that_is_made_already(bench: Any) -> None:
    made = bench.build(GRPOTrainer).trainer
    with pytest.raises(
        ArgumentError, match=r"must be a class, got GRPOTrainer made already.*adaptive\(GRPOTrainer\)\("
    ):
        adaptive(made)


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
    with pytest.raises(
        ArgumentError, match=r"'sara' does not fit.* 32 rows.*multiple of .*5, got 32.*30.*35"
    ):
        bench.build(GRPOTrainer, neyman.preset("sara", group_size=5))


@pytest.mark.parametrize(
    ("options", "way_out"),
    [
        ({"lower": 10}, r"lower=10 .* 4 prompts are 40; set num_generations to 10 or more, or lower to 8 or less"),
        ({"lower": 3, "upper": 6}, r"upper=6 .* only 24; set num_generations to 6 or less, or upper to 8 or more"),
        ({"lower": 6, "prompts": 2.0}, r"lower=6 .* 8 prompts are 48; set num_generations to 12 or more"),
    ],
)  # fmt: skip
def test_bounds_that_do_not_fit_the_batch(bench: Any, options: Any, way_out: str) -> None:
    strategy = neyman.preset("vip", belief=neyman.beliefs.Counts(), **options)
    with pytest.raises(InfeasibleError, match=way_out) as caught:
        bench.build(GRPOTrainer, strategy)
    assert (
        "'vip' does not fit the trainer's generation batch of 32 rows (num_generations=8 x 4 prompts)"
        in str(caught.value)
    )
    assert "budget" not in str(caught.value)


@pytest.mark.parametrize("preset", ["uniform", "sara"])
def test_fewer_prompts_than_a_generation_batch_needs(bench: Any, preset: str) -> None:
    with pytest.raises(ArgumentError, match=r"has 3 prompts, and a generation batch of 32 rows .* takes 4"):
        bench.build(GRPOTrainer, neyman.preset(preset), dataset=bench.dataset(3))
    bench.build(GRPOTrainer, neyman.preset(preset), dataset=bench.dataset(4))


def warnings_of(caplog: Any) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "neyman"]


@pytest.mark.parametrize("name", ["vip", "dynamo"])
def test_a_batch_of_one_prompt_is_warned_of_once(bench: Any, caplog: Any, name: str) -> None:
    strategy = neyman.preset(name, upper=32)
    bench.train(GRPOTrainer, strategy, per_device_train_batch_size=8, max_steps=2)
    (message,) = warnings_of(caplog)
    assert f"{name!r} has nothing to allocate: a generation batch of 8 rows with num_generations=8" in message
    for setting in ("per_device_train_batch_size", "gradient_accumulation_steps", "steps_per_generation"):
        assert setting in message


@pytest.mark.parametrize(
    ("bounds", "said"), [((8, 32), "lower=8 .* Lower it"), ((2, 8), "upper=8 .* Raise it")]
)
def test_bounds_that_leave_no_choice_are_warned_of(bench: Any, caplog: Any, bounds: Any, said: str) -> None:
    bench.build(GRPOTrainer, neyman.preset("vip", lower=bounds[0], upper=bounds[1]))
    (message,) = warnings_of(caplog)
    assert re.search(rf"nothing to allocate: {said}", message)


@pytest.mark.parametrize("name", ["uniform", "vip", "sara", "neyman", "mopps"])
def test_a_batch_that_leaves_a_choice_is_not_warned_of(bench: Any, caplog: Any, name: str) -> None:
    bench.build(GRPOTrainer, neyman.preset(name))
    assert warnings_of(caplog) == []


def test_a_dataset_without_prompts_names_its_columns(bench: Any) -> None:
    renamed = bench.dataset().rename_column("prompt", "question")
    with pytest.raises(
        ArgumentError, match=r"no column 'prompt'.*has \['question', 'answer', 'number'\].*rename_col"
    ):
        bench.build(GRPOTrainer, neyman.preset("uniform"), dataset=renamed)


@pytest.mark.since_trl("1.10", "iterable datasets")
def test_a_stream_without_prompts_names_its_columns(bench: Any) -> None:
    rows = [{"question": row["prompt"], "answer": row["answer"]} for row in bench.dataset()]
    run = bench.build(
        GRPOTrainer, neyman.preset("uniform"), dataset=IterableDataset.from_generator(lambda: iter(rows))
    )
    with pytest.raises(ArgumentError, match=r"no column 'prompt'.*has \['question', 'answer'\]"):
        run.trainer.train()


def by_argument(
    prompts: list[Any], completions: list[Any], solution: list[Any], **columns: Any
) -> list[float]:
    return [0.0 for _ in solution]


def by_key(prompts: list[Any], completions: list[Any], **columns: Any) -> list[float]:
    return [0.0 for _ in columns["solution"]]


@pytest.mark.parametrize(("reward", "error"), [(by_argument, TypeError), (by_key, KeyError)])
def test_a_reward_function_that_lacks_a_column_is_told_which_there_are(
    bench: Any, reward: Any, error: type[Exception]
) -> None:
    run = bench.build(GRPOTrainer, neyman.preset("vip"), rewards=reward)
    with pytest.raises(error, match="solution") as caught:
        run.trainer.train()
    assert caught.value.__notes__ == [
        "neyman: the training dataset has the columns ['prompt', 'answer', 'number'], of which reward functions get "
        "['prompt', 'answer', 'number']"
    ]


def test_a_column_that_trl_removed_is_told_so(bench: Any) -> None:
    run = bench.build(GRPOTrainer, neyman.preset("vip"), rewards=by_argument, remove_unused_columns=True)
    with pytest.raises(TypeError) as caught:
        run.trainer.train()
    (note,) = caught.value.__notes__
    assert note.endswith(
        "get ['prompt']; remove_unused_columns=True keeps the others from them: set it to False"
    )


def test_modulation_by_a_name(bench: Any) -> None:
    with pytest.raises(ArgumentError, match=r"modulation must be .* got 'dynamo'.*Modulation\(\)"):
        bench.build(GRPOTrainer, neyman.preset("uniform"), ours={"modulation": "dynamo"})


def test_features_of_another_number_of_prompts(bench: Any) -> None:
    with pytest.raises(ArgumentError, match=r"one row per training prompt \(40\), got shape \(3, 1\)"):
        bench.build(GRPOTrainer, neyman.preset("uniform"), ours={"features": [[1.0]] * 3})


class Own(neyman.beliefs.Counts):
    """A belief of one's own that uses features."""

    uses_features = True


@pytest.mark.parametrize("features", [[[1.0]] * 40, lambda texts: 1 / 0, "all-MiniLM-L6-v2"])
def test_features_for_a_belief_that_makes_nothing_of_them(bench: Any, caplog: Any, features: Any) -> None:
    bench.build(GRPOTrainer, neyman.preset("uniform"), ours={"features": features})
    (message,) = warnings_of(caplog)
    assert "the strategy's belief Counts makes nothing of them: leave features out, or" in message


@pytest.mark.parametrize("belief", [Own(), neyman.beliefs.default()])
def test_features_for_a_belief_that_may_use_them(bench: Any, caplog: Any, belief: Any) -> None:
    bench.build(GRPOTrainer, neyman.preset("vip", belief=belief), ours={"features": [[1.0]] * 40})
    assert warnings_of(caplog) == []


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
