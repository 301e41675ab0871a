"""What users of RL trainers ran into: resumes that repeat or skip, rewards out of line, policies tied to a trainer."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neyman import Budget, Controller, preset
from neyman.beliefs import Counts
from neyman.errors import CallOrderError
from strategies import PRESETS, Host, assert_same_batch, run_step, through_json

STEPS = 5


def make(name):
    return Controller(PRESETS[name](), budget=Budget(rollouts=48), pool=range(60), seed=4)


def trained(batch):
    """Return the multiset of (prompt, rollout, reward) that a batch trains."""
    rows = zip(batch.prompt_ids, batch.rollout_ids.tolist(), batch.rewards.tolist(), strict=True)
    return Counter(row for row, counted in zip(rows, batch.counted, strict=True) if counted)


def run_of_steps(name, host, *, stop, rounds, told, restores):
    """Run some steps; in one of them, after some rounds, part of a round arrives, and a restored run goes on."""
    controller, rows = make(name), Counter()
    for step in range(STEPS):
        controller.begin([])
        if step == stop:
            for _ in range(rounds):
                controller.tell(host.answer(controller.ask()))
            outcomes = host.answer(controller.ask())
            arrived = round(told * len(outcomes))
            controller.tell(outcomes[:arrived])
            if restores:  # what was in flight is lost with the process, and asked for again
                state = through_json(controller.state_dict())
                controller = make(name)
                controller.load_state_dict(state)
            else:
                controller.tell(outcomes[arrived:] + host.answer(controller.ask()))
        batch, _ = run_step(controller, host, [], begin=False)
        rows += trained(batch)
    return controller, rows


@pytest.mark.parametrize("name", PRESETS)
@settings(max_examples=12)
@given(
    stop=st.integers(0, STEPS - 1),
    rounds=st.integers(0, 3),
    told=st.floats(0.0, 1.0),
    seed=st.integers(0, 99),
)
def test_case_26_a_restored_run_trains_what_the_uninterrupted_one_trains(name, stop, rounds, told, seed):
    """CASE 26. For every strategy, with failures, stopped in any round of any step with part of it in flight."""
    host, place = Host(failing=0.2, seed=seed), {"stop": stop, "rounds": rounds, "told": told}
    whole, expected = run_of_steps(name, host, restores=False, **place)
    resumed, actual = run_of_steps(name, host, restores=True, **place)
    assert actual == expected
    assert through_json(resumed.state_dict()) == through_json(whole.state_dict())


@given(seed=st.integers(0, 99), steps=st.integers(0, 3))
@pytest.mark.parametrize("name", ["uniform", "sara", "neyman"])
def test_case_27_a_state_loaded_after_the_first_step_takes_effect_or_is_refused(name, seed, steps):
    """CASE 27. For a controller that has begun, stepped, and then gets a state: refused while open, else as fresh."""
    host = Host(seed=seed)
    saved = make(name)
    for _ in range(steps):
        run_step(saved, host, [])
    state = through_json(saved.state_dict())

    late = make(name)
    late.begin([])
    asked = late.ask()
    with pytest.raises(CallOrderError, match="step 0 is open; call finish first"):
        late.load_state_dict(state)
    late.tell(host.answer(asked))  # the refusal changed nothing
    run_step(late, host, [], begin=False)
    late.load_state_dict(state)
    assert late.step == saved.step
    expected, requests = run_step(saved, host, [])
    actual, same = run_step(late, host, [])
    assert requests == same
    assert_same_batch(expected, actual)


@pytest.mark.parametrize("name", PRESETS)
@settings(max_examples=12)
@given(seed=st.integers(0, 99), shuffle=st.integers(0, 999))
def test_case_28_rewards_stay_with_their_rows_over_rounds_that_keep_part(name, seed, shuffle):
    """CASE 28. For every strategy and order of arrival: shaped rewards joined to what was told by row id."""
    controller, host = make(name), Host(seed=seed, failing=0.1, shaped=True)
    rng = np.random.default_rng(shuffle)
    told, owner = {}, {}
    for _ in range(3):
        controller.begin([])
        while not controller.is_done:
            outcomes = host.answer(controller.ask(capacity=17))
            told |= {o.rollout_id: o.reward for o in outcomes}
            owner |= {o.rollout_id: o.prompt_id for o in outcomes}
            rng.shuffle(outcomes)
            controller.tell(outcomes)
        batch = controller.finish()
        for i, prompt, reward, counted in zip(
            batch.rollout_ids.tolist(), batch.prompt_ids, batch.rewards, batch.counted, strict=True
        ):
            assert owner[i] == prompt
            assert reward == told[i] if counted else np.isnan(reward)


class Synchronous:
    """A trainer that waits for every rollout of a round before it goes on."""

    def __init__(self, host):
        self.host = host

    def step(self, policy, prompts):
        policy.begin(prompts)
        while not policy.is_done:
            policy.tell(self.host.answer(policy.ask()))
        return policy.finish()


class Asynchronous(Synchronous):
    """A trainer that keeps eight rollouts in flight and tells each when it comes, in any order."""

    def __init__(self, host, seed):
        super().__init__(host)
        self.rng = np.random.default_rng(seed)

    def step(self, policy, prompts):
        policy.begin(prompts)
        flight = []
        while not policy.is_done:
            flight += self.host.answer(policy.ask(capacity=max(0, 8 - len(flight))))
            arrived = flight.pop(int(self.rng.integers(len(flight))))
            policy.tell([arrived])
        return policy.finish()


@pytest.mark.parametrize("name", ["uniform", "vip", "vip, probe", "dynamo", "neyman"])
@given(seed=st.integers(0, 99))
def test_case_32_one_policy_makes_the_same_choices_behind_two_trainers(name, seed):
    """CASE 32. For every strategy that plans by prompts: a trainer with a barrier and one without, same results."""
    host = Host(seed=seed)
    order = np.random.default_rng(seed).permutation(60).reshape(10, 6).tolist()
    one, two = make(name), make(name)
    left, right = Synchronous(host), Asynchronous(host, seed)
    for prompts in order[:4]:
        a, b = left.step(one, prompts), right.step(two, prompts)
        assert Counter(a.prompt_ids) == Counter(b.prompt_ids)
        np.testing.assert_array_equal(np.sort(a.rewards), np.sort(b.rewards))
    state = through_json(one.state_dict())
    three = make(name)
    three.load_state_dict(state)
    assert_same_batch(left.step(one, order[5]), left.step(three, order[5]))


class DropsSolved:
    """A user's own rule: what is solved for certain is not drawn again, in this epoch or a later one."""

    def pick(self, view, count):
        offered = [*view.candidates, *view.fresh(60)]
        rate, _ = view.belief.predict(offered)
        return [prompt for prompt, p in zip(offered, rate, strict=True) if p < 0.8][:count]


@given(solved=st.sets(st.integers(0, 59), max_size=20), seed=st.integers(0, 99))
@settings(max_examples=15)
def test_case_32_a_users_own_rule_drops_solved_prompts_behind_any_trainer(solved, seed):
    """CASE 32. For every set of solved prompts: one object with one method, the same behind two trainers."""
    host = Host(rates={i: 1.0 if i in solved else 0.5 for i in range(60)}, seed=seed)
    visits = []
    for trainer in (Synchronous(host), Asynchronous(host, seed)):
        belief = Counts(prior=(1.0, 1.0), discount=1.0, fade=1.0)
        strategy = preset("uniform", select=DropsSolved(), belief=belief)
        policy = Controller(strategy, budget=Budget(rollouts=12 * 6), pool=range(60))
        for _ in range(12):  # steps of 9 prompts: two epochs
            trainer.step(policy, [])
        visits.append([policy.ledger.visits(i) for i in range(60)])
    assert visits[0] == visits[1]
    assert all(visits[0][i] == 1 for i in solved)
    assert max(visits[0]) >= 2
