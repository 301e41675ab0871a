"""The command as a person runs it: processes, kills, interrupts, failures."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("trl")

SETTINGS = """
seeds = [0]
baselines = []

[model]
warm_start_steps = 5
cache = "{cache}"

[task]
regime = "easy"
train_size = 16
test_size = 20

[strategy]
name = "{strategy}"

[trainer]
prompts_per_step = 8
group_size = 4
steps = {steps}
eval_every = 2
save_every = 2
"""
TIMES = {"seconds", "eval_seconds", "step_time", "epoch_time"}


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def settings(tmp_path, cache):
    def write(strategy="neyman", steps=6, more=""):
        path = tmp_path / "settings.toml"
        path.write_text(SETTINGS.format(cache=cache, strategy=strategy, steps=steps) + more)
        return str(path)

    return write


def environment(**more):
    return {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "PYTHONWARNINGS": "default", **more}


def neyman(*words, **more):
    command = [sys.executable, "-m", "neyman", *map(str, words)]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=500, check=False, env=environment(**more)
    )


def start(*words):
    command = [sys.executable, "-m", "neyman", *map(str, words)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment()
    )


def wait_for(condition, process, seconds=120):
    deadline = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None, process.stdout.read()
        assert time.monotonic() < deadline
        time.sleep(0.02)


def lines(run):
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def steps(run):
    path = run / "metrics.jsonl"
    return path.read_bytes().count(b'"event":"step"') if path.exists() else 0


def without_times(value):
    if isinstance(value, dict):
        return {k: without_times(v) for k, v in value.items() if "time" not in k and "second" not in k}
    return [without_times(v) for v in value] if isinstance(value, list) else value


def weights(run, step):
    from safetensors.torch import load_file

    return load_file(run / f"checkpoint-{step}" / "model.safetensors")


def children_of(pid):
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            if int(path.read_text().rpartition(")")[2].split()[1]) == pid:
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


def is_alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc").exists(), reason="finds the training process in /proc")
def test_a_run_killed_twice_and_resumed_equals_one_never_stopped(settings, tmp_path):
    whole, torn = tmp_path / "whole", tmp_path / "torn"
    finished = neyman("train", settings(steps=10), "--out", whole)
    assert finished.returncode == 0, finished.stderr
    # Steps enough behind the second kill that the run cannot be done before it.
    for at_step, victim in ((3, "parent"), (5, "child")):
        words = [] if victim == "child" else [settings(steps=10)]
        process = start("train", *words, "--out", torn, *(["--resume"] if victim == "child" else []))
        run = torn / "neyman-seed0"
        wait_for(lambda run=run, least=at_step: steps(run) >= least, process)
        children = children_of(process.pid)
        assert children
        os.kill(process.pid if victim == "parent" else children[0], signal.SIGKILL)
        process.communicate(timeout=120)
        deadline = time.monotonic() + 120
        while any(map(is_alive, children)):
            assert time.monotonic() < deadline, "a process outlived its parent"
            time.sleep(0.05)
        assert not (run / "done.json").exists()
    resumed = neyman("train", "--out", torn, "--resume")
    assert resumed.returncode == 0, resumed.stderr
    one, other = whole / "neyman-seed0", torn / "neyman-seed0"
    assert [e["step"] for e in lines(one) if e["event"] == "step"] == list(range(1, 11))
    assert without_times(lines(one)) == without_times(lines(other))
    expected, actual = weights(one, 10), weights(other, 10)
    assert expected.keys() == actual.keys()
    assert all(expected[name].equal(actual[name]) for name in expected)
    assert (torn / "report.html").stat().st_size > 10_000
    assert lines(other)[-1]["rollouts"] == 10 * 32


@pytest.mark.slow
def test_one_s_own_model_and_data_train_with_sampled_accuracy(settings, cache, tmp_path):
    from neyman.tasks import rules_policy, rules_task

    model = rules_policy("easy", cache=cache, steps=5)
    task = rules_task("easy", train_size=24, test_size=12)
    for name, problems in (("train", task.train), ("test", task.test)):
        rows = [json.dumps({"question": p.prompt, "solution": p.answer}) for p in problems]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(rows))
    file = tmp_path / "mine.toml"
    file.write_text(f"""
seeds = [1]
baselines = []
model = {{path = "{model}"}}
strategy = {{name = "sara"}}
[task]
type = "data"
path = "{tmp_path}/train.jsonl"
test_path = "{tmp_path}/test.jsonl"
prompt = "question"
answer = "solution"
[trainer]
algorithm = "grpo"
prompts_per_step = 4
group_size = 4
micro_batch = 8
steps = 2
eval_every = 1
""")
    done = neyman("train", file, "--out", tmp_path / "out")
    assert done.returncode == 0, done.stdout + done.stderr
    run = tmp_path / "out" / "sara-seed1"
    evals = [line for line in lines(run) if line["event"] == "eval"]
    assert [e["step"] for e in evals][:1] == [0]
    assert {(12, False)} == {(e["problems"], e["exact"]) for e in evals}
    spent = [line for line in lines(run) if line["event"] == "step"][-1]
    assert spent["last"]
    assert spent["rollouts"] == sum(fate["rollouts"] for fate in spent["account"].values())
    assert (run / "done.json").exists()
    assert json.loads((run / "run.json").read_text())["estimator"] == "grpo"
