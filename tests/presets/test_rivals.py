"""Rivals as presets: each on a worked example, and the faults of its public code."""

from __future__ import annotations

import numpy as np
import pytest

from neyman import Budget, Controller, Outcome, allocate, preset, rules
from neyman.beliefs import Counts, PublishedGP
from neyman.errors import ArgumentError, StateError
from neyman.modulation import Modulation
from neyman.presets import PRESETS
from neyman.step.messages import StopReason
from strategies import Host, run_step, through_json


def run(strategy, host, *, steps, pool=40, brought=8, rollouts=64, train_rows=None):
    """Run a strategy over a pool in turn; return its controller, and the prompts opened in each step."""
    controller = Controller(
        strategy, budget=Budget(rollouts=rollouts), pool=range(pool), train_rows=train_rows
    )
    opened = []
    for step in range(steps):
        _, asked = run_step(controller, host, [(step * brought + k) % pool for k in range(brought)])
        opened.append({request.prompt_id for request in asked})
    return controller, opened


# ---------------------------------------------------------------- DAPO


def test_dynamic_sampling_ends_without_signal_and_trains_what_it_has():
    """Public DAPO raises and ends the run when so many rounds of generation have not filled the batch."""
    rates = {k: 0.5 if k < 2 else 0.0 for k in range(40)}
    controller = Controller(
        preset("dynamic-sampling", group_size=8), budget=Budget(rollouts=64), pool=range(40), train_rows=32
    )
    batch, _ = run_step(controller, Host(rates=rates), range(4))
    assert batch.stop_reason is StopReason.BUDGET
    assert batch.report["effective_groups"] == 2
    assert set(batch.prompt_ids) == {0, 1}


def test_dynamic_sampling_may_keep_the_groups_that_a_step_did_not_need():
    """Public DAPO truncates them away."""
    strategy = preset("dynamic-sampling", group_size=4, max_age=1, over_provision=4.0)
    controller = Controller(strategy, budget=Budget(rollouts=64), pool=range(40), train_rows=8)
    host = Host(rates=dict.fromkeys(range(40), 0.5))
    run_step(controller, host, range(2))
    assert len(controller.held_rollouts) > 0
    batch, _ = run_step(controller, host, range(2, 4))
    assert batch.age.max() == 1


def test_dynamic_sampling_refuses_groups_of_one():
    """Public DAPO keeps every group of one, though none can carry signal."""
    controller = Controller(preset("dynamic-sampling"), budget=Budget(rollouts=4), pool=range(40))
    with pytest.raises(ArgumentError, match="a single rollout can never be mixed"):
        controller.begin(range(4))


# ---------------------------------------------------------------- MoPPS


def test_mopps_posterior_worked_out_by_hand():
    """alpha <- lambda alpha + (1 - lambda) 1 + s, at visits 8 of 8 and 2 of 8."""
    belief = preset("mopps", fade=1.0).belief
    for s in (8, 2):
        belief.update(["a"], [s], [8])
        belief.advance()
    np.testing.assert_allclose(belief.beta_parameters(["a"]), [[7.0], [7.0]])  # .5 9 + .5 + 2, .5 1 + .5 + 6


def test_mopps_takes_groups_of_one():
    """Public MoPPS: an operator's precedence makes the whole posterior 8 when n is 1."""
    belief = preset("mopps").belief
    belief.update(["a"], [1], [1])
    assert np.concatenate(belief.beta_parameters(["a"])).tolist() == [2.0, 1.0]


def test_mopps_widens_what_it_no_longer_draws():
    """Public MoPPS decays on visits only, so a prompt given up stays given up."""
    ours, published = preset("mopps").belief, preset("mopps", fade=1.0).belief
    for belief in (ours, published):
        belief.update(["a"], [0], [8])
        belief.advance(200)
    assert published.predict(["a"])[0][0] == pytest.approx(0.1)
    assert ours.predict(["a"])[0][0] == pytest.approx(1 / (2 + 8 * 0.99**200))


