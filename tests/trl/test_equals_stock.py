"""With strategy "uniform" the adapted trainer is the stock trainer, bit for bit."""

from __future__ import annotations

from typing import Any

import pytest
from trl import GRPOTrainer, RLOOTrainer

import neyman
from neyman.trl._session import Session

SETTINGS = {
    "grpo-dapo": (GRPOTrainer, {}),
    "grpo-several-steps-per-generation": (
        GRPOTrainer,
        {
            "loss_type": "grpo",
            "scale_rewards": "none",
            "per_device_train_batch_size": 8,
            "steps_per_generation": 4,
            "max_steps": 6,
        },
    ),
    "grpo-batch-std": (GRPOTrainer, {"scale_rewards": "batch", "loss_type": "dr_grpo"}),
    "grpo-kl": (GRPOTrainer, {"beta": 0.1}),
    "grpo-two-iterations": (GRPOTrainer, {"num_iterations": 2, "max_steps": 4}),
    "rloo-kl-normalised": (RLOOTrainer, {"beta": 0.05, "normalize_advantages": True}),
    "rloo-clipped": (RLOOTrainer, {"reward_clip_range": (0.25, 0.75), "num_iterations": 2, "max_steps": 4}),
}


def completions_table(run: Any) -> dict[str, Any]:
    """Return what TRL's table of completions shows."""
    logs = run.trainer._logs
    rewards = {name: list(values) for name, values in logs["rewards"].items()}
    return {"rewards": rewards, **{name: list(logs[name]) for name in ("prompt", "completion", "advantages")}}


@pytest.fixture(scope="module")
def stock(bench: Any) -> Any:
    """Return the stock trainer's run of a setting, trained once."""
    runs: dict[str, Any] = {}

    def run(name: str) -> Any:
        if name not in runs:
            cls, options = SETTINGS[name]
            runs[name] = bench.train(cls, **options)
        return runs[name]

    return run


@pytest.mark.parametrize("name", SETTINGS)
def test_uniform_equals_the_stock_trainer_bit_for_bit(bench: Any, stock: Any, name: str) -> None:
    cls, options = SETTINGS[name]
    expected = stock(name)
    actual = bench.train(cls, neyman.preset("uniform"), **options)
    assert expected.comparable_logs() == actual.comparable_logs()
    assert expected.calls == actual.calls
    assert expected.trained() == actual.trained()
    for (batch, _), (ours, _) in zip(expected.batches, actual.batches, strict=True):
        assert batch["advantages"].tolist() == ours["advantages"].tolist()
    assert completions_table(expected) == completions_table(actual)
    after, ours = expected.weights(), actual.weights()
    assert all((after[key] == ours[key]).all() for key in after)


@pytest.mark.parametrize("name", SETTINGS)
def test_our_own_advantages_agree_with_the_stock_trainers(
    bench: Any, stock: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Session, "is_stock", lambda *_: False)
    cls, options = SETTINGS[name]
    expected = stock(name)
    actual = bench.train(cls, neyman.preset("uniform"), **options)
    (first, _), (ours, _) = expected.batches[0], actual.batches[0]
    assert first["completion_ids"].tolist() == ours["completion_ids"].tolist()
    assert ours["advantages"].abs().max() > 0.1
    assert first["advantages"].tolist() == pytest.approx(ours["advantages"].tolist(), abs=3e-6)
    assert expected.logs[0]["loss"] == pytest.approx(actual.logs[0]["loss"], abs=1e-5)
    assert expected.logs[0]["grad_norm"] == pytest.approx(actual.logs[0]["grad_norm"], rel=1e-4)
    assert expected.logs[0]["frac_reward_zero_std"] == pytest.approx(actual.logs[0]["frac_reward_zero_std"])


def test_evaluation_equals_the_stock_trainers(bench: Any) -> None:
    held_out = bench.dataset(48).select(range(40, 48))
    options: dict[str, Any] = {
        "host": {"eval_dataset": held_out},
        "eval_strategy": "steps",
        "eval_steps": 2,
        "per_device_eval_batch_size": 16,
        "num_generations_eval": 4,
        "max_steps": 3,
    }
    runs, plain = [], []
    for strategy in (None, neyman.preset("uniform")):
        run = bench.train(GRPOTrainer, strategy, **options)
        logs = [log for log in run.trainer.state.log_history if "eval_reward" in log]
        logs.append(run.trainer.evaluate())
        timed = ("runtime", "per_second")
        plain.append([{k: v for k, v in log.items() if not any(word in k for word in timed)} for log in logs])
        runs.append(run)
    assert len(plain[0]) >= 2
    assert plain[0] == plain[1]
    assert runs[0].calls == runs[1].calls
    assert runs[0].comparable_logs() == runs[1].comparable_logs()


def test_evaluation_is_the_trainers_own_under_any_strategy(bench: Any) -> None:
    held_out = bench.dataset(48).select(range(40, 48))
    run = bench.train(
        GRPOTrainer,
        neyman.preset("sara", max_age=0),
        host={"eval_dataset": held_out},
        per_device_eval_batch_size=16,
        num_generations_eval=4,
        max_steps=1,
    )
    requested, calls = run.trainer.controller.ledger.requested, len(run.calls)
    run.trainer.evaluate()
    metrics = run.trainer.state.log_history[-1]
    scored = [prompt for prompts, _ in run.calls[calls:] for prompt in prompts]
    assert sorted([*held_out["prompt"]] * 4) == sorted(scored)
    assert requested == run.trainer.controller.ledger.requested
    assert 0.0 <= metrics["eval_reward"] <= 1.0
