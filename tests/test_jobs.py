"""Jobs in processes: so many at once, in order, errors with their kind, and nothing left running."""

import os
import signal
import sys
import time
from functools import partial
from pathlib import Path

import pytest

import jobs_of_test
from neyman._jobs import Processes, side_by_side
from neyman.errors import ArgumentError, RunFailedError


class Fake:
    """A process that ends after some looks."""

    def __init__(self, looks):
        self._looks = looks

    @property
    def is_over(self):
        self._looks -= 1
        return self._looks < 0


def test_jobs_start_in_order_and_never_more_at_once_than_wanted():
    started, most, over = [], 0, []

    def start(job):
        started.append(job)
        return Fake(job % 3)

    for running, ended in side_by_side([5, 3, 4, 1, 2], start, at_once=2):
        most = max(most, len(running) + len(ended))
        over += [job for job, _ in ended]
    assert (started, most, sorted(over)) == ([5, 3, 4, 1, 2], 2, [1, 2, 3, 4, 5])


def results(function, jobs, **options):
    """Return each job's call, once all are over."""
    with Processes(**options) as processes:
        steps = list(side_by_side(jobs, partial(processes.call, function), at_once=2))
    return {job: call for _, ended in steps for job, call in ended}


def test_calls_return_values_and_errors_keep_their_kind():
    assert {job: call.value for job, call in results(jobs_of_test.square, [1, 2, 3]).items()} == {
        1: 1,
        2: 4,
        3: 9,
    }
    calls = results(jobs_of_test.fail, ["ours", "other"])
    assert type(calls["ours"].error) is ArgumentError
    assert str(calls["ours"].error) == "a number is wrong"
    assert type(calls["other"].error) is RunFailedError
    assert str(calls["other"].error) == "KeyError: 'name'"
    assert any("jobs_of_test.py" in note for note in calls["other"].error.__notes__)


@pytest.mark.parametrize(
    ("function", "job", "words"),
    [
        (jobs_of_test.die, 0, "its process ended with status 9"),
        (jobs_of_test.kill, signal.SIGKILL, "killed by signal 9"),
    ],
)
def test_a_process_that_dies_fails_its_own_job_and_others_go_on(function, job, words):
    with Processes() as processes:
        jobs = [(function, job), (jobs_of_test.square, 3), (jobs_of_test.square, 4)]
        ended = [
            pair
            for _, over in side_by_side(jobs, lambda one: processes.call(*one), at_once=1)
            for pair in over
        ]
    assert words in str(ended[0][1].error)
    assert [call.value for _, call in ended[1:]] == [9, 16]


def test_processes_share_arguments_and_take_threads_unless_the_user_says_otherwise(monkeypatch):
    assert results(jobs_of_test.share, [1], shared=(10,))[1].value == 11
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    before = dict(os.environ)
    calls = results(jobs_of_test.environment, ["OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"], threads=3)
    assert {name: call.value for name, call in calls.items()} == {
        "OMP_NUM_THREADS": "7",
        "OPENBLAS_NUM_THREADS": "3",
    }
    assert dict(os.environ) == before


@pytest.mark.skipif(not Path("/proc").exists(), reason="finds the processes in /proc")
def test_leaving_the_block_ends_calls_and_commands(tmp_path):
    log = tmp_path / "folder" / "log.txt"
    alive = []

    def interrupted():
        with Processes() as processes:
            call = processes.call(jobs_of_test.sleep, 600)
            command = processes.command([sys.executable, "-c", "print('here'); input()"], log)
            deadline = time.monotonic() + 60
            while call.share < 0.25 or not log.read_text():
                assert not call.is_over
                assert not command.is_over
                assert time.monotonic() < deadline
            alive.extend([processes._workers[0].process.pid, command._process.pid])
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert len(alive) == 2
    assert not any(Path(f"/proc/{pid}").exists() for pid in alive)
    assert log.read_text() == "here\n"