def test_mopps_learns_of_prompts_that_it_never_drew_and_refuses_a_damaged_state():
    """Public MoPPS raises KeyError for the first, and goes on from the prior after the second."""
    belief = preset("mopps").belief
    belief.update(["never drawn"], [4], [8])
    assert belief.predict(["never drawn"])[0].tolist() == [0.5]
    state = belief.state_dict()
    with pytest.raises(StateError):
        preset("mopps").belief.load_state_dict({**state, "ids": state["ids"] * 2})


def test_mopps_has_the_mean_and_the_band_as_modes():
    belief = Counts(prior=(1.0, 1.0), discount=1.0, fade=1.0)
    belief.update(range(4), [40, 24, 16, 0], [40] * 4)
    for options in ({"explore": "mean"}, {"band": (0.3, 0.7)}):
        controller = Controller(
            preset("mopps", belief=belief, **options), budget=Budget(rollouts=16), pool=range(4)
        )
        batch, _ = run_step(controller, Host(), range(2))
        assert set(batch.prompt_ids) == {1, 2}


# ---------------------------------------------------------------- DPS


def test_dps_leaves_no_prompt_for_ever():
    """Public DPS ranks the pool by its prediction: in a replay of a real trace half of it was never touched."""
    rates = {k: 0.5 if k < 16 else 0.0 for k in range(40)}
    covered = {}
    for revisit in (2.5, None):
        _, opened = run(preset("dps", revisit=revisit), Host(rates=rates), steps=40)
        covered[revisit] = len(set().union(*opened[20:]))  # once the first looks are over
    assert covered[2.5] == 40
    assert covered[None] < 40


