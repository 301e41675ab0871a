"""Prompts, token factor and checkpoint of the verl adapter, without workers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import neyman
from neyman.errors import ArgumentError, StateError
from neyman.modulation import ClipCov, EntropyAdvantage, ForkTokens, Modulation
from neyman.verl import _checkpoint
from neyman.verl._fit import open_run
from neyman.verl._prompts import NUMBER, Prompts, distinct, numbered
from neyman.verl._settings import Settings
from neyman.verl._tokens import modulation_of, token_factor


class Rows:
    """A dataset as verl's: chat messages, and an index that says nothing."""

    def __init__(self, count: int, word: str = "question") -> None:
        self._rows = [
            {"raw_prompt": [{"role": "user", "content": f"{word} {i}"}], "index": 0} for i in range(count)
        ]

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, place: int) -> dict[str, Any]:
        return self._rows[place]


def loader_of(dataset: Any) -> Any:
    from torchdata.stateful_dataloader import StatefulDataLoader
    from verl.utils.dataset.rl_dataset import collate_fn

    return StatefulDataLoader(dataset, batch_size=3, shuffle=True, drop_last=True, collate_fn=collate_fn)


def test_rows_carry_their_place_and_can_be_had_by_it() -> None:
    dataset = Rows(10)
    prompts = Prompts(dataset)
    for batch in numbered(loader_of(dataset)):
        again = prompts.rows([int(number) for number in batch[NUMBER]])
        assert [row[0]["content"] for row in again["raw_prompt"]] == [
            row[0]["content"] for row in batch["raw_prompt"]
        ]
        assert NUMBER not in again


def test_a_batch_holds_each_prompt_once() -> None:
    assert distinct([3, 5, 3, 4], 6) == [3, 5, 4, 0]
    assert distinct([1, 2], 6) == [1, 2]
    assert distinct([2, 2, 2], 3) == [2, 0, 1]


def test_the_digest_is_of_the_prompts_in_their_order() -> None:
    assert Prompts(Rows(5)).digest() == Prompts(Rows(5)).digest()
    assert Prompts(Rows(5)).digest() != Prompts(Rows(5, "task")).digest()
    assert Prompts(Rows(5)).digest() != Prompts(Rows(6)).digest()


def test_the_digest_takes_what_has_a_form_of_a_message_with_images() -> None:
    def with_image() -> Any:
        rows = Rows(1)
        rows[0]["raw_prompt"][0]["content"] = [
            {"type": "image", "image": object()},
            {"type": "text", "text": "What is this?"},
        ]
        return Prompts(rows)

    assert with_image().texts() == ["\nWhat is this?"]
    assert with_image().digest() == with_image().digest()


def lengths(texts: list[str]) -> Any:
    """Return features as a user's function may."""
    return np.array([[len(text), 1.0] for text in texts])


def test_features_of_a_user_s_function_reach_the_belief() -> None:
    belief = _run(neyman.preset("vip"), count=5, features=f"{__name__}:lengths").strategy.belief
    assert len(belief.predict([0, 4])[0]) == 2
    with pytest.raises(ArgumentError, match=r"must have shape \(5, F\).*got \(2, 2\)"):
        _run(neyman.preset("vip"), count=5, features=f"{__name__}:few")


def test_features_that_the_belief_makes_nothing_of_are_warned_of_and_not_computed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """As in TRL; a setting that is left over from another strategy must not cost an embedding."""
    _run(neyman.preset("uniform"), features=f"{__name__}:few")
    assert "the strategy's belief Counts makes nothing of them: leave features out" in caplog.text


def few(texts: list[str]) -> Any:
    return lengths(texts[:2])


def test_the_token_factor_is_dynamo_s_published_form_over_the_whole_step() -> None:
    from neyman.modulation import published_entropy_change, token_factors

    torch.manual_seed(0)
    logps, entropies = -torch.rand(4, 5), torch.rand(4, 5)
    mask, advantages = torch.ones(4, 5), torch.tensor([[1.0], [-1.0], [0.5], [0.0]]).expand(4, 5)
    mask[1, 3:] = 0
    modulation = Modulation(variant="published")
    found = token_factor(modulation, logps=logps, entropies=entropies, advantages=advantages, mask=mask)
    change = published_entropy_change(logps, entropies, mask, advantages)
    live = mask * (advantages != 0)
    from neyman.modulation import batch_extremes

    expected = token_factors(
        modulation, entropy=entropies, change=change, advantages=advantages, mask=mask,
        extremes=batch_extremes([(entropies, change, live)]),
    )  # fmt: skip
    assert torch.equal(found, expected)
    assert (found != 1).any()
    assert (found[mask == 0] == 1).all()
    assert (found[3] == 1).all()


