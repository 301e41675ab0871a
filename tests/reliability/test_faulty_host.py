"""Under every fault at every rate: nothing is lost or counted twice, and nothing missing is learnt from."""

from __future__ import annotations

from collections import Counter

import pytest

from neyman.ledger import Fate
from neyman.step import StopReason
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
    drive,
)
from strategies import assert_consistent

_MISSING = {"failed": Fate.FAILED, "timeout": Fate.TIMEOUT, "aborted": Fate.ABORTED, "late": Fate.LATE}
_VALID = (Fate.TRAINED, Fate.UNIFORM, Fate.ABANDONED, Fate.SURPLUS, Fate.DROPPED, Fate.EXPIRED)


def evidence(controller, host):
    """Return what the belief has learnt of each prompt that the host knows results of."""
    ids = list(host.trials)
    wins, trials = controller.strategy.belief.evidence(ids)
    return {i: (w, n) for i, w, n in zip(ids, wins.tolist(), trials.tolist(), strict=True)}


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
        ledger, told = controller.ledger, Counter(host.account.values())
        assert ledger.requested == len(host.account), "every rollout was asked for once"
        for status, fate in _MISSING.items():
            assert ledger.rollouts(fate) == told[status], (name, status)
        held = sum(len(group.valid()) for group in controller._engine.carried)
        assert sum(ledger.rollouts(fate) for fate in _VALID) + held == told["valid"], name
        # What is out when its step closes is late or never comes: in flight until then.
        assert len(controller._late) == told["out"]
        learnt = {i: (float(host.wins[i]), float(n)) for i, n in host.trials.items()}
        assert evidence(controller, host) == learnt, (
            "the belief knows valid results, each once, and no others"
        )


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
        "another rollout": "never asked",
    }
    causes |= {"beyond floats": "no number", "no id": "never asked for", "no outcome": "neyman.Outcome"}
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
