"""Ranks that fail: all with the same message, none waits, and every rank makes the same collectives."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from importlib import metadata
from pathlib import Path

import pytest
from packaging.version import Version

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("ranks")]

SCRIPT = Path(__file__).with_name("rank_launch.py")
SAID = "the judge's disk is full"
NEYMAN = {"strategy": "neyman", "max_steps": 2}
# Fault -> what is done meanwhile, and what is said of it.
SHARED = {
    "reward": ("scoring completions with reward function 'reward'", f"ValueError: {SAID}"),
    "async reward": ("scoring completions with reward function 'reward'", f"ValueError: {SAID}"),
    "too few rewards": ("scoring completions with reward function 'reward'", "returned 5 rewards for 6"),
    "a word for a reward": (
        "scoring completions with reward function 'reward'",
        "failed on all 6 completions of its first call",
    ),
    "a reward that is not binary": ("judging completions", "returned 0.5, which is not binary"),
    "success": ("judging completions", f"ValueError: {SAID}"),
    "generation": ("generating completions", f"OutOfMemoryError: {SAID}"),
    "reading": ("reading prompts", f"OSError: {SAID}"),
    "evaluation": ("generating completions", f"OSError: {SAID}"),
    "saving": ("writing", f"OSError: {SAID}"),
    "loading": ("reading", SAID),
    "generation, rloo": ("generating completions", f"OutOfMemoryError: {SAID}"),
}
if Version(metadata.version("trl")) >= Version("1.10"):
    SHARED["rollout function"] = ("generating completions", f"ValueError: {SAID}")


def scenarios(out):
    """Return the faults that ranks survive in line, and last a run that must go as if nothing had been."""
    found = {"calm": NEYMAN}
    for name in SHARED:
        more = {
            "evaluation": {"eval_strategy": "steps", "eval_steps": 1},
            "saving": {"save_steps": 1},
            "loading": {"resume": str(out / "saved" / "checkpoint-1")},
            "generation, rloo": {"strategy": "vip", "trainer": "rloo", "fault": "generation", "max_steps": 4},
        }
        if name == "loading":
            found["saved"] = {**NEYMAN, "save_steps": 1, "max_steps": 1}
        found[name] = {**NEYMAN, "fault": name, **more.get(name, {})}
    found |= {
        "resumed": {**NEYMAN, "save_steps": 1, "max_steps": 3, "resume": str(out / "saved" / "checkpoint-1")},
        "token factor": {**NEYMAN, "strategy": "dynamo", "max_steps": 4},
        "penalty": {**NEYMAN, "trainer": "rloo", "beta": 0.1},
        "stock": {"max_steps": 2},
        "evals": {**NEYMAN, "fault": "evals", "eval_strategy": "steps", "eval_steps": 1},
    }
    return found | {name: {**NEYMAN, "fault": name} for name in ("unequal", "later", "straggler")}


@pytest.fixture(scope="module")
def launched(bench, tmp_path_factory):
    """Return what every rank met, by launch, and the ranks' exit codes."""
    out = tmp_path_factory.mktemp("faults")
    few = {name: {**NEYMAN, "fault": name} for name in ("reward", "unequal", "straggler")}
    launches = {
        "two": {"world": 2, "scenarios": scenarios(out / "two")},
        "four": {"world": 4, "scenarios": few},
        "killed": {"world": 2, "scenarios": {"killed": {**NEYMAN, "fault": "killed"}}},
        "callback": {"world": 2, "scenarios": {"callback": {**NEYMAN, "fault": "callback", "max_steps": 4}}},
        "silent": {"world": 2, "scenarios": {"silent": {**NEYMAN, "fault": "silent"}}, "timeout": 6},
    }
    command = [sys.executable, "-W", "ignore", str(SCRIPT), str(bench.folder), str(out), json.dumps(launches)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-6000:]
    codes = json.loads((out / "codes.json").read_text())
    files = {
        name: [out / name / f"rank{rank}.json" for rank in range(len(ended))] for name, ended in codes.items()
    }
    ranks = {
        name: [json.loads(f.read_text()) for f in places if f.exists()] for name, places in files.items()
    }
    return ranks, codes


def test_no_rank_hangs(launched):
    _, codes = launched
    assert codes.pop("killed") == [0, -9]
    assert all(set(ended) == {0} for ended in codes.values()), codes


@pytest.mark.parametrize("fault", SHARED)
def test_an_error_on_one_rank_is_raised_on_both_with_the_rank_and_the_cause(launched, fault):
    first, second = (rank[fault]["error"] for rank in launched[0]["two"])
    assert first == second
    kind, message, _ = first
    doing, cause = SHARED[fault]
    assert message.startswith("process 1 of 2 failed in step ")
    assert f", {doing}" in message
    assert cause in message
    expected = {"loading": "StateError", "too few rewards": "ContractError"}
    expected["a reward that is not binary"] = "ContractError"
    assert kind == expected.get(fault, "RunFailedError")


def test_an_error_on_one_rank_of_four_is_raised_on_all(launched):
    first, *others = (rank["reward"]["error"] for rank in launched[0]["four"])
    assert others == [first] * 3
    assert first[1].startswith("process 3 of 4 failed in step 0, scoring completions")
    assert SAID in first[1]