def test_other_token_rules_take_the_entropies_of_the_step() -> None:
    from neyman.modulation import entropy_advantage_factor, fork_tokens_factor

    torch.manual_seed(1)
    entropies, mask = torch.rand(3, 4), torch.ones(3, 4)
    advantages = torch.tensor([[1.0], [-1.0], [0.5]]).expand(3, 4)
    given = {"logps": -entropies, "entropies": entropies, "advantages": advantages, "mask": mask}
    raised = token_factor(EntropyAdvantage(), **given)
    assert torch.equal(raised, entropy_advantage_factor(entropies, advantages, mask, 0.4, 2.0))
    assert torch.equal(token_factor(ForkTokens(), **given), fork_tokens_factor(entropies, mask, 0.2))
    for settings in (EntropyAdvantage(), ForkTokens()):
        assert modulation_of(_algorithm(), neyman.preset("vip", modulation=settings)) == settings


def _algorithm(**algorithm: Any) -> Any:
    return SimpleNamespace(algorithm=algorithm)


def test_the_exact_factor_gives_way_to_the_published_one_and_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    found = modulation_of(_algorithm(), neyman.preset("dynamo"))
    assert (found.variant, found.extremes) == ("published", "batch")
    assert "published form stands in" in caplog.text
    assert modulation_of(_algorithm(), neyman.preset("vip")) is None


def test_token_rules_that_verl_has_itself_or_cannot_feed_are_refused() -> None:
    with pytest.raises(ArgumentError, match="loss_mode=clip_cov or kl_cov"):
        modulation_of(_algorithm(), neyman.preset("vip", modulation=ClipCov()))
    with pytest.raises(ArgumentError, match="bypass_mode=true skips the pass that gives entropies"):
        modulation_of(_algorithm(rollout_correction={"bypass_mode": True}), neyman.preset("dynamo"))


def _config(batch: int = 4, n: int = 8, loss: str = "token-mean", estimator: str = "grpo") -> Any:
    from omegaconf import OmegaConf

    return OmegaConf.create(
        {
            "data": {"train_batch_size": batch},
            "actor_rollout_ref": {"rollout": {"n": n}, "actor": {"loss_agg_mode": loss}},
            "algorithm": {"adv_estimator": estimator, "use_kl_in_reward": False},
        }
    )


def _run(strategy: Any, config: Any = None, count: int = 20, word: str = "question", **settings: Any) -> Any:
    return open_run(config or _config(), Settings(**settings), strategy, Prompts(Rows(count, word)))


