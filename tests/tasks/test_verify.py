import os
import resource
import signal
import subprocess
import threading
import time

import pytest

from neyman.errors import ArgumentError, RunFailedError
from neyman.tasks import ExactMatch, KillableVerifier, MathVerify, problem

#: Seconds within which a verdict of a healthy judge must come, also on a loaded machine.
SHORT = 3.0
#: Seconds that pass only where something is wrong.
PATIENT = 60.0

JUDGES = """
import os, subprocess, time
import numpy as np

HOARD = []

def judge(completion, answer, metadata):
    if completion == "sleep":
        time.sleep(3600)
    if completion == "spin":
        9 ** 9 ** 9
    if completion == "die":
        os._exit(3)
    if completion == "raise":
        raise ValueError("cannot")
    if completion == "memory":
        return len(bytearray(1 << 40)) > 0
    if completion == "hoard":
        while True:
            HOARD.append(bytearray(1 << 24))
    if completion == "none":
        return None
    if completion == "print":
        print("noise " * 10000, flush=True)
    if completion == "metadata":
        return metadata["key"] == answer
    if completion == "slow":
        time.sleep(0.4)
    if completion == "meet":
        folder, guests = metadata["folder"], metadata["guests"]
        open(os.path.join(folder, f"{os.getpid()}-{time.monotonic_ns()}"), "w").close()
        while len(os.listdir(folder)) < guests:
            time.sleep(0.01)
    if completion == "child":
        return subprocess.run(["sleep", "3600"]).returncode == 0
    if completion.startswith("say "):
        return eval(completion[4:])
    if completion == "pid":
        return os.getpid() == int(answer)
    return completion == answer
"""


@pytest.fixture(scope="module")
def judge(tmp_path_factory):
    folder = tmp_path_factory.mktemp("judges")
    (folder / "judges_for_tests.py").write_text(JUDGES)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        yield "judges_for_tests:judge"


def test_exact_match_looks_through_white_space_only():
    said = ["4 2", " 4\t 2\n", "42", "4 2.", "", "A b"]
    assert ExactMatch().verify(said, ["4 2"] * 5 + ["a b"], []) == [True, True, False, False, False, False]


def test_a_judge_that_hangs_costs_its_time_and_one_missing_verdict(judge):
    with KillableVerifier(judge, timeout_seconds=SHORT) as verifier:
        assert verifier.verify(["a"], ["a"], []) == [True]
        # Sleep can be interrupted; the power holds the interpreter's lock inside C code, where no alarm helps.
        assert verifier.verify(["sleep", "a", "spin", "b"], ["a"] * 4, []) == [None, True, None, False]
        assert verifier.counts == {"judged": 3, "timeouts": 2, "memory": 0, "deaths": 0, "errors": 0}


def test_a_worker_that_dies_or_a_judge_that_raises_gives_no_verdict(judge):
    with KillableVerifier(judge) as verifier:
        said = ["die", "a", "raise", "none", "memory"]
        assert verifier.verify(said, ["a"] * 5, []) == [None, True, None, None, None]
        assert verifier.counts == {"judged": 1, "timeouts": 0, "memory": 1, "deaths": 1, "errors": 2}
        assert verifier.last_error.startswith("MemoryError")


def test_a_judge_beyond_its_memory_has_no_verdict_and_its_worker_is_replaced(judge):
    with KillableVerifier(judge, memory_bytes=1 << 29) as verifier:
        assert verifier.verify(["a"], ["a"], []) == [True]
        process = verifier._workers[0].process
        # What a judge keeps counts against its successors' memory too, so the process goes.
        assert verifier.verify(["hoard", "a"], ["a", "a"], []) == [None, True]
        assert process.wait() == -signal.SIGKILL
        assert verifier.counts == {"judged": 2, "timeouts": 0, "memory": 1, "deaths": 0, "errors": 0}


