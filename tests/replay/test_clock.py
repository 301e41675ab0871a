"""The virtual clock: passes are rollouts over one full group for each prompt, and they decide the visit."""

import numpy as np
import pytest

from neyman.replay import Trace
from neyman.replay._clock import Clock


def test_a_pass_is_one_full_group_for_every_prompt(make_trace):
    clock = Clock(make_trace([[(0, 8)] * 3] * 5), group_size=4)
    clock.spend(10, 700)
    assert clock.passes == 0.5
    clock.spend(10, 300)
    assert (clock.passes, clock.rollouts, clock.tokens) == (1.0, 20, 1000)


def test_the_current_visit_is_the_last_that_has_begun(make_trace):
    clock = Clock(make_trace([[(0, 8)] * 2, [(0, 8)] * 4]), group_size=2)
    assert [clock.visit(0), clock.visit(1)] == [0, 2]
    clock.spend(4, 0)  # a pass
    assert [clock.visit(0), clock.visit(1)] == [1, 3]
    clock.spend(8, 0)  # two more: the first prompt has no later visit
    assert [clock.visit(0), clock.visit(1)] == [1, 5]


def test_before_its_first_visit_a_prompt_is_at_it():
    trace = Trace(
        first=np.array([0, 1, 3]),
        time=np.array([0.5, 0.0, 0.9]),
        successes=np.array([1, 1, 2]),
        trials=np.array([2, 2, 2]),
        passes=1.5,
    )
    clock = Clock(trace, group_size=10)
    assert clock.visit(0) == 0
    clock.spend(18, 0)
    assert clock.passes == pytest.approx(0.9)
    assert clock.visit(1) == 2
