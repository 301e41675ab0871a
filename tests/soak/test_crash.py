"""The short form of ``make soak``: one kill in each phase, the same ones every time."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("trl")

SCRIPT = Path(__file__).with_name("crash.py")
SHORT = (
    "--kills",
    "4",
    "--kills-per-run",
    "4",
    "--strategies",
    "1",
    "--exact",
    "--fresh",
    "0",
    "--seed",
    "1",
)


@pytest.mark.slow
def test_a_training_killed_in_every_phase_ends_as_if_never_stopped(tmp_path):
    done = subprocess.run(
        [sys.executable, str(SCRIPT), *SHORT, "--keep", str(tmp_path / "runs")],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    said = done.stdout
    assert done.returncode == 0, said + done.stderr
    for phase in ("generation", "between rounds", "checkpoint", "update"):
        assert f"\n{phase:<18} {1:>5}\n" in said
    assert "4 kills in 1 runs (seed 1); 1 left a checkpoint unfinished; 1 of 1 runs ended equal" in said


def test_the_soak_notices_a_run_that_ended_otherwise(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(SCRIPT.parent)
    import crash

    whole = crash.Whole.__new__(crash.Whole)
    whole.outcome = {"weights": {"w": "ab"}, "metrics": [{"loss": 0.1}], "ledger": {"requested": 8}}
    assert whole.differences(tmp_path) == ["the run did not come to its end"]
    for name, other in (
        ("weights", {"w": "ac"}),
        ("metrics", [{"loss": 0.10000000000000002}]),
        ("ledger", {}),
    ):
        (tmp_path / "outcome.json").write_text(crash.text({**whole.outcome, name: other}))
        assert whole.differences(tmp_path) == [f"{name} differ"]
    (tmp_path / "outcome.json").write_text(crash.text(whole.outcome))
    assert whole.differences(tmp_path) == []


@pytest.mark.parametrize(("wrong", "status"), [([], 0), (["metrics differ"], 1)])
def test_a_difference_is_the_soaks_exit_status(monkeypatch, wrong, status):
    monkeypatch.syspath_prepend(SCRIPT.parent)
    import crash

    kills = [crash.Attempt(killed_in=phase, left_unfinished=True) for phase in crash.PHASES]
    options = crash.argparse.Namespace(strategies=1, seed=0)
    assert crash.report([crash.Run(crash.STRATEGIES[0], kills, wrong)], options, 1.0) == status
    assert crash.report([crash.Run(crash.STRATEGIES[0], kills[1:], wrong)], options, 1.0) == 1
