"""The loop: what it trains on, what it counts, and that a seed decides everything."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import neyman
from neyman.errors import ArgumentError
from neyman.lab import Experiment, experiment, run
from neyman.lab.experiment import play, policy_gradient
from neyman.lab.features import features
from neyman.lab.strategies import strategy_names
from neyman.lab.task import draw_prompts


def gradient_of(policy):
    return torch.cat([p.grad.flatten() for p in policy.parameters()]).clone()


def test_the_whole_loop_is_one_file_of_at_most_350_lines():
    assert len(Path(experiment.__file__).read_text().splitlines()) <= 350


def test_the_same_seed_gives_the_same_result_bit_for_bit_and_another_one_does_not(tiny, cache):
    first = run(tiny(strategy="neyman", features="metadata"), 3, cache=cache)
    again = run(tiny(strategy="neyman", features="metadata"), 3, cache=cache)
    assert json.dumps(first) == json.dumps(again)
    other = run(tiny(strategy="neyman", features="metadata"), 4, cache=cache)
    assert first["curve"] != other["curve"]


@pytest.mark.parametrize("name", strategy_names())
def test_every_strategy_runs_its_budget_and_accounts_for_it(name, tiny, cache):
    result = run(tiny(strategy=name), 0, cache=cache)
    spent = result["steps"]["rollouts"][-1]
    assert 128 <= spent < 128 + 4 * 32
    assert spent == sum(one["rollouts"] for one in result["account"].values())
    assert result["curve"]["rollouts"][0] == 0
    assert result["curve"]["rollouts"][-1] == spent
    assert result["curve"]["tokens"][-1] == 4 * spent
    assert all(0.0 <= value <= 1.0 for value in result["curve"]["accuracy"])
    assert json.loads(json.dumps(result, allow_nan=False)) == result


def test_strategies_start_from_the_same_policy_and_see_the_same_prompts_first(tiny, cache):
    one, other = (run(tiny(strategy=name), 0, cache=cache) for name in ("uniform", "vip"))
    assert one["curve"]["accuracy"][0] == other["curve"]["accuracy"][0]


@pytest.mark.parametrize("estimator", ["rloo", "grpo", "dr_grpo"])
def test_the_loss_is_the_mean_over_prompts_of_each_groups_mean(estimator, tiny, policy):
    prompts, _ = draw_prompts(16, 1)
    strategy = neyman.preset("vip", lower=3, upper=9, estimator=estimator)
    strategy.belief.update(list(range(6)), [0, 1, 2, 3, 4, 4], [4] * 6)  # so that counts differ
    controller = neyman.Controller(strategy, neyman.Budget(rollouts=30), seed=1)
    controller.begin(list(range(6)))
    played = play(policy, prompts, controller.ask(), tiny())
    controller.tell(played.outcomes)
    batch = controller.finish()
    sizes = np.bincount(batch.groups)
    assert sizes.min() < sizes.max()
    assert np.any(batch.advantages)
    policy.zero_grad()
    policy_gradient(policy, prompts, batch, played.answers)
    ours = gradient_of(policy)

    policy.zero_grad()
    groups = []
    for group in range(len(sizes)):
        rows = np.flatnonzero(batch.groups == group)
        terms = []
        for row in rows:
            prompt, answer = played.answers[int(batch.rollout_ids[row])]
            tokens = torch.cat([prompts.tokens[prompt], answer[:-1]])[None]
            hidden, _ = policy.read(tokens, keep=4)
            log_p = policy.head(hidden).log_softmax(-1)[0].gather(-1, answer[:, None])
            terms.append(-float(batch.advantages[row]) * log_p.mean())
        groups.append(torch.stack(terms).mean())
    torch.stack(groups).mean().backward()
    torch.testing.assert_close(ours, gradient_of(policy), rtol=1e-3, atol=1e-6)


def test_failing_answers_cost_the_tokens_that_they_are_charged(tiny, cache):
    result = run(tiny(failure_tokens=20), 0, cache=cache)
    right = sum(np.array(result["steps"]["success_rate"]) * 32)
    expected = 4 * right + 20 * (result["steps"]["rollouts"][-1] - right)
    assert result["curve"]["tokens"][-1] == pytest.approx(expected)


def test_a_verifier_that_always_errs_turns_every_verdict_round(tiny, cache):
    honest = run(tiny(rollouts=32), 0, cache=cache)
    lying = run(tiny(rollouts=32, reward_noise=1.0), 0, cache=cache)
    assert lying["steps"]["success_rate"][0] == pytest.approx(1.0 - honest["steps"]["success_rate"][0])


def test_drift_moves_the_policy_reproducibly(tiny, cache):
    still, moved, again = (run(tiny(drift=drift), 0, cache=cache) for drift in (0.0, 2.0, 2.0))
    assert moved["curve"] == again["curve"]
    assert moved["curve"]["accuracy"][1:] != still["curve"]["accuracy"][1:]


def test_a_strategy_object_runs_in_place_of_a_name(tiny, cache):
    by_name = run(tiny(strategy="vip"), 0, cache=cache)
    strategy = neyman.preset("vip", lower=2, estimator="rloo")
    assert run(tiny(), 0, strategy=strategy, cache=cache)["curve"] == by_name["curve"]


def test_features_have_a_finite_row_per_prompt(policy):
    prompts, _ = draw_prompts(12, 1)
    assert features("none", policy, prompts) is None
    for kind in ("metadata", "hidden"):
        table = features(kind, policy, prompts)
        assert table.shape[0] == 12
        assert np.isfinite(table).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"features": "all"}, "features must be one of"),
        ({"estimator": "ppo"}, "estimator must be one of"),
        ({"prompts": 65}, "prompts must be <= pool=64"),
        ({"reward_noise": 2.0}, "reward_noise"),
        ({"group_size": 1}, "group_size"),
    ],
)
def test_what_is_wrong_is_named(options, message, tiny):
    with pytest.raises(ArgumentError, match=message):
        tiny(**options)


def test_unknown_strategies_and_options_are_named(tiny, cache):
    with pytest.raises(ArgumentError, match="strategy must be one of uniform"):
        run(tiny(strategy="best"), 0, cache=cache)
    with pytest.raises(ArgumentError, match="'oracle' has no option size"):
        run(tiny(strategy="oracle", options={"size": 3}), 0, cache=cache)


def test_threads_are_as_before_after_a_run(tiny, cache):
    before = torch.get_num_threads()
    run(tiny(rollouts=32), 0, cache=cache)
    assert torch.get_num_threads() == before


def test_the_defaults_are_the_quickstart_regime():
    experiment = Experiment()
    assert (experiment.prompts, experiment.group_size, experiment.rollouts) == (32, 4, 24_000)


def test_without_torch_the_error_has_the_pip_command():
    code = "import sys; sys.modules['torch'] = None; import neyman.lab"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "neyman.lab needs torch, which is not installed: run pip install '.[train]'" in done.stderr
