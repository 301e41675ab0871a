"""The parts of an adapter that stand once: each held against the words of both trainers."""

from __future__ import annotations

import numpy as np
import pytest

import neyman
from neyman.errors import ArgumentError, ContractError, RunFailedError
from neyman.hosts.alarms import Alarms
from neyman.hosts.budget import rollouts_per_step
from neyman.hosts.outcomes import outcome
from neyman.hosts.prompts import prompt_text
from neyman.hosts.refusals import check_baseline, check_prompt_weight, check_prompts
from neyman.hosts.success import reaches, read_binary
from neyman.hosts.terms import Terms
from neyman.hosts.weights import row_weights


def terms(**changes):
    options = {
        "rows": 32,
        "group_size": 8,
        "aggregation": "sequence_mean",
        "batch": "batch",
        "group_setting": "--group-size",
        "batch_settings": "--prompts",
        "loss_setting": "--loss tokens",
        "max_rollouts": "--max-rollouts",
        "option": "--option.{name}={value}",
        "accept_change": "give --accept",
        "new_run": "start a new run",
        "filler": "copies",
    }
    return Terms(**{**options, **changes})


def test_the_budget_is_the_rows_or_what_may_be_drawn_to_fill_them():
    vip, sara = neyman.preset("vip"), neyman.preset("sara")
    assert [rollouts_per_step(vip, None, terms()), rollouts_per_step(sara, None, terms())] == [32, 128]
    assert rollouts_per_step(sara, 40, terms()) == 40
    with pytest.raises(
        ArgumentError, match=r"--max-rollouts=64 is for .*exactly the 32 .*change --group-size or"
    ):
        rollouts_per_step(vip, 64, terms())
    with pytest.raises(
        ArgumentError, match=r"--max-rollouts must be at least the 32 rows .* leave it out for 128"
    ):
        rollouts_per_step(sara, 31, terms())
    with pytest.raises(ArgumentError, match="--max-rollouts"):
        rollouts_per_step(sara, 40.5, terms())


def test_a_threshold_is_reached_in_float32_too():
    assert reaches(float(np.float32(0.9)), 0.9, "acc=") is True
    assert reaches(0.89, 0.9, "acc=") is False
    for value in (None, float("nan")):
        missing = reaches(value, 0.9, "acc=")
        assert isinstance(missing, neyman.MissingReward)
        assert missing.why == f"acc={value}"


def test_a_reward_that_is_not_binary_is_refused_with_the_trainers_way_out():
    assert [read_binary(reward, "f", "name it") for reward in (1.0, 0.0, -1.0)] == [True, False, False]
    with pytest.raises(ContractError, match=r"f returned 0\.3, which is not binary .*: name it"):
        read_binary(0.3, "f", "name it")


@pytest.mark.parametrize(
    ("reward", "verdict", "cause"),
    [
        (neyman.MissingReward("no verdict in 5 s", status="timeout"), None, "no verdict in 5 s"),
        (1.0, neyman.MissingReward("success could not judge the completion"), "success could not judge the completion"),
        (float("nan"), None, "its reward is nan"),
        (float("inf"), None, "its reward is inf"),
        (float("nan"), neyman.MissingReward("the verifier died"), "the verifier died"),
    ],
)  # fmt: skip
def test_a_result_is_missing_where_its_reward_or_its_verdict_is(reward, verdict, cause):
    found = outcome(4, "prompt", reward, verdict, 7)
    assert (found.rollout_id, found.prompt_id, found.n_tokens, found.success) == (4, "prompt", 7, None)
    assert isinstance(found.reward, neyman.MissingReward)
    assert found.reward.why == cause
    assert outcome(4, "prompt", 0.5, np.bool_(True), 7).success is True
    assert outcome(4, "prompt", 0.5, None, 7).reward == 0.5


def test_prompts_are_text_without_what_has_no_fixed_form():
    image = [{"type": "image", "image": object()}, {"type": "text", "text": "Which?"}]
    assert prompt_text("plain") == "plain"
    assert prompt_text([{"role": "user", "content": image}], between_parts=" ") == " Which?"
    assert prompt_text([{"content": "a"}, {"content": None}, "b"]) == "a\nNone\nb"


