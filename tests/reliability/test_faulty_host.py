"""Under every fault at every rate: nothing is lost or counted twice, and nothing missing is learnt from."""

from __future__ import annotations

from collections import Counter

import pytest

from neyman.step.ledger import Fate
from neyman.step.messages import StopReason
from reliability.faulty_host import (
    BUDGET,
    FAULTS,
    MISSING,
    RATES,
    REFUSED,
    STEPS,
    STRATEGIES,
    FaultyHost,
    controller_of,
    differences,
    drive,
)
from strategies import assert_consistent


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("fault", FAULTS)
def test_the_ledger_says_what_the_host_says(fault, rate):
    # Half of the strategies at each rate, so that each meets every fault at two of them.
    for seed, name in enumerate(list(STRATEGIES)[RATES.index(rate) % 2 :: 2]):
        host, controller = FaultyHost(fault, rate, seed=seed), controller_of(name, seed)
        host.watch = assert_consistent
        for step in range(STEPS):
            batch = host.step(controller, [(8 * step + i) % 60 for i in range(8)])
            assert_consistent(controller)
            valid = {i for i, fate in host.account.items() if fate == "valid"}
            assert set(batch.rollout_ids[batch.counted].tolist()) <= valid
        assert differences(host, controller) == [], name


def test_what_differs_from_the_host_is_found():
    host, controller, _ = drive("lost for good", 0.5, "sara, carry")
    assert differences(host, controller) == []
    rollout_id = next(i for i, fate in host.account.items() if fate == "valid")
    host.account[rollout_id] = "failed"
    host.trials[next(iter(host.trials))] += 1
    assert [text.split(":")[0] for text in differences(host, controller)[:2]] == ["valid", "failed"]
    assert "the belief holds" in differences(host, controller)[2]
    host.account[-1] = "out"
    assert {text.split(":")[0] for text in differences(host, controller)} >= {"requested", "in flight"}


@pytest.mark.parametrize("name", STRATEGIES)
@pytest.mark.parametrize("fault", [*MISSING, *REFUSED, "lost", "dies"])
def test_a_step_in_which_everything_fails_ends_and_says_why(fault, name):
    host, controller, batches = drive(fault, 1.0, name)
    allowed = BUDGET + BUDGET // 4
    assert controller.ledger.requested <= STEPS * allowed
    assert controller.ledger.retries <= STEPS * (BUDGET // 4)
    assert host.calls <= 2 * allowed, "a call brings a rollout, or the news of those that were lost"
    assert {batch.stop_reason for batch in batches} == {StopReason.FAILED}
    causes = {"lost": "fewer rows", "dies": "the generator died", "None": "None", "NaN": "NaN"}
    causes |= {"raises": "ValueError: the reward function raised", "hangs": "no answer within 5 s"}
    causes |= {
        "infinite": "infinite reward",
        "text": "'right'",
        "a list": r"no number",
        "not binary": "not binary",
    }
    causes |= {
        "success of text": "'yes'",
        "another prompt": "belongs to prompt",
        "another rollout": "never requested",
    }
    causes |= {"beyond floats": "no number", "no id": "never requested", "no outcome": "neyman.Outcome"}
    assert causes[fault] in controller.first_error
    assert not any(batch.weights.any() for batch in batches)


def test_a_rollout_is_tried_as_often_as_the_strategy_says():
    host, controller, _ = drive("raises", 1.0, "uniform, drop")
    prompts = [8 * step + i for step in range(STEPS) for i in range(8)]
    assert len(prompts) == len({p % 60 for p in prompts})
    # Six slots a prompt, of which the allowance re-draws a quarter; none more than twice.
    assert controller.ledger.requested == len(host.account) == STEPS * (BUDGET + BUDGET // 4)


@pytest.mark.parametrize("rate", RATES)
def test_timeouts_are_a_metric_of_their_own(rate):
    host, controller, batches = drive("hangs", rate, "sara")
    told = Counter(host.account.values())
    assert sum(batch.report.get("rollouts/timeout", 0.0) for batch in batches) == told["timeout"] > 0
    assert not any("rollouts/failed" in batch.report for batch in batches)
    assert controller.ledger.rollouts(Fate.FAILED) == 0


def test_every_kind_of_fault_is_injected_at_about_its_rate():
    for fault in FAULTS:
        if fault == "dies":
            continue  # what follows it in its round is lost with it
        hosts = [drive(fault, 0.1, name, seed=3)[0] for name in ("uniform", "sara, fixed spend", "neyman")]
        share = sum(host.injected for host in hosts) / sum(len(host.account) for host in hosts)
        assert 0.06 < share < 0.14, (fault, share)
