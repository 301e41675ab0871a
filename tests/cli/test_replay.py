"""The commands from files to summary, page and table; and their errors."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("tyro")
pytest.importorskip("rich")
pytest.importorskip("matplotlib")
pytest.importorskip("pyarrow")

from neyman import cli
from neyman.presets import PRESETS

EVIL = '<script>document.title="hacked"</script><img src=x onerror=alert(1)>'
TRACE = Path(os.environ.get("NEYMAN_DATA", "data")) / "dsr_sub_trace.parquet"
INTERVALS = (
    "effective_ratio",
    "effective_groups_per_1000_rollouts",
    "effective_groups_per_million_tokens",
    "waste_factor",
    "signal_kept",
    "coverage",
    "max_revisit_gap",
    "rollouts",
    "sum_v_over_n",
    "staleness",
    "log_loss",
    "brier",
    "ece",
    "rounds_per_step",
)


@pytest.fixture
def neyman(capsys):
    """Run a command in this process; return its status and what it said."""

    def run(*words):
        with pytest.raises(SystemExit) as left:
            cli.main([str(word) for word in words])
        said = capsys.readouterr()
        return left.value.code, " ".join((said.out + said.err).split())

    return run


@pytest.fixture
def log(tmp_path):
    """Write a log of 24 prompts, two visits of 8, from never to always solved."""
    path = tmp_path / f"log {EVIL.replace('/', '')}.jsonl"
    rows = [
        {"prompt": f"{EVIL}{q}", "step": v, "reward": float(i < q % 9), "n_tokens": 10 + q}
        for v in (1, 2)
        for q in range(24)
        for i in range(8)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def no_constants(text):
    raise AssertionError(f"{text} is no JSON")


def test_a_replay_writes_the_summary_and_a_page_that_stands_alone(neyman, log, tmp_path):
    out = tmp_path / "out"
    status, said = neyman(
        "replay", log, "--strategies", ",".join(PRESETS), "--group-size", 8, "--seeds", 2,
        "--prompts-per-step", 8, "--out", out, "--jobs", 1,
    )  # fmt: skip
    assert status == 0
    assert "24 prompts, 48 groups of 8 rollouts, 384 rollouts" in said
    summary = json.loads((out / "summary.json").read_text(), parse_constant=no_constants)
    assert list(summary["strategies"]) == list(PRESETS)
    for name, entry in summary["strategies"].items():
        for key in INTERVALS:
            assert set(entry[key]) == {"mean", "low", "high"}
        assert entry["rollouts"]["mean"] > 0
        assert entry["effective_groups_per_million_tokens"]["mean"] > 0
        assert sum(fate["mean"] for fate in entry["fates"].values()) == pytest.approx(1.0)
        assert name in said
    uniform = summary["strategies"]["uniform"]
    # q % 9 successes of 8: the groups of q % 9 = 0 and 8 are pure, 5 of 24.
    assert uniform["effective_ratio"]["mean"] == pytest.approx(19 / 24)
    assert uniform["waste_factor"]["mean"] == pytest.approx(24 / 19)
    assert (uniform["waste_factor_counts"], uniform["coverage"]["mean"]) == ("full", 1.0)
    assert summary["seeds"] == [0, 1]
    assert summary["beyond"].startswith("neighbours")
    assert "cannot know final accuracy" in summary["cannot_know"]
    assert summary["advice"] in " ".join(said.split())
    assert "12 % of your groups of 8 are never solved and 8 % always solved" in summary["advice"]
    assert "yield condition" in summary["advice"]
    page = (out / "report.html").read_text()
    assert "<script" not in page
    assert "<img" not in page
    assert "&lt;script&gt;" in page  # the file's name is shown, as text
    assert "http" not in page.replace("http://www.w3.org", "").replace("http-equiv", "")
    for section in ("found", "yield", "signal", "coverage", "belief", "rollouts", "difficulty", "method"):
        assert f'<section id="{section}"' in page
    assert "cannot know final accuracy" in page


def test_a_second_call_goes_on_with_what_is_there_and_writes_the_same(neyman, log, tmp_path):
    words = (
        "replay",
        log,
        "--strategies",
        "uniform,vip",
        "--seeds",
        1,
        "--out",
        tmp_path / "out",
        "--jobs",
        1,
    )
    neyman(*words)
    page = (tmp_path / "out" / "report.html").read_bytes()
    kept = (tmp_path / "out" / "runs" / "vip-0.json").stat().st_mtime_ns
    assert neyman(*words)[0] == 0
    assert (tmp_path / "out" / "report.html").read_bytes() == page
    assert (tmp_path / "out" / "runs" / "vip-0.json").stat().st_mtime_ns == kept
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary["strategies"]["vip"]["waste_factor_counts"] == "any"
    assert summary["strategies"]["vip"]["effective_ratio"]["low"] is None  # one seed


def test_without_both_strategies_the_advice_rests_on_the_counts(neyman, log, tmp_path):
    neyman("replay", log, "--strategies", "uniform", "--seeds", 1, "--out", tmp_path / "a", "--jobs", 1)
    advice = json.loads((tmp_path / "a" / "summary.json").read_text())["advice"]
    assert "as expected from the counts" in advice
    neyman(
        "replay",
        log,
        "--strategies",
        "uniform",
        "--seeds",
        1,
        "--group-size",
        16,
        "--out",
        tmp_path / "b",
        "--jobs",
        1,
    )
    advice = json.loads((tmp_path / "b" / "summary.json").read_text())["advice"]
    assert advice.startswith("No visit holds 16 rollouts")


def test_refusing_is_named(neyman, log, tmp_path):
    neyman(
        "replay",
        log,
        "--strategies",
        "uniform",
        "--seeds",
        1,
        "--beyond",
        "refuse",
        "--out",
        tmp_path / "a",
        "--jobs",
        1,
    )
    assert json.loads((tmp_path / "a" / "summary.json").read_text())["beyond"].startswith("refuse")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--strategies", "unifrom"), "--strategies must be one of uniform"),
        (("--seeds", 0), "--seeds must be >= 1, got 0"),
        (("--jobs", 0), "--jobs must be >= 1, got 0"),
        (("--group-size", 1), "group_size must be >= 2, got 1"),
        (("--prompts-per-step", 25), "must be <= the record's 24 prompts, got 25"),
        (("--columns", "reward=absent"), "no column 'absent'"),
        (("--passes", -1), "passes must be a finite number"),
    ],
)
def test_mistakes_are_said_in_a_line_with_the_legal_values(neyman, log, tmp_path, words, message):
    status, said = neyman("replay", log, "--out", tmp_path / "out", *words)
    assert status == 2
    assert message in said
    assert "Traceback" not in said
    assert not (tmp_path / "out").exists()


def test_prompts_are_embedded_once_and_only_where_their_texts_are_there(neyman, log, tmp_path, monkeypatch):
    asked = []

    def features(texts):
        asked.append(list(texts))
        return np.array([[float(len(text)), 1.0] for text in texts], dtype=np.float32)

    monkeypatch.setattr("neyman.beliefs.embeddings.prompt_features", features)
    words = ("--strategies", "vip", "--seeds", 2, "--jobs", 1, "--features", "embed")
    assert neyman("replay", log, *words, "--out", tmp_path / "a")[0] == 0
    assert [len(texts) for texts in asked] == [24]
    assert asked[0][0].startswith(EVIL)
    ids = tmp_path / "ids.csv"
    ids.write_text("id,success\n1,1\n1,0\n")
    status, said = neyman("replay", ids, *words, "--out", tmp_path / "b")
    assert (status, "needs the prompts' texts" in said) == (2, True)


def test_an_interrupted_replay_ends_its_processes_and_the_same_command_goes_on(tmp_path):
    log = tmp_path / "counts.csv"
    rows = [f"{q},{v},{q % 9},8" for q in range(500) for v in range(6)]
    log.write_text("id,visit,successes,trials\n" + "\n".join(rows) + "\n")
    out = tmp_path / "out"
    command = [
        sys.executable, "-m", "neyman", "replay", str(log), "--strategies", "uniform", "--seeds", "8",
        "--jobs", "2", "--out", str(out),
    ]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        while process.poll() is None and not list((out / "runs").glob("*.json")):
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        said = process.communicate()[0]
    assert process.returncode == 130, said
    assert "The same command goes on" in said
    assert "Traceback" not in said
    kept = {path.name: path.stat().st_mtime_ns for path in (out / "runs").glob("*.json")}
    assert 0 < len(kept) < 8
    subprocess.run(command, check=True, capture_output=True)
    assert len(list((out / "runs").glob("*.json"))) == 8
    assert all((out / "runs" / name).stat().st_mtime_ns == at for name, at in kept.items())


def test_out_may_not_be_a_file(neyman, log):
    assert "must be a directory" in neyman("replay", log, "--out", log)[1]


def test_a_plan_from_counts_and_from_a_beta(neyman, log, tmp_path):
    status, said = neyman(
        "plan", log, "--group-size", 4, 8, "--budget", 4096, "--out", tmp_path / "plan.json"
    )
    assert status == 0
    written = json.loads((tmp_path / "plan.json").read_text(), parse_constant=no_constants)
    assert [one["group_size"] for one in written["plans"]] == [4, 8]
    assert written["plans"][1]["dead"]["mean"] == pytest.approx(5 / 24)
    assert written["plans"][1]["ways"]["dynamic-sampling"]["groups"]["mean"] == pytest.approx(
        4096 / 8 * 19 / 24
    )
    assert "20.8" in said
    status, said = neyman("plan", "--beta", 1, 1)
    assert status == 0
    assert "groups of 32: the yield condition of early verdicts fails" in said
    assert "speed" in said
    assert "`neyman replay` answers for those" in said
    assert neyman("plan", log)[0] == 0  # sizes that the counts allow
    for words, message in (
        ((), "files of counts or --beta A B"),
        ((log, "--beta", 1, 1), "one of both"),
        ((log, "--group-size", 16), "at least 16 recorded trials"),
        (("--beta", 1, 1, "--out", tmp_path / "no" / "plan.json"), "in a folder that is not there"),
    ):
        status, said = neyman("plan", *words)
        assert (status, message in said) == (2, True)


def test_the_real_trace_replays(neyman, tmp_path):
    if not TRACE.exists():
        pytest.skip(f"no trace at {TRACE}: set NEYMAN_DATA to the folder that has {TRACE.name}")
    status, said = neyman(
        "replay", TRACE, "--strategies", "uniform,dynamic-sampling", "--seeds", 1, "--passes", 4,
        "--out", tmp_path / "out", "--jobs", 1,
    )  # fmt: skip
    assert status == 0
    assert "906 prompts, 47,956 groups of 8 rollouts" in said
    strategies = json.loads((tmp_path / "out" / "summary.json").read_text())["strategies"]
    # The mixed share of the first four visits of every prompt, and of the last step's overshoot.
    assert strategies["uniform"]["effective_ratio"]["mean"] == pytest.approx(0.549, abs=0.01)
    assert strategies["dynamic-sampling"]["waste_factor"]["mean"] > 1.7
