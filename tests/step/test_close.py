"""The end of a step: rows, weights, fates, and the reason."""

from __future__ import annotations

import numpy as np
import pytest

from neyman import Budget, Controller, Fate, StopReason, preset
from neyman.errors import ArgumentError, CallOrderError, ContractError
from strategies import (
    Host,
    assert_consistent,
    outcome,
    run_step,
    simple,
    tell_all,
    through_json,
)

PROMPTS = list(range(8))


def test_fill_copies_have_no_weight_and_no_advantage():
    controller = simple("sara", 32, train_rows=32)
    batch, _ = run_step(
        controller, Host(rates={"a": 0.5, "b": 0.0}), ["a", "b", "c", "d", "e", "f", "g", "h"]
    )
    copies = batch.groups < 0
    assert len(batch) == 32
    assert copies.any()
    assert not batch.weights[copies].any()
    assert not batch.advantages[copies].any()


def test_rows_come_in_multiples_of_the_divisor_without_any_being_cut():
    controller = simple(rollouts=16, divisor=8, retries=0.0)
    batch, _ = run_step(controller, Host(failing=0.2, seed=3), PROMPTS)
    assert batch.report["rows_filled"] > 0
    assert len(batch) == 16


@pytest.mark.parametrize("dead_groups", ["keep", "exclude"])
def test_weights_give_the_mean_of_group_means(dead_groups):
    controller = simple("vip", 64, train_rows=64, options={"dead_groups": dead_groups}, pool=range(40))
    for _ in range(4):
        batch, _ = run_step(controller, Host(failing=0.1), PROMPTS)
        values = np.random.default_rng(0).normal(size=len(batch))
        groups = [batch.counted & (batch.groups == g) for g in range(batch.groups.max() + 1)]
        if dead_groups == "exclude":
            groups = [g for g in groups if 0 < batch.success[g].sum() < g.sum()]
        means = [values[g].mean() for g in groups if g.any()]
        assert np.mean(means) == pytest.approx(np.mean(batch.weights * values))


def test_an_early_end_by_the_host_gives_a_batch_and_what_comes_later_is_late():
    controller = simple(rollouts=8)
    controller.begin(["a", "b"])
    requests = controller.ask(6)
    results = Host().answer(requests)
    controller.tell(results[:3])
    batch = controller.finish()
    assert batch.stop_reason is StopReason.HOST
    assert batch.report["rows"] == 3
    controller.begin(["c"])
    with pytest.raises(ContractError, match="out of line"):
        controller.tell([outcome(results[4].rollout_id, "c", 1.0)])
    controller.tell(results[3:] + results[3:])
    controller.tell(results)  # told again, and of a closed step: nothing is counted twice
    assert controller.ledger.rollouts(Fate.LATE) == 3
    assert_consistent(controller)


def test_an_empty_pool_ends_the_step_with_what_there_is():
    controller = Controller(
        preset("dynamic-sampling", group_size=4), budget=Budget(rollouts=64), train_rows=16, pool=range(3)
    )
    batch, _ = run_step(controller, Host(rates=dict.fromkeys(range(3), 0.5)), [0])
    assert batch.stop_reason is StopReason.POOL
    assert controller.ledger.prompts_visited == 3
    assert len(batch) == 16


def test_without_candidates_all_prompts_come_from_the_pool():
    for name in ("uniform", "vip", "sara", "neyman"):
        controller = simple(name, 64, pool=range(40))
        _, asked = run_step(controller, Host(), [])
        assert len({r.prompt_id for r in asked}) >= 8
    with pytest.raises(ArgumentError, match="no candidates and the controller has no pool"):
        simple().begin([])


def test_a_prompt_that_stands_twice_counts_once():
    controller = simple(rollouts=8)
    batch, _ = run_step(controller, Host(), ["a", "a", "b", "a"])
    assert batch.prompt_ids == ("a",) * 4 + ("b",) * 4


def test_streamed_groups_leave_once_and_as_soon_as_they_close():
    controller = simple("uniform, streaming", 12)
    controller.begin(["a", "b", "c"])
    a, b, c = (Host().outcomes(r) for r in controller.ask())
    assert len(controller.drain()) == 0
    controller.tell([*a, *b[:2]])
    first = controller.drain()
    assert set(first.prompt_ids) == {"a"}
    assert first.stop_reason is StopReason.OPEN
    state = through_json(controller.state_dict())
    controller = simple("uniform, streaming", 12)
    controller.load_state_dict(state)
    assert len(controller.drain()) == 0, "what was handed out is remembered"
    controller.tell([*b[2:], *c])
    assert set(controller.drain().prompt_ids) == {"b", "c"}
    assert [r.prompt_id for r in controller.group_reports] == ["a", "b", "c"]
    assert len(controller.finish()) == 0
    assert_consistent(controller)


def test_groups_that_will_be_counted_again_are_not_drained():
    controller = simple("vip, streaming", 32)
    controller.begin(["a", "b"])
    requests = controller.ask()
    controller.tell(Host().outcomes(requests[0]))
    assert len(controller.drain()) == 0
    whole = simple()
    whole.begin(["a"])
    with pytest.raises(CallOrderError, match="close='streaming'"):
        whole.drain()