def test_refusals_have_the_trainers_words():
    with pytest.raises(
        ArgumentError, match=r"3 prompts, and a batch of 32 rows with --group-size=8 takes 4 .*: less"
    ):
        check_prompts(3, terms(), "less")
    check_prompts(4, terms(), "less")
    equal_tokens = neyman.preset("vip", prompt_weight="equal_tokens")
    check_prompt_weight(equal_tokens, terms(aggregation="token_mean"))
    with pytest.raises(ArgumentError, match=r"set --loss tokens, or --option.prompt_weight=equal, which"):
        check_prompt_weight(equal_tokens, terms())
    ada = neyman.preset("reinforce-ada")
    check_baseline(ada, terms(), None)
    check_baseline(neyman.preset("vip"), terms(), "no critic has one")
    with pytest.raises(
        ArgumentError, match=r"\(baseline='group'\), and no critic has one, or --option.baseline=rows"
    ):
        check_baseline(ada, terms(), "no critic has one")


def run(rewards, steps, strategy="uniform", fill="copies", budget=32):
    """Run steps whose rollouts get these rewards in turn; return the warnings."""
    controller = neyman.Controller(
        neyman.preset(strategy),
        neyman.Budget(rollouts=budget),
        train_rows=32,
        pool=range(12),
        fill=fill,
        retries=0.0,
    )
    warnings = []
    alarms = Alarms(controller, budget, terms(), warnings.append)
    for _ in range(steps):
        controller.begin(range(4))
        while not controller.is_done:
            controller.tell(
                neyman.Outcome(
                    rollout_id=i, prompt_id=request.prompt_id, reward=rewards(request.prompt_id, i)
                )
                for request in controller.ask()
                for i in request.rollout_ids
            )
        alarms.check(controller.finish())
    return warnings


@pytest.mark.parametrize("fill", ["copies", "none"])
def test_steps_without_a_result_are_warned_of_ever_less_often_and_end_the_run(fill):
    nothing = lambda prompt, rollout: neyman.MissingReward("the verifier is down")  # noqa: E731
    warnings = run(nothing, 9, fill=fill)
    assert [text.partition(":")[0] for text in warnings] == ["step 0", "step 1", "step 3", "step 7"]
    assert (
        "no rollout has a valid reward, of 32 drawn (the first: the verifier is down); the batch"
        in warnings[0]
    )
    with pytest.raises(
        RunFailedError, match=r"10 steps in a row, to step 9, .*the first: the verifier is down"
    ):
        run(nothing, 10, fill=fill)
    sometimes = lambda prompt, rollout: None if rollout // 32 % 10 else float(rollout % 2)  # noqa: E731
    assert len(run(sometimes, 30, fill=fill)) == 5


def test_steps_without_a_group_to_train_say_so_where_nothing_fills_the_batch():
    """In verl; in TRL copies of weight zero fill it, and the run goes on."""
    never = lambda prompt, rollout: 0.0  # noqa: E731
    with pytest.raises(
        RunFailedError, match=r"no group has both outcomes, of .*Raise --max-rollouts or --group-size"
    ):
        run(never, 10, "dynamic-sampling", "none", budget=64)


@pytest.mark.parametrize("fill", ["copies", "none"])
def test_a_batch_mostly_of_filler_is_warned_of_once(fill):
    one_of_12 = lambda prompt, rollout: float(prompt == 0 and rollout % 2)  # noqa: E731
    (warning,) = run(one_of_12, 2, "dynamic-sampling", fill, budget=64)
    assert warning.startswith(
        "step 0: 24 of 32 rows are copies that only fill the batch, as 1 groups had both outcomes"
    )
    assert "--max-rollouts=64 were spent: raise --max-rollouts; or raise --group-size=8" in warning


def test_padding_of_the_trainers_own_has_no_weight_and_stands_in_the_divisor():
    controller = neyman.Controller(neyman.preset("uniform"), neyman.Budget(rollouts=4))
    controller.begin(["a", "b"])
    while not controller.is_done:
        controller.tell(
            neyman.Outcome(rollout_id=i, prompt_id=request.prompt_id, reward=float(i % 2))
            for request in controller.ask()
            for i in request.rollout_ids
        )
    batch, strategy = controller.finish(), neyman.preset("uniform")
    alike = row_weights(batch, np.ones(4, dtype=np.int64), strategy, "sequence_mean")
    padded = row_weights(
        batch, np.ones(6, dtype=np.int64), strategy, "sequence_mean", places=np.array([3, -1, 0, 1, -1, 2])
    )
    assert alike.tolist() == [1.0] * 4
    assert padded.tolist() == [1.5, 0.0, 1.5, 1.5, 0.0, 1.5]