@pytest.mark.parametrize("launch", ["two", "four"])
def test_every_rank_makes_the_same_collectives_whatever_fails(launched, launch):
    first, *others = launched[0][launch]
    for rank in others:
        assert list(rank) == list(first)
        for name, seen in rank.items():
            assert seen["collectives"] == first[name]["collectives"], name
    assert all(len(seen["collectives"]) > 0 for seen in first.values())


# What is gathered beside a step's and its rounds' own: part of the adapter and function -> how often.
BESIDE = {
    "calm": {},
    "unequal": {},
    "straggler": {},
    "saved": {"held all_gather_object": 1, "checkpoint all_gather_object": 2},  # the lock; two per checkpoint
    "resumed": {"held all_gather_object": 1, "checkpoint all_gather_object": 2 + 2 * 2},  # found, read, two
    "token factor": {"token_factor all_gather": 4},  # one per optimiser step
    "evals": {"session all_gather_object": 2 * 2},  # one per batch of evaluation
}
BY_LAUNCH = [("two", name) for name in (*BESIDE, "penalty")] + [("four", "unequal"), ("four", "straggler")]


def asked_by(collective):
    """Return the part of the adapter that asked for a collective and the function's name; None if TRL did."""
    call, _, part = collective.partition(" ours ")
    return f"{part} {call.split()[0]}" if part else None


@pytest.mark.parametrize(("launch", "name"), BY_LAUNCH)
def test_the_adapter_gathers_once_a_step_twice_a_round_and_twice_for_its_batch(launched, launch, name):
    seen = launched[0][launch][0][name]
    assert seen["error"] is None
    ours = Counter(filter(None, map(asked_by, seen["collectives"])))
    resumed_at = 1 if name == "resumed" else 0
    logs = [entry for entry in seen["logs"] if entry["step"] > resumed_at and "neyman/rounds" in entry]
    rounds = [int(entry["neyman/rounds"]) for entry in logs]
    # The tokens, where groups or weights are unequal; for RLOO, which takes means of rows, the penalty.
    of_the_batch = ours.pop("session all_gather", 0)
    assert of_the_batch == (0 if name == "token factor" else len(rounds))
    beside = Counter(BESIDE.get(name, {}))
    own = Counter(
        {
            "session all_gather_object": len(rounds),
            "generation all_gather_object": 2 * sum(rounds),
            "behaviour all_gather": len(rounds),
        }
    )
    assert ours == own + beside
    assert name == "token factor" or max(rounds) > 1


def test_beyond_its_rounds_the_trainer_makes_no_collective_that_the_stock_trainer_does_not(launched):
    ranks = launched[0]["two"][0]
    stock, calm = ranks["stock"]["collectives"], ranks["calm"]["collectives"]
    assert not any(map(asked_by, stock))
    within, rest, asked = [], [], 0
    for made in calm:
        part = asked_by(made)
        asked += part == "generation all_gather_object"  # the plan, then what was drawn
        if part is None:
            (within if asked % 2 else rest).append(made.split()[0])
    rounds = asked // 2
    assert rounds > 1
    assert len(within) % rounds == 0, "each round makes what generating and scoring once make"
    assert 0 < len(within) // rounds < len(stock)
    assert not Counter(rest) - Counter(made.split()[0] for made in stock)


@pytest.mark.parametrize("launch", ["two", "four"])
def test_ranks_with_unequal_results_derive_the_same_plan(launched, launch):
    first, *others = (rank["unequal"] for rank in launched[0][launch])
    assert first["error"] is None
    for rank in others:
        assert rank["state"] == first["state"]
        assert rank["weights"] == first["weights"]
    assert first["state"] != launched[0][launch][0]["straggler"]["state"]


def test_completions_that_one_rank_cannot_score_later_on_are_missing_on_all(launched):
    first, second = (rank["later"] for rank in launched[0]["two"])
    assert first["error"] is None
    assert first["state"] == second["state"]
    assert first["weights"] == second["weights"]
    assert sum(entry.get("neyman/rollouts/failed", 0.0) for entry in first["logs"]) > 0


def test_a_straggler_changes_nothing_even_after_all_that_failed_before(launched):
    for rank in launched[0]["two"]:
        assert rank["straggler"]["weights"] == rank["calm"]["weights"]
        assert rank["straggler"]["state"] == rank["calm"]["state"]


def test_an_error_beyond_the_adapters_reach_is_told_through_the_store(launched):
    survivor, failed = (rank["callback"]["error"] for rank in launched[0]["callback"])
    assert failed[:2] == ["OSError", SAID]
    assert survivor[0] == "RunFailedError"
    assert failed[2] == [survivor[1]]
    assert survivor[1] == f"process 1 of 2 failed in step 2: OSError: {SAID}; all processes stop"


def test_a_killed_rank_is_noticed_by_the_others(launched):
    (survivor,) = (rank["killed"]["error"] for rank in launched[0]["killed"])
    assert survivor[0] == "RunFailedError"
    assert survivor[1].startswith("the 2 processes no longer answer each other in step 0: one has ended")


def test_a_rank_slower_than_the_timeout_ends_both_with_the_same_message(launched):
    first, second = (rank["silent"]["error"] for rank in launched[0]["silent"])
    assert first == second
    assert first[0] == "RunFailedError"
    assert "no longer answer each other in step 0" in first[1]