def test_dps_keeps_its_state_by_prompt_whatever_their_place():
    """Public DPS keys by the loader's index."""
    states = []
    for order in (["a", "b"], ["b", "a"]):
        controller = Controller(preset("dps", among=1.0), budget=Budget(rollouts=16))
        run_step(controller, Host(rates={"a": 1.0, "b": 0.0}), order)
        states.append(controller.strategy.belief.states(["a", "b"]).tolist())
    assert states[0] == states[1] == [[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]


# ---------------------------------------------------------------- GRESO


@pytest.mark.parametrize("rate", [0.0, 1.0])
def test_greso_ends_a_step_without_any_signal(rate):
    """Public GRESO divides by 1 - the share of uniform groups."""
    controller = Controller(
        preset("greso", group_size=4), budget=Budget(rollouts=64), pool=range(40), train_rows=16
    )
    for step in range(3):
        batch, asked = run_step(controller, Host(rates=dict.fromkeys(range(40), rate)), range(4 * step, 4))
        assert batch.stop_reason is StopReason.BUDGET
        assert sum(len(request.rollout_ids) for request in asked) == 64
        assert not batch.weights.any()


def test_greso_trains_whole_batches_or_says_why_not():
    """Public GRESO trains whatever its last round gave; rows may not divide by the number of processes."""
    controller = Controller(
        preset("greso", group_size=4), budget=Budget(rollouts=64), pool=range(40), train_rows=16, divisor=8
    )
    batch, _ = run_step(controller, Host(rates=dict.fromkeys(range(40), 0.5)), range(4))
    assert (len(batch), batch.stop_reason) == (16, StopReason.FILLED)
    batch, _ = run_step(controller, Host(rates=dict.fromkeys(range(40), 0.02)), range(4, 8))
    assert len(batch) % 8 == 0
    assert batch.stop_reason is not StopReason.FILLED


@pytest.mark.parametrize("reward", [(0.0, 1.0), (0.1, 1.0), (-1.0, 1.0)])
def test_greso_judges_runs_on_success_whatever_the_reward(reward):
    """Public GRESO compares mean rewards with .98 and .11: with rewards of -1 and 1 it never sees a hard run."""
    controller = Controller(preset("greso", group_size=4, fade=1.0), budget=Budget(rollouts=8), train_rows=8)
    for _ in range(2):
        controller.begin(["solved", "failed"])
        while not controller.is_done:
            controller.tell(
                Outcome(
                    rollout_id=i,
                    prompt_id=request.prompt_id,
                    reward=reward[request.prompt_id == "solved"],
                    success=request.prompt_id == "solved",
                )
                for request in controller.ask()
                for i in request.rollout_ids
            )
        controller.finish()
    easy, hard = controller.strategy.belief.streaks(["solved", "failed"])
    assert (easy.tolist(), hard.tolist()) == ([2.0, 0.0], [0.0, 2.0])


def test_greso_resumes_with_what_it_had_opened():
    """Public GRESO does not save the prompts that it has accepted and not rolled out yet."""

    def start():
        return Controller(
            preset("greso", group_size=4), budget=Budget(rollouts=64), pool=range(40), train_rows=16
        )

    straight, host = start(), Host(rates=dict.fromkeys(range(40), 0.5))
    straight.begin(range(4))
    first = straight.ask(8)
    resumed = start()
    resumed.load_state_dict(through_json(straight.state_dict()))
    ids = {i for request in first for i in request.rollout_ids}
    again = resumed.ask(len(ids))
    assert {i for request in again for i in request.rollout_ids} == ids
    batches = []
    for controller, waiting in ((straight, first), (resumed, again)):
        controller.tell(host.answer(waiting))
        while not controller.is_done:
            controller.tell(host.answer(controller.ask()))
        batches.append(controller.finish())
    assert batches[0].prompt_ids == batches[1].prompt_ids


def test_greso_saves_what_dynamic_sampling_spends_on_settled_prompts():
    rates = {k: (0.5, 1.0, 0.0)[k % 3] for k in range(60)}
    spent = {}
    for name in ("greso", "dynamic-sampling"):
        controller, _ = run(
            preset(name, group_size=4),
            Host(rates=rates),
            steps=60,
            pool=60,
            brought=4,
            rollouts=96,
            train_rows=16,
        )
        spent[name] = controller.ledger.requested
    assert spent["greso"] < 0.8 * spent["dynamic-sampling"]


# ---------------------------------------------------------------- PCL, VIP and its baselines


def test_the_curriculum_takes_the_nearest_to_one_half_among_four_times_as_many():
    belief = Counts(prior=(1.0, 1.0), discount=1.0, fade=1.0)
    belief.update(range(8), [0, 4, 18, 39, 40, 30, 21, 10], [40] * 8)
    controller = Controller(preset("curriculum", belief=belief), budget=Budget(rollouts=16), pool=range(8))
    batch, _ = run_step(controller, Host(), [0, 4])
    assert set(batch.prompt_ids) == {6, 2}


def test_the_moving_average_worked_out_by_hand():
    """Visits 8, 0 and 4 of 8 at rate 1/2: (1 + 2 0 + 4 1/2) / 7, the average without the bias of its start."""
    belief = preset("moving-average", rate=0.5).belief
    average, weight = 0.0, 0.0
    for s in (8, 0, 4):
        belief.update(["a"], [s], [8])
        belief.advance()
        average, weight = 0.5 * average + 0.5 * s / 8, 0.5 * weight + 0.5
    assert average / weight == pytest.approx(3 / 7)
    assert belief.predict(["a"])[0][0] == pytest.approx(3 / 7, abs=1e-6)
    assert preset("moving-average", rate=1.0).belief.state_dict()["config"]["discount"] == 0.0
    with pytest.raises(ArgumentError, match="rate"):
        preset("moving-average", rate=0.0)


@pytest.mark.parametrize("name", ["vip", "inverse-accuracy", "inverse-variance"])
def test_the_rows_of_vips_table_are_its_process_with_another_rule(name):
    strategy = preset(name, variant="published")
    assert isinstance(strategy.belief, PublishedGP)
    assert strategy.allocate.plug_in
    assert not isinstance(preset(name).belief, PublishedGP)
    with pytest.raises(ArgumentError, match="variant"):
        preset(name, variant="paper")


def test_vip_takes_equal_rates_at_any_budget():
    """Public VIP asserts that the budget divides by 4 where all rates are equal."""
    assert allocate([0.5] * 4, 30, 4, 32).tolist() == [8, 8, 7, 7]


def test_vip_spends_a_budget_that_fills_every_bound():
    """Public VIP raises "all at upper bound" in its rounding."""
    for variant in ("exact", "published"):
        assert allocate([0.5, 0.1, 0.0], 96, 4, 32, variant=variant).tolist() == [32, 32, 32]


def test_vips_process_does_not_take_a_solved_group_for_certainty():
    """Public VIP clips rates at 1e-6: a group of four that is all right has the logit +13.8."""
    belief = PublishedGP()
    belief.update(["a"], [4], [4])
    assert belief.predict_logit(["a"])[0][0] == pytest.approx(np.log(19.0))  # eps = .05


def test_vip_never_zeroes_a_group_and_has_no_tilt():
    """Public VIP drops groups below 4 and adds a term towards hard prompts; rates p and 1-p get the same here."""
    counts = allocate([0.2, 0.8, 0.001, 0.999], 40, 4, 32)
    assert counts[0] == counts[1]
    assert counts[2] == counts[3] == 4


# ---------------------------------------------------------------- SARA and DynaMO, as published


def test_sara_as_published_takes_the_uniform_prior_at_every_step():
    """After 30 visits of 4 in 8 four failures are bad luck: 1 - (1/2)^4 by the belief, 4/9 by the uniform prior."""
    decisions = {}
    for variant in ("calibrated", "published"):
        strategy = preset("sara", group_size=8, variant=variant)
        for _ in range(30):
            strategy.belief.update(["a"], [4], [8])
            strategy.belief.advance()
        prior = tuple(float(x[0]) for x in strategy.belief.beta_parameters(["a"]))
        decisions[variant] = strategy.verdict.decide(0, 4, 8, prior)
    assert decisions == {"calibrated": "continue", "published": "abandon"}


@pytest.mark.parametrize("order", ["dps", "mopps"])
def test_sara_takes_the_order_and_belief_of_another_method(order):
    named, optional, plain = preset(f"sara+{order}"), preset("sara", order=order), preset(order)
    assert named.name == optional.name == f"sara+{order}"
    assert named.select == optional.select == plain.select
    assert type(named.belief) is type(plain.belief)
    assert isinstance(named.verdict, rules.EarlyVerdict)
    with pytest.raises(ArgumentError, match="order"):
        preset("sara", order="greso")


def test_dynamo_as_published_has_the_authors_water_level_and_token_factor():
    strategy = preset("dynamo", variant="published")
    assert strategy.allocate == rules.WaterLevel(4, 32, variant="published")
    assert strategy.modulation == Modulation.published()
    assert preset("dynamo").modulation == Modulation()


def test_dynamo_keeps_rows_with_their_prompts_at_any_counts():
    """Public DynaMO repeats prompts by a constant and responses by the counts: totals agree, rows do not."""
    strategy = preset("dynamo", lower=2, modulation=None)
    strategy.belief.update(range(4), [0, 8, 0, 4], [16, 16, 16, 16])
    controller = Controller(strategy, budget=Budget(rollouts=32))
    batch, asked = run_step(controller, Host(), range(4))
    prompts = {i: request.prompt_id for request in asked for i in request.rollout_ids}
    assert len({batch.prompt_ids.count(k) for k in range(4)}) > 1
    assert [prompts[i] for i in batch.rollout_ids.tolist()] == list(batch.prompt_ids)


# ---------------------------------------------------------------- estimators


@pytest.mark.parametrize("name", list(PRESETS))
def test_every_preset_runs_with_reinforce_plus_plus(name):
    """Its advantages are whitened over the batch, whatever the groups are."""
    strategy = preset(name, estimator="reinforce++")
    controller = Controller(strategy, budget=Budget(rollouts=64), pool=range(40))
    rates = dict.fromkeys(range(40), 0.5)
    batch, _ = run_step(controller, Host(rates=rates), range(8))
    counted = batch.advantages[batch.counted]
    assert batch.estimator == "reinforce++"
    assert len(counted) > 8
    np.testing.assert_allclose([counted.mean(), counted.std()], [0.0, 1.0], atol=0.02)
