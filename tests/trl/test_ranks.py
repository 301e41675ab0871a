"""The adapter on two gloo ranks: the same plan everywhere, the stock trainer's numbers, the exact budget."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from packaging.version import Version

# One group, so that one worker starts the ranks once for all tests of this file.
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("ranks")]

SCRIPT = Path(__file__).with_name("rank_script.py")
NUMBERS = ("loss", "grad_norm", "reward", "reward_std", "frac_reward_zero_std", "entropy", "num_tokens")
ADAPTIVE = {
    "vip": {"strategy": "vip", "options": {"lower": 3}},
    "sara": {"strategy": "sara"},
    "sara, fixed spend": {"strategy": "sara", "options": {"close": "fixed_spend"}},
    "neyman": {"strategy": "neyman"},
    "dynamo": {"strategy": "dynamo", "options": {"lower": 2}},
}
STREAMS = {"stock stream": {"streams": True}, "uniform stream": {"streams": True, "strategy": "uniform"}}


@pytest.fixture(scope="module")
def ranks(bench, tmp_path_factory):
    """Return what each of two ranks saw in every scenario."""
    out = tmp_path_factory.mktemp("ranks")
    whole = {"strategy": "sara", "save_steps": 1}
    scenarios = {
        "stock grpo": {},
        "uniform grpo": {"strategy": "uniform"},
        "stock rloo": {"trainer": "rloo"},
        "uniform rloo": {"trainer": "rloo", "strategy": "uniform"},
        **(STREAMS if Version(metadata.version("trl")) >= Version("1.10") else {}),
        **ADAPTIVE,
        "whole": whole,
        "resumed": {**whole, "resume": str(out / "whole" / "checkpoint-1")},
    }
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-W", "ignore", "-m", "torch.distributed.run", "--nproc_per_node", "2",
               "--master_port", str(port), str(SCRIPT), str(bench.folder), str(out), json.dumps(scenarios)]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-6000:]
    return [json.loads((out / f"rank{rank}.json").read_text()) for rank in range(2)]


@pytest.mark.parametrize("trainer", ["grpo", "rloo"])
def test_uniform_on_two_ranks_equals_the_stock_trainer_to_the_bit(ranks, trainer):
    for rank in ranks:
        expected, actual = rank[f"stock {trainer}"], rank[f"uniform {trainer}"]
        assert expected["rows"] == actual["rows"]
        assert expected["weights"] == actual["weights"]
        numbers = [
            [[entry.get(name) for name in NUMBERS] for entry in run["logs"]] for run in (expected, actual)
        ]
        assert numbers[0] == numbers[1]


@pytest.mark.since_trl("1.10", "iterable datasets")
def test_equal_prompts_of_a_stream_are_told_apart_alike_on_every_rank(ranks):
    for rank in ranks:
        expected, actual = rank["stock stream"], rank["uniform stream"]
        assert expected["rows"] == actual["rows"]
        assert expected["weights"] == actual["weights"]
    assert ranks[0]["uniform stream"]["state"] == ranks[1]["uniform stream"]["state"]
    assert {
        entry["neyman/groups_opened"]
        for entry in ranks[0]["uniform stream"]["logs"]
        if "neyman/rows" in entry
    } == {4.0}


@pytest.mark.parametrize("strategy", ADAPTIVE)
def test_every_rank_derives_the_same_plan_and_spends_the_budget_once(ranks, strategy):
    first, second = (rank[strategy] for rank in ranks)
    assert first["state"] == second["state"]
    assert first["weights"] == second["weights"]
    assert sum(len(call) for rank in (first, second) for call in rank["rows"]) == first["requested"]
    assert {entry["neyman/rows"] for entry in first["logs"] if "neyman/rows" in entry} == {32.0}


def test_a_resumed_run_on_two_ranks_equals_the_uninterrupted_one(ranks):
    for rank in ranks:
        assert rank["whole"]["weights"] == rank["resumed"]["weights"]
        assert rank["whole"]["state"] == rank["resumed"]["state"]