def test_after_a_commit_a_group_may_stop_as_it_is():
    def rollouts(after_commit):
        controller = Controller(
            preset("sara", group_size=8, after_commit=after_commit), budget=Budget(rollouts=8)
        )
        controller.begin(["a"])
        tell_all(controller, lambda place: float(place == 0))
        batch, _ = run_step(controller, Host(), [], begin=False)
        return len(batch)

    assert rollouts("complete") == 8
    assert rollouts("stop") == 4


def test_speculation_asks_for_whole_groups_and_cancels_what_a_verdict_makes_needless():
    controller = Controller(
        preset("sara", group_size=8, speculate=True), budget=Budget(rollouts=8), retries=0.0
    )
    controller.begin(["a"])
    (request,) = controller.ask()
    assert len(request.rollout_ids) == 8
    controller.tell(outcome(i, "a", 0.0) for i in request.rollout_ids[:4])
    (cancel,) = controller.cancellations()
    assert request.rollout_ids[4:] == cancel.rollout_ids
    assert controller.is_done
    controller.tell([outcome(request.rollout_ids[4], "a", 1.0)])
    assert controller.cancellations() == []
    controller.finish()
    assert controller.ledger.rollouts(Fate.ABANDONED) == 5
    assert_consistent(controller)


def test_committed_groups_are_completed_from_the_allowance_or_closed_as_they_are():
    def rows(from_allowance):
        controller = Controller(
            preset("sara", group_size=8, complete_from_allowance=from_allowance, over_provision=2.0),
            budget=Budget(rollouts=8),
            retries=1.0,
        )
        controller.begin(["a", "b"])
        tell_all(controller, lambda place: float(place % 2))
        return len(run_step(controller, Host(), [], begin=False)[0])

    # 8 rollouts probe two prompts, 4 each; both commit, and completing them needs 8 more.
    assert rows(from_allowance=False) == 8
    assert rows(from_allowance=True) == 16


def test_what_was_handed_out_is_not_extended_afterwards():
    controller = simple("sara, streaming", 16)  # groups of 4, looked at after 2
    controller.begin(["a", "b"])
    a, b = controller.ask()
    controller.tell(outcome(i, "a", float(n)) for n, i in enumerate(a.rollout_ids))
    (rest,) = controller.ask()
    controller.tell(outcome(i, "a", 1.0) for i in rest.rollout_ids)
    assert set(controller.drain().prompt_ids) == {"a"}
    controller.tell(outcome(i, "b", 0.0) for i in b.rollout_ids)
    assert {r.prompt_id for r in controller.ask()} == {"b"}


def test_groups_with_results_still_out_are_not_handed_out():
    strategy = preset("sara", group_size=8, speculate=True, close="streaming")
    controller = Controller(strategy, budget=Budget(rollouts=8))
    controller.begin(["a"])
    (request,) = controller.ask()
    controller.tell(outcome(i, "a", 0.0) for i in request.rollout_ids[:4])
    assert len(controller.drain()) == 0, "it is given up, but four results may still come"
    controller.tell(outcome(i, "a", 0.0) for i in request.rollout_ids[4:])
    assert len(controller.drain()) == 8
    assert_consistent(controller)


def test_a_group_that_stops_gives_back_what_it_had_not_asked_for():
    strategy = preset("sara", group_size=8, speculate=True, after_commit="stop")
    controller = Controller(strategy, budget=Budget(rollouts=8))
    controller.begin(["a"])
    (request,) = controller.ask(3)
    controller.tell(outcome(i, "a", float(n)) for n, i in enumerate([*request.rollout_ids[:2]]))
    assert controller.ask() == []
    controller.tell([outcome(request.rollout_ids[2], "a", 1.0)])
    assert controller.is_done
    assert len(controller.finish()) == 3


def test_a_retry_that_is_not_needed_any_more_goes_back_to_the_allowance():
    controller = Controller(
        preset("sara", group_size=8, speculate=True), budget=Budget(rollouts=8), retries=0.5
    )
    controller.begin(["a"])
    (request,) = controller.ask()
    controller.tell([outcome(request.rollout_ids[6], "a", None)])
    controller.tell(outcome(i, "a", 0.0) for i in request.rollout_ids[:4])
    assert controller.is_done
    assert (controller._engine.state.left, controller._engine.state.retries_left) == (0, 4)
    assert_consistent(controller)


def test_a_wave_is_not_topped_up_while_its_groups_are_undecided():
    controller = Controller(
        preset("dynamic-sampling", group_size=4, over_provision=1.0),
        budget=Budget(rollouts=64),
        train_rows=8,
        pool=range(20),
    )
    controller.begin([0, 1])
    requests = controller.ask()
    assert [r.prompt_id for r in requests] == [0, 1]
    controller.tell([outcome(requests[0].rollout_ids[0], 0, 1.0)])
    assert controller.ask() == []


def test_complete_groups_are_trained_before_short_ones():
    controller = Controller(
        preset("dynamic-sampling", group_size=4, over_provision=1.5),
        budget=Budget(rollouts=64),
        train_rows=8,
        retries=0.0,
    )
    controller.begin(["a", "b", "c"])
    requests = {r.prompt_id: r.rollout_ids for r in controller.ask()}
    controller.tell(
        outcome(
            i,
            p,
            None if (p, n) == ("a", 3) else float(n % 2),
            status="failed" if (p, n) == ("a", 3) else "ok",
        )
        for p, ids in requests.items()
        for n, i in enumerate(ids)
    )
    batch = controller.finish()
    assert batch.prompt_ids == ("b",) * 4 + ("c",) * 4
    assert batch.counted.all()