def test_a_worker_killed_from_outside_between_batches_is_replaced(judge):
    with KillableVerifier(judge) as verifier:
        assert verifier.verify(["a"], ["a"], []) == [True]
        process = verifier._workers[0].process
        process.send_signal(signal.SIGKILL)
        process.wait()
        # The request that meets the dead worker has no verdict; the next one has.
        assert verifier.verify(["a", "b"], ["a"] * 2, []) == [None, False]


def test_what_the_judge_prints_does_not_disturb(judge):
    with KillableVerifier(judge) as verifier:
        assert verifier.verify(["print", "a"], ["print", "a"], []) == [True, True]


def test_long_completions_metadata_and_any_characters_arrive_whole(judge):
    long = "x" * 500_000 + "é\ud800\n"
    rows = [problem("p", "v", {"key": "v"}), problem("p", "w", {"key": "v"}), problem("q", "v")]
    with KillableVerifier(judge) as verifier:
        assert verifier.verify(["metadata", "metadata", long], ["v", "w", long], rows) == [True, False, True]


def test_workers_judge_at_the_same_time(judge, tmp_path):
    # Each waits until all four are there, so one after the other would end at the first one's time.
    rows = [problem(str(i), "meet", {"folder": str(tmp_path), "guests": 4, "guest": i}) for i in range(4)]
    with KillableVerifier(judge, workers=4, timeout_seconds=PATIENT) as verifier:
        assert verifier.verify(["meet"] * 4, ["meet"] * 4, rows) == [True] * 4


def test_equal_requests_are_judged_once(judge, tmp_path):
    rows = [problem("p", "meet", {"folder": str(tmp_path), "guests": 1})] * 50
    with KillableVerifier(judge, timeout_seconds=PATIENT) as verifier:
        assert verifier.verify(["meet"] * 50, ["meet"] * 50, rows) == [True] * 50
        assert verifier.counts["judged"] == 50
    assert len(list(tmp_path.iterdir())) == 1


def test_it_works_off_the_main_thread(judge):
    verdicts = []
    with KillableVerifier(judge, timeout_seconds=SHORT) as verifier:
        thread = threading.Thread(
            target=lambda: verdicts.extend(verifier.verify(["sleep", "a"], ["a"] * 2, []))
        )
        thread.start()
        thread.join(PATIENT)
    assert verdicts == [None, True]


def test_an_interrupt_leaves_no_late_reply_for_the_next_request(judge, monkeypatch):
    with KillableVerifier(judge) as verifier:
        verifier.verify(["a"], ["a"], [])

        def interrupted(*_):
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr("neyman.tasks.verify._readable", interrupted)
            with pytest.raises(KeyboardInterrupt):
                verifier.verify(["slow"], ["slow"], [])
        time.sleep(0.6)
        assert verifier.verify(["a"], ["b"], []) == [False]


def test_no_process_outlives_its_verifier(judge):
    verifier = KillableVerifier(judge)
    verifier.verify(["a"], ["a"], [])
    pid = verifier._workers[0].process.pid
    del verifier
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def _children(group):
    """Return the live processes of a group, read from the system's table."""
    table = subprocess.run(["ps", "-eo", "pid,pgid,stat"], capture_output=True, text=True, check=True).stdout
    rows = [line.split() for line in table.splitlines()[1:]]
    return [int(pid) for pid, pgid, stat in rows if int(pgid) == group and not stat.startswith("Z")]


def test_what_a_judge_started_ends_with_its_worker(judge):
    with KillableVerifier(judge, timeout_seconds=SHORT) as verifier:
        assert verifier.verify(["a"], ["a"], []) == [True]
        group = verifier._workers[0].process.pid
        assert verifier.verify(["child"], ["a"], []) == [None]
        # The signal is sent when the verdict comes; the system ends the process when it next runs.
        deadline = time.monotonic() + PATIENT
        while _children(group):
            assert time.monotonic() < deadline, "what the judge started outlived its worker"
            time.sleep(0.05)


