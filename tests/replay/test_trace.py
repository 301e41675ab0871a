"""A record as arrays: what fits, what is refused, and what survives being written."""

import numpy as np
import pytest

from neyman.errors import ArgumentError, StateError
from neyman.replay import Trace


def test_visits_without_rollouts_or_with_more_successes_than_trials_are_refused(make_trace):
    for bad in ([[(0, 0)]], [[(3, 2)]], [[(-1, 2)]], [[], [(1, 2)]]):
        with pytest.raises(ArgumentError):
            make_trace(bad)
    with pytest.raises(ArgumentError, match="nothing can be replayed"):
        make_trace([[]])


def test_spread_is_the_unbiased_variance_of_an_outcome(make_trace):
    trace = make_trace([[(2, 4)], [(0, 4)], [(1, 1)], [(3, 4)]])
    assert trace.spread.tolist() == [4 / 12, 0.0, 0.0, 3 / 12]
    # The mean over all ways to draw two trials, of whether they differ, halved: p(1-p) is half of that.
    outcomes = [1, 1, 1, 0]
    pairs = [outcomes[i] != outcomes[j] for i in range(4) for j in range(4) if i != j]
    assert trace.spread[3] == pytest.approx(np.mean(pairs) / 2)


def test_a_saved_trace_comes_back_the_same(make_trace, tmp_path):
    rollouts = np.array([1, 0, 1], dtype=np.uint8)
    trace = make_trace(
        [[(1, 2), (1, 1)]],
        tokens=np.ones((2, 2)),
        rollout_success=rollouts,
        rollout_tokens=np.array([5, 6, 7]),
    )
    trace.save(tmp_path / "trace.npz")
    again = Trace.load(tmp_path / "trace.npz")
    assert again.fingerprint == trace.fingerprint
    assert again.passes == trace.passes
    assert again.rollout_tokens.tolist() == [5, 6, 7]


def test_a_damaged_file_is_refused_with_its_name_and_closed(make_trace, tmp_path):
    path = tmp_path / "trace.npz"
    make_trace([[(1, 2)], [(0, 3)]]).save(path)
    whole = path.read_bytes()
    cut, swapped = whole[: len(whole) // 2], whole.replace(b"PK\x01\x02", b"PK\x01\x03")
    for damaged in (
        b"PK no",
        b"",
        b"PK\x03\x04",
        cut,
        swapped,
        whole.replace(b"NUMPY", b"NUMPX"),
        b"\x80\x04K\x01.",
    ):
        path.write_bytes(damaged)
        with pytest.raises(StateError, match=r"trace\.npz"):
            Trace.load(path)


def test_rollouts_must_be_as_many_as_trials(make_trace):
    with pytest.raises(ArgumentError, match="rollout_success must hold one entry per rollout"):
        make_trace([[(1, 2)]], rollout_success=np.zeros(3, dtype=np.uint8))


def test_one_visit_a_prompt_is_a_static_pool(make_trace):
    assert make_trace([[(1, 2)], [(0, 4)]]).is_static
    assert not make_trace([[(1, 2)], [(0, 4), (1, 4)]]).is_static


def test_a_saving_that_fails_leaves_the_trace_that_was_there(make_trace, tmp_path, monkeypatch):
    path = tmp_path / "trace.npz"
    old = make_trace([[(1, 2)], [(0, 3)]])
    old.save(path)

    def half(file, **arrays):
        file.write(b"PK\x03\x04")
        raise OSError("the disk is full")

    monkeypatch.setattr(np, "savez", half)
    with pytest.raises(OSError, match="full"):
        make_trace([[(1, 3)]]).save(path)
    assert Trace.load(path).fingerprint == old.fingerprint
    assert list(tmp_path.iterdir()) == [path]
