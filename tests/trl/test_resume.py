"""A run resumed from any checkpoint equals the run that was never stopped, also in the middle of a generation."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from safetensors.torch import save_file

import neyman
from neyman._files import checkpoints
from neyman.errors import StateError
from neyman.modulation import Modulation
from neyman.trl import last_checkpoint

CLOCKS = ("step_time", "runtime", "per_second", "generation_seconds")
# Four steps per generation and a checkpoint every third: checkpoint 3 lies in the middle of a generation.
SAVING = {"per_device_train_batch_size": 8, "steps_per_generation": 4, "max_steps": 8, "save_strategy": "steps",
          "save_steps": 3}  # fmt: skip
STRATEGIES = {
    "uniform": (lambda: neyman.preset("uniform"), {}),
    "vip": (lambda: neyman.preset("vip", lower=3, belief=neyman.beliefs.Counts()), {}),
    "sara": (lambda: neyman.preset("sara"), {}),
    "sara, surplus carried over": (lambda: neyman.preset("sara", max_age=2), {}),
    "neyman": (lambda: neyman.preset("neyman", belief=neyman.beliefs.Counts()), {}),
    "dynamo, lagged extremes": (
        lambda: neyman.preset(
            "dynamo", lower=2, modulation=Modulation(variant="published", extremes="lagged")
        ),
        {"gradient_accumulation_steps": 2},
    ),
}


def logs(trainer):
    return [
        {name: value for name, value in entry.items() if not any(clock in name for clock in CLOCKS)}
        for entry in trainer.state.log_history
        if "loss" in entry
    ]


@pytest.mark.slow
@pytest.mark.parametrize("name", STRATEGIES)
def test_resumed_equals_never_stopped(bench, tmp_path, name):
    strategy, options = STRATEGIES[name]
    whole = bench.build(strategy=strategy(), output_dir=str(tmp_path / "whole"), **SAVING, **options).trainer
    whole.train()
    checkpoint = tmp_path / "resumed" / "checkpoint-3"
    shutil.copytree(tmp_path / "whole" / "checkpoint-3", checkpoint)
    resumed = bench.build(
        strategy=strategy(), output_dir=str(tmp_path / "resumed"), **SAVING, **options
    ).trainer
    resumed.train(resume_from_checkpoint=str(checkpoint))
    assert logs(whole) == logs(resumed)
    assert json.dumps(whole.controller.state_dict()) == json.dumps(resumed.controller.state_dict())
    for expected, actual in zip(whole.model.parameters(), resumed.model.parameters(), strict=True):
        assert expected.equal(actual)


@pytest.fixture(scope="module")
def checkpoint(bench, tmp_path_factory):
    out = tmp_path_factory.mktemp("damage")
    bench.build(strategy=neyman.preset("uniform"), output_dir=str(out), **SAVING).trainer.train()
    return out / "checkpoint-3"


def truncate(folder: Path) -> None:
    path = folder / "neyman_state.json"
    path.write_bytes(path.read_bytes()[:-20])


def forget(folder: Path) -> None:
    (folder / "neyman_state.json").unlink()


def be_unfinished(folder: Path) -> None:
    checkpoints.begin(folder)


def grow_newer(folder: Path) -> None:
    path = folder / "neyman_state.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "version": 99}))


def flip_a_digit(folder: Path) -> None:
    path = folder / "neyman_state.json"
    state = path.read_text()
    assert '"next_rollout": 32' in state
    path.write_text(state.replace('"next_rollout": 32', '"next_rollout": 33'))


def shorten_the_weights(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1])


def lose_the_optimizer(folder: Path) -> None:
    (folder / "optimizer.pt").unlink()


def change_ranks(folder: Path) -> None:
    edit(folder, processes=2)


def change_data(folder: Path) -> None:
    edit(folder, prompts="another")


def spoil_controller(folder: Path) -> None:
    controller = checkpoints.check(folder)["controller"]
    del controller["ledger"]
    edit(folder, controller=controller)


def lose_controller(folder: Path) -> None:
    state = checkpoints.check(folder)
    del state["controller"]
    checkpoints.seal(folder, state)


def lose_strategy(folder: Path) -> None:
    edit(folder, strategy=None)


def truncate_tensors(folder: Path) -> None:
    path = folder / "neyman_process0.safetensors"
    path.write_bytes(path.read_bytes()[:50])


def flip_a_bit_of_the_tensors(folder: Path) -> None:
    path = folder / "neyman_process0.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def replace_tensors(folder: Path) -> None:
    import torch

    state = checkpoints.check(folder)
    save_file({"x": torch.zeros(1)}, folder / "neyman_process0.safetensors")
    checkpoints.seal(folder, state)


def edit(folder: Path, **fields) -> None:
    """Write the state anew, with other content and the checksum that belongs to it."""
    checkpoints.seal(folder, {**checkpoints.check(folder), **fields})


DAMAGES = {
    truncate: "neyman_state.json is damaged",
    forget: "neyman_state.json is missing: neyman did not finish",
    be_unfinished: "neyman_state.json is missing: the checkpoint is unfinished, as the run died",
    grow_newer: "neyman_state.json has version 99, this neyman reads version 4",
    flip_a_digit: "neyman_state.json is damaged: its content does not have the checksum",
    shorten_the_weights: "model.safetensors is damaged: it has",
    lose_the_optimizer: "optimizer.pt is missing",
    change_ranks: "processes 2",
    change_data: "prompts 'another', this run has .* it is of another dataset; resume with that of the run",
    lose_strategy: "another strategy .strategy: None there",
    spoil_controller: "ledger",
    lose_controller: "neyman_state.json lacks controller",
    truncate_tensors: "neyman_process0.safetensors is damaged: it has 50 bytes",
    flip_a_bit_of_the_tensors: "neyman_process0.safetensors is damaged: it is not what was written",
    replace_tensors: "neyman_process0.safetensors cannot be read",
}


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda f: f.__name__)
def test_a_damaged_or_foreign_checkpoint_is_refused_by_name(bench, checkpoint, tmp_path, damage):
    copy = tmp_path / "checkpoint-3"
    shutil.copytree(checkpoint, copy)
    damage(copy)
    trainer = bench.build(strategy=neyman.preset("uniform"), output_dir=str(tmp_path), **SAVING).trainer
    with pytest.raises(StateError, match=DAMAGES[damage]) as caught:
        trainer.train(resume_from_checkpoint=str(copy))
    assert str(copy) in str(caught.value)
    assert any(way in str(caught.value) for way in ("start a new run", "resume with"))


def vip(**options):
    return neyman.preset("vip", **{"lower": 3, "belief": neyman.beliefs.Counts(), **options})


CHANGES = {
    "another bound": (lambda: vip(lower=2), "allocate.lower: 3 there, 2 here"),
    "another preset": (lambda: neyman.preset("neyman"), "'neyman' here; select: InOrder there, Revisit here"),
    "another allocation": (lambda: neyman.preset("uniform"), "allocate: VarianceOptimal there, Each here"),
    "another belief": (lambda: vip(belief=neyman.beliefs.default()), "belief: Counts there, ModelAverage here"),
    "another discount": (lambda: vip(belief=neyman.beliefs.Counts(discount=0.5)), "belief.config.discount: 0.9 there"),
    "a verdict": (lambda: vip(verdict=neyman.rules.FullGroup()), "verdict: None there, FullGroup here"),
    "a token factor": (lambda: vip(modulation=Modulation()), "modulation: None there, Modulation here"),
}  # fmt: skip


@pytest.fixture(scope="module")
def under_vip(bench, tmp_path_factory):
    out = tmp_path_factory.mktemp("vip")
    bench.build(
        strategy=vip(), output_dir=str(out), **{**SAVING, "max_steps": 4, "save_steps": 4}
    ).trainer.train()
    return out / "checkpoint-4"


@pytest.mark.parametrize("change", CHANGES)
def test_another_strategy_is_refused_with_what_differs_and_may_be_accepted(
    bench, under_vip, tmp_path, change, caplog
):
    make, said = CHANGES[change]
    options = {**SAVING, "output_dir": str(tmp_path), "max_steps": 8}
    trainer = bench.build(strategy=make(), **options).trainer
    with pytest.raises(StateError) as caught:
        trainer.train(resume_from_checkpoint=str(under_vip))
    assert f"{under_vip}/neyman_state.json: the run was trained under another strategy (" in str(caught.value)
    assert said in str(caught.value)
    assert "accept_strategy_change=True" in str(caught.value)
    caplog.clear()
    accepted = bench.build(strategy=make(), ours={"accept_strategy_change": True}, **options).trainer
    accepted.train(resume_from_checkpoint=str(under_vip))
    assert accepted.controller.step == 1
    assert accepted.controller.ledger.steps == 2
    messages = [record.getMessage() for record in caplog.records if record.name == "neyman"]
    is_other_belief = make().belief.state_dict() != vip().belief.state_dict()
    assert any("another belief now, which starts anew" in message for message in messages) == is_other_belief


def test_groups_carried_over_are_not_dropped_by_a_change_of_strategy(bench, under_vip, tmp_path):
    copy = tmp_path / "checkpoint-4"
    shutil.copytree(under_vip, copy)
    controller = checkpoints.check(copy)["controller"]
    edit(copy, controller={**controller, "carried": [{}, {}]})
    options = {**SAVING, "output_dir": str(tmp_path), "ours": {"accept_strategy_change": True}}
    trainer = bench.build(strategy=vip(lower=2), **options).trainer
    with pytest.raises(
        StateError, match=r"carries 2 groups over .* max_age=0 .* resume under a strategy with max_age=1"
    ):
        trainer.train(resume_from_checkpoint=str(copy))


def test_the_same_strategy_made_again_is_the_same(bench, under_vip, tmp_path):
    trainer = bench.build(strategy=vip(), **{**SAVING, "output_dir": str(tmp_path)}).trainer
    trainer.train(resume_from_checkpoint=str(under_vip))
    assert trainer.controller.step == 1


RECUTS = {
    "fewer, longer steps": {"per_device_train_batch_size": 16, "steps_per_generation": 2},
    "more, shorter steps": {"per_device_train_batch_size": 4, "steps_per_generation": 8},
    "a larger batch": {"per_device_train_batch_size": 16},
    "more iterations": {"num_iterations": 2},
}


@pytest.mark.parametrize("change", RECUTS.values(), ids=RECUTS)
def test_a_generation_half_used_is_not_cut_otherwise(bench, checkpoint, tmp_path, change):
    options = {**SAVING, **change, "output_dir": str(tmp_path)}
    trainer = bench.build(strategy=neyman.preset("uniform"), **options).trainer
    with pytest.raises(StateError, match=r"half used, cut with .*, here"):
        trainer.train(resume_from_checkpoint=str(checkpoint))


@pytest.mark.parametrize("change", RECUTS.values(), ids=RECUTS)
def test_between_two_generations_the_cut_may_change(bench, tmp_path, change):
    options = {**SAVING, "save_steps": 4, "max_steps": 4, "output_dir": str(tmp_path)}
    bench.build(strategy=neyman.preset("uniform"), **options).trainer.train()
    run = bench.build(strategy=neyman.preset("uniform"), **{**options, **change, "max_steps": 8})
    run.trainer.train(resume_from_checkpoint=str(tmp_path / "checkpoint-4"))
    every = run.trainer.args.steps_per_generation * run.trainer.num_iterations
    assert len(run.batches) == -(-4 // every)
    assert run.trainer.controller.step == len(run.batches)


ONE_KEPT = {**SAVING, "save_steps": 1, "max_steps": 3, "save_total_limit": 1}


def test_the_last_checkpoint_goes_only_when_the_next_is_whole(bench, tmp_path, monkeypatch):
    """A kill between the trainer's files and ours, with one checkpoint kept, must not cost both."""
    run = bench.build(strategy=neyman.preset("uniform"), output_dir=str(tmp_path), **ONE_KEPT)
    seal, seen = checkpoints.seal, []

    def sealed(folder, state):
        seen.append(
            (checkpoints.last_whole(tmp_path), sorted(path.name for path in tmp_path.glob("checkpoint-*")))
        )
        seal(folder, state)

    monkeypatch.setattr(checkpoints, "seal", sealed)
    run.trainer.train()
    assert seen == [
        (None, ["checkpoint-1"]),
        (tmp_path / "checkpoint-1", ["checkpoint-1", "checkpoint-2"]),
        (tmp_path / "checkpoint-2", ["checkpoint-2", "checkpoint-3"]),
    ]
    assert [path.name for path in tmp_path.glob("checkpoint-*")] == ["checkpoint-3"]
    assert run.trainer.args.save_total_limit == 1


