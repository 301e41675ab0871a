"""Several runs side by side: failures, interrupts, dead parents, and what a person sees of them."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("rich")
pytest.importorskip("tyro")

from neyman import cli
from neyman.train import _all

WORKER = Path(__file__).with_name("worker.py")
DRIVER = """
import sys
import neyman.train._all as a
a.WORKER = (sys.executable, sys.argv[1])
from neyman.cli import main
main(sys.argv[2:])
"""


@pytest.fixture
def neyman(monkeypatch, capsys):
    """Run the command in this process; return its status and what it said."""
    monkeypatch.setattr(_all, "WORKER", (sys.executable, str(WORKER)))

    def run(*words):
        with pytest.raises(SystemExit) as left:
            cli.main([str(word) for word in words])
        said = capsys.readouterr()
        return left.value.code, said.out + said.err

    return run


def start(*words):
    command = [sys.executable, "-c", DRIVER, str(WORKER), *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def wait_for(condition, process=None, seconds=120):
    deadline = time.monotonic() + seconds
    while not condition():
        assert process is None or process.poll() is None, process.stdout.read()
        assert time.monotonic() < deadline
        time.sleep(0.02)


def workers(parent):
    """Return the processes that a process started."""
    path = Path(f"/proc/{parent}/task/{parent}/children")
    return [int(pid) for pid in path.read_text().split()]


def is_alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_every_strategy_and_seed_runs_once_and_a_report_is_written(neyman, tmp_path):
    out = tmp_path / "out"
    status, said = neyman("train", "--out", out, "--seeds", 0, 1, "--jobs", 2)
    assert status == 0, said
    names = {path.name for path in out.iterdir() if path.is_dir()}
    assert {"neyman-seed0", "neyman-seed1", "uniform-seed0", "uniform-seed1"} == names
    assert "neyman-seed1: step 3/" in said
    assert "accuracy 0.300" in said
    assert str(out / "report.html") in said
    assert {"config.toml", "summary.json", "report.html"} <= {path.name for path in out.iterdir()}

    (out / "report.html").unlink()
    written = {path: path.stat().st_mtime_ns for path in out.glob("*/metrics.jsonl")}
    status, said = neyman("demo", "--out", out)
    assert status == 0, said
    assert written == {path: path.stat().st_mtime_ns for path in out.glob("*/metrics.jsonl")}

    (out / "report.html").unlink()
    status, said = neyman("report", out)
    assert status == 0, said
    assert (out / "report.html").exists()
    assert json.loads((out / "summary.json").read_text())["verdict"] in said


def test_the_demo_compares_the_default_with_uniform_on_three_seeds_or_more(neyman, tmp_path):
    status, said = neyman("demo", "--out", tmp_path / "demo")
    assert status == 0, said
    runs = [path.name for path in (tmp_path / "demo").iterdir() if path.is_dir()]
    assert sum(name.startswith("uniform-") for name in runs) >= 3
    assert 2 * sum(name.startswith("uniform-") for name in runs) == len(runs)


def test_a_run_that_fails_is_named_with_its_last_words_and_the_others_go_on(neyman, tmp_path):
    out = tmp_path / "out"
    status, said = neyman("train", "--out", out, "--seeds", 0, "--strategy", "vip")
    assert status == 1
    assert (
        f"vip-seed0 failed: RuntimeError: the policy exploded\n  log: {out / 'vip-seed0' / 'log.txt'}" in said
    )
    assert f"neyman train --out {out} --resume" in said
    assert (out / "uniform-seed0" / "done.json").exists()
    assert (out / "report.html").exists()

    (out / "broken").touch()
    status, said = neyman("train", "--out", out, "--resume")
    assert status == 2
    assert "neyman: the task is broken; mend it" in said
    assert "Traceback" not in said


def test_a_start_that_failed_is_begun_again_with_settings_that_are_mended(neyman, tmp_path, monkeypatch):
    out = tmp_path / "out"
    monkeypatch.setenv("BROKEN", "1")
    status, said = neyman("train", "--out", out, "--seeds", 0)
    assert (status, "neyman: the task is broken; mend it" in said) == (2, True)
    monkeypatch.delenv("BROKEN")
    status, said = neyman("train", "--out", out, "--seeds", 1)
    assert status == 0, said
    assert {"neyman-seed1", "uniform-seed1"} == {path.name for path in out.iterdir() if path.is_dir()}
    assert "already holds a training" in neyman("train", "--out", out, "--seeds", 1)[1]


def test_a_run_that_is_killed_is_not_blamed_on_its_last_line(neyman, tmp_path):
    words = ["--seeds", 0, "--strategy", "dynamic-sampling", "--baselines"]
    status, said = neyman("train", "--out", tmp_path / "out", *words)
    assert status == 1
    assert "dynamic-sampling-seed0 failed: killed by signal 9 (Killed), not by an error of its own" in said


def test_without_one_run_that_ended_well_there_is_no_report(neyman, tmp_path):
    out = tmp_path / "out"
    status, said = neyman("train", "--out", out, "--seeds", 0, "--strategy", "vip", "--baselines")
    assert (status, (out / "report.html").exists()) == (1, False), said


@pytest.mark.skipif(not Path("/proc").exists(), reason="finds the workers in /proc")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_every_worker_and_says_how_to_go_on(tmp_path, number):
    out = tmp_path / "out"
    process = start("train", "--out", str(out), "--seeds", "0", "--strategy", "sara", "--jobs", "2")
    wait_for((out / "uniform-seed0" / "done.json").exists, process)
    wait_for((out / "sara-seed0" / "metrics.jsonl").exists, process)
    started = workers(process.pid)
    assert started
    process.send_signal(number)
    said, _ = process.communicate(timeout=120)
    assert process.returncode == 130
    assert f"neyman train --out {out} --resume" in said
    assert "Traceback" not in said
    assert not any(map(is_alive, started))
    assert (out / "uniform-seed0" / "done.json").exists()


@pytest.mark.skipif(not Path("/proc").exists(), reason="finds the workers in /proc")
def test_workers_end_when_their_parent_is_killed(tmp_path):
    out = tmp_path / "out"
    process = start("train", "--out", str(out), "--seeds", "0", "--strategy", "sara", "--baselines")
    wait_for((out / "sara-seed0" / "metrics.jsonl").exists, process)
    started = workers(process.pid)
    assert started
    os.kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=120)
    wait_for(lambda: not any(map(is_alive, started)))


def test_last_words_are_the_last_line_that_says_something(tmp_path):
    log = tmp_path / "log.txt"
    assert _all.last_words(log) == ""
    log.write_text("Traceback\n  here\nValueError: no\n\n")
    assert _all.last_words(log) == "ValueError: no"