@pytest.mark.parametrize(
    ("strategy", "count", "message"),
    [
        (neyman.preset("ar3po"), 20, r"replay_age=64.*\+\+neyman\.options\.replay_age=0"),
        (neyman.preset("sara", max_age=2), 20, r"max_age=2.*\+\+neyman\.options\.max_age=0"),
        (neyman.preset("vip", lower=9), 20,
         r"does not fit the trainer's step of 32 rows \(actor_rollout_ref\.rollout\.n=8 x 4 prompts\): lower=9 "
         r"rollouts .* are 36; set actor_rollout_ref\.rollout\.n to 9 or more, or lower to 8 or less"),
        (neyman.preset("uniform"), 3, "has 3 prompts, and a step of 32 rows .* lower data.train_batch_size=4, or add"),
    ],
)  # fmt: skip
def test_a_strategy_that_does_not_fit_is_refused(strategy: Any, count: int, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        _run(strategy, count=count)


def test_a_baseline_that_a_critic_does_not_have_is_refused() -> None:
    _run(neyman.preset("reinforce-ada"))
    way_out = r"got gae: use one of them, or \+\+neyman\.options\.baseline=rows"
    with pytest.raises(ArgumentError, match=way_out):
        _run(neyman.preset("reinforce-ada"), _config(estimator="gae"))


def test_a_step_that_leaves_nothing_to_decide_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    """As in TRL, in verl's words."""
    _run(neyman.preset("vip", lower=8))
    assert (
        "'vip' has nothing to allocate: lower=8 for each of 4 prompts is the whole step of 32 rows"
        in caplog.text
    )
    assert "Lower it, or change actor_rollout_ref.rollout.n=8" in caplog.text


def _saved(folder: Path) -> Any:
    run = _run(neyman.preset("neyman"))
    controller = run.controller
    controller.begin(range(4))
    while not controller.is_done:
        controller.tell(
            neyman.Outcome(rollout_id=i, prompt_id=r.prompt_id, reward=float(i % 2))
            for r in controller.ask()
            for i in r.rollout_ids
        )
    controller.finish()
    _checkpoint.save(folder, run)
    return controller


def test_a_state_comes_back_as_it_was(tmp_path: Path) -> None:
    saved, fresh = _saved(tmp_path / "neyman"), _run(neyman.preset("neyman"))
    _checkpoint.load(tmp_path / "neyman", fresh, accepts_stock=False)
    assert fresh.controller.state_dict() == saved.state_dict()


def test_another_training_set_or_strategy_is_refused(tmp_path: Path) -> None:
    _saved(tmp_path / "neyman")
    others = _run(neyman.preset("neyman"), word="task")
    with pytest.raises(StateError, match=r"of another dataset; resume with that of the run, or .*data\.seed"):
        _checkpoint.load(tmp_path / "neyman", others, accepts_stock=False)
    changed = neyman.preset("neyman", revisit=5.0)
    with pytest.raises(StateError, match=r"under another strategy .*\+\+neyman\.accept_strategy_change=true"):
        _checkpoint.load(tmp_path / "neyman", _run(changed), accepts_stock=False)
    accepting = _run(changed, accept_strategy_change=True)
    _checkpoint.load(tmp_path / "neyman", accepting, accepts_stock=True)
    assert accepting.controller.step == 0


def test_a_damaged_state_is_refused_with_verl_s_ways_out(tmp_path: Path) -> None:
    _saved(tmp_path / "neyman")
    path = tmp_path / "neyman" / "neyman_state.json"
    state = json.loads(path.read_text())
    state["controller"]["step"] += 1
    path.write_text(json.dumps(state))
    with pytest.raises(
        StateError, match=r"checksum.*trainer\.resume_from_path.*trainer\.resume_mode=disable"
    ):
        _checkpoint.load(tmp_path / "neyman", _run(neyman.preset("neyman")), accepts_stock=False)


def test_a_checkpoint_of_verl_alone_is_taken_on_purpose_only(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fresh = _run(neyman.preset("neyman"))
    with pytest.raises(StateError, match=r"written without neyman.*trainer\.v1\.trainer_mode=sync"):
        _checkpoint.load(tmp_path / "neyman", fresh, accepts_stock=False)
    _checkpoint.load(tmp_path / "neyman", fresh, accepts_stock=True)
    assert "begins anew on its weights" in caplog.text


def test_tokens_weigh_alike_only_where_the_loss_is_a_mean_over_tokens() -> None:
    strategy = neyman.preset("vip", prompt_weight="equal_tokens")
    _run(strategy)
    with pytest.raises(
        ArgumentError, match=r"loss_agg_mode=token-mean.*\+\+neyman\.options\.prompt_weight=equal"
    ):
        _run(strategy, _config(loss="seq-mean-token-mean"))


def test_verl_finds_the_trainer_by_its_name_and_only_where_it_has_trainers() -> None:
    """In a fresh process, as verl's workers are: `import verl` alone must not bring the trainers of anybody."""
    script = """
import sys
import verl
assert "neyman.verl" in sys.modules
assert "verl.trainer.ppo.v1" not in sys.modules and "neyman.verl._trainer" not in sys.modules
from verl.trainer.ppo.v1 import get_trainer_cls
import neyman.verl
assert get_trainer_cls("neyman_sync") is neyman.verl.NeymanTrainerSync
"""
    environment = {**os.environ, "VERL_USE_EXTERNAL_MODULES": "", "VERL_PLATFORM": "nvidia"}
    subprocess.run([sys.executable, "-W", "ignore", "-c", script], check=True, env=environment)