def test_what_is_pushed_to_a_hub_is_whole(bench, tmp_path, monkeypatch):
    run = bench.build(strategy=neyman.preset("uniform"), output_dir=str(tmp_path), **ONE_KEPT)
    pushed = []
    monkeypatch.setattr(
        "transformers.Trainer._push_from_checkpoint",
        lambda self, folder: pushed.append(last_checkpoint(tmp_path)),
    )
    monkeypatch.setattr(run.trainer.args, "push_to_hub", True)
    monkeypatch.setattr(run.trainer, "push_to_hub", lambda *args, **kwargs: None)
    run.trainer.train()
    assert pushed == [str(tmp_path / f"checkpoint-{step}") for step in (1, 2, 3)]


class DiedError(Exception):
    """Stands for a kill."""


def die(*args, **kwargs):
    raise DiedError


@pytest.mark.parametrize("dies_in", ["_save_optimizer_and_scheduler", "_save_rng_state"])
def test_resume_takes_the_newest_whole_checkpoint_not_the_newest(
    bench, tmp_path, monkeypatch, caplog, dies_in
):
    options = {**SAVING, "output_dir": str(tmp_path), "save_steps": 4}
    run = bench.build(strategy=neyman.preset("uniform"), **options)
    assert last_checkpoint(tmp_path) is None
    with pytest.raises(
        StateError, match="holds no finished checkpoint to resume from: leave resume_from_checkpoint"
    ):
        run.trainer.train(resume_from_checkpoint=True)
    step_four = run.trainer._save_checkpoint

    def dies_later(*args, **kwargs):
        if run.trainer.state.global_step == 8:
            monkeypatch.setattr(run.trainer, dies_in, die)
        return step_four(*args, **kwargs)

    monkeypatch.setattr(run.trainer, "_save_checkpoint", dies_later)
    with pytest.raises(DiedError):
        run.trainer.train()
    assert (tmp_path / "checkpoint-8" / "model.safetensors").exists()
    assert last_checkpoint(tmp_path) == str(tmp_path / "checkpoint-4")
    assert "the run died while it wrote checkpoint-8; training goes on from checkpoint-4" in caplog.text
    resumed = bench.build(strategy=neyman.preset("uniform"), **options).trainer
    with pytest.raises(
        StateError, match=r"unfinished, as the run died .* Resume from .*checkpoint-4, the last whole"
    ):
        resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-8"))
    resumed.train(resume_from_checkpoint=True)
    assert resumed.controller.ledger.steps == 2
    assert last_checkpoint(tmp_path) == str(tmp_path / "checkpoint-8")


def test_nothing_is_loaded_from_a_checkpoint_that_is_refused(bench, checkpoint, tmp_path):
    copy = tmp_path / "checkpoint-3"
    shutil.copytree(checkpoint, copy)
    truncate(copy)
    trainer = bench.build(strategy=neyman.preset("uniform"), output_dir=str(tmp_path), **SAVING).trainer
    before = [parameter.clone() for parameter in trainer.model.parameters()]
    for wanted in (True, str(copy), copy):
        with pytest.raises(StateError, match=r"neyman_state.json is damaged"):
            trainer.train(resume_from_checkpoint=wanted)
    assert all(a.equal(b) for a, b in zip(before, trainer.model.parameters(), strict=True))
    assert trainer.state.global_step == 0
    trainer.train(resume_from_checkpoint=str(checkpoint))
    assert trainer.state.global_step == 8