def test_descriptors_beyond_1023_are_read(judge):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard), hard))
    held = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
    try:
        with KillableVerifier(judge) as verifier:
            assert verifier.verify(["a", "b"], ["a"] * 2, []) == [True, False]
            assert verifier._workers[0].output > 1023
    finally:
        for descriptor in held:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_only_true_and_false_one_and_zero_are_verdicts(judge):
    good = {
        "True": True,
        "False": False,
        "1": True,
        "0": False,
        "np.True_": True,
        "np.False_": False,
        "1.0": True,
    }
    bad = [
        "float('nan')",
        "-1",
        "2",
        "0.3",
        "'False'",
        "'1'",
        "[]",
        "[True]",
        "np.array([True, False])",
        "object()",
    ]
    with KillableVerifier(judge) as verifier:
        said = [f"say {text}" for text in [*good, *bad]]
        assert verifier.verify(said, ["a"] * len(said), []) == [*good.values(), *[None] * len(bad)]
        assert verifier.counts["errors"] == len(bad)
        verifier.verify(["say 0.3"], ["a"], [])
        assert "must return True, False or None, got 0.3 (float)" in verifier.last_error


def test_nothing_to_judge_starts_nothing():
    verifier = KillableVerifier("no_such_module:judge")
    assert verifier.verify([], [], []) == []
    assert verifier._workers == []


def test_judges_that_no_other_process_can_import_are_refused():
    with pytest.raises(ArgumentError, match="top level of a module"):
        KillableVerifier(lambda completion, answer, metadata: True)
    with pytest.raises(ArgumentError, match=r"package\.module:function"):
        KillableVerifier("judge")
    with (
        KillableVerifier("no_such_module:judge") as verifier,
        pytest.raises(RunFailedError, match="No module named 'no_such_module'"),
    ):
        verifier.verify(["a"], ["a"], [])


def test_a_worker_that_cannot_start_says_why(judge, monkeypatch):
    import sys

    verifier = KillableVerifier(judge)
    monkeypatch.setattr(
        verifier, "_command", [sys.executable, "-c", "raise SystemExit('no such luck')", judge]
    )
    with pytest.raises(RunFailedError, match="no such luck"):
        verifier.verify(["a"], ["a"], [])
    assert verifier._workers == []


def test_a_worker_starts_where_warnings_are_errors(judge, monkeypatch):
    monkeypatch.setenv("PYTHONWARNINGS", "error")
    with KillableVerifier(judge, timeout_seconds=PATIENT) as verifier:
        assert verifier.verify(["a"], ["a"], []) == [True]


def test_limits_out_of_range_are_refused(judge):
    with pytest.raises(ArgumentError, match="timeout_seconds"):
        KillableVerifier(judge, timeout_seconds=0.0)
    with pytest.raises(ArgumentError, match="workers"):
        KillableVerifier(judge, workers=0)
    with pytest.raises(ArgumentError, match="memory_bytes"):
        KillableVerifier(judge, memory_bytes=1)


def test_math_verify_judges_meaning_and_survives_a_tower_of_powers():
    cases = [
        (r"The answer is $\boxed{\frac{1}{2}}$.", "0.5", True),
        ("so x = 1,234", "1234", True),
        ("5", "4", False),
        ("", "4", False),
        (r"\frac{", "4", False),
        ("9" * 5000, "4", False),
        (r"$\boxed{x+1}$", "1+x", True),
        ("4", "", None),
        # sympy would compute a number of 370 million digits.
        ("$9^{9^{9}}$", "4", None),
        ("4", "$4$", True),
    ]
    with MathVerify(timeout_seconds=8.0) as verifier:
        said, meant, verdicts = zip(*cases, strict=True)
        assert verifier.verify(said, meant, []) == list(verdicts)
        assert verifier.counts == {"judged": 8, "timeouts": 1, "memory": 0, "deaths": 0, "errors": 1}
        assert "not mathematics" in verifier.last_error
