"""What users of RL trainers ran into: repeated repetition, rows out of line, divisors, ranks, sizes that vary."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neyman import Budget, Controller, Fate, Strategy, gradient_variance, preset
from neyman.beliefs import Counts
from neyman.errors import ArgumentError, ContractError
from neyman.rules import Allocate
from strategies import PRESETS, Host, assert_same_batch, assert_sound_batch, outcome, run_step, simple

histories = st.lists(st.integers(0, 9), min_size=2, max_size=4)


def vip(history, rollouts, divisor=1):
    """Return a controller that allocates by these successes of nine."""
    controller = Controller(
        preset("vip", lower=2, upper=64, belief=Counts(prior=(1.0, 1.0), discount=1.0, fade=1.0)),
        budget=Budget(rollouts=rollouts),
        divisor=divisor,
    )
    controller.strategy.belief.update(range(len(history)), history, [9] * len(history))
    return controller


class Given(Allocate):
    """Allocates these counts to the prompts in their order."""

    probe = 0

    def __init__(self, sizes):
        self.sizes = sizes

    def group_size(self, average):
        return average

    def counts(self, evidence, budget):
        return np.array(self.sizes, dtype=np.int64)


@given(
    sizes=st.lists(st.integers(0, 32), min_size=1, max_size=8).filter(any),
    failing=st.sampled_from([0.0, 0.2]),
    shuffle=st.integers(0, 999),
)
def test_case_17_rows_of_ragged_groups_map_to_their_prompts_and_prompts_without_rollouts_are_absent(
    sizes, failing, shuffle
):
    """CASE 17. For every vector of counts, zeros among them, and every order of arrival."""
    strategy = Strategy(name="given", allocate=Given(sizes))
    controller = Controller(strategy, budget=Budget(rollouts=sum(sizes)), retries=0.0)
    prompts = [f"prompt {i}" for i in range(len(sizes))]
    batch, asked = run_step(
        controller, Host(failing=failing), prompts, capacity=7, rng=np.random.default_rng(shuffle)
    )
    owners = {i: r.prompt_id for r in asked for i in r.rollout_ids}
    counts = {prompt: n for prompt, n in zip(prompts, sizes, strict=True) if n}
    assert Counter(owners.values()) == counts
    assert [owners[i] for i in batch.rollout_ids.tolist()] == list(batch.prompt_ids)
    opened = list(counts)
    labels = set(
        zip(batch.groups[batch.counted].tolist(), np.array(batch.prompt_ids)[batch.counted], strict=True)
    )
    assert len(labels) == len({group for group, _ in labels}) == len({prompt for _, prompt in labels})
    assert [g.prompt_id for g in controller.group_reports] == opened
    assert [controller.ledger.visits(prompt) for prompt in prompts] == [int(n > 0) for n in sizes]


@given(history=histories, extra=st.integers(0, 30))
def test_case_18_a_plan_read_per_row_and_per_request_asks_for_the_same_rollouts(history, extra):
    """CASE 18. For every ragged plan: rows of one rollout each, or one request with its n, never n times n."""
    controller = vip(history, 2 * len(history) + extra)
    controller.begin(range(len(history)))
    requests = controller.ask()
    expanded = [(r.prompt_id, i, r.seed + j) for r in requests for j, i in enumerate(r.rollout_ids)]
    per_request = [(r.prompt_id, len(r.rollout_ids)) for r in requests]
    assert len(expanded) == sum(n for _, n in per_request) == 2 * len(history) + extra
    assert Counter(p for p, _, _ in expanded) == Counter(dict(per_request))
    assert len({i for _, i, _ in expanded}) == len(expanded)
    assert len({(p, seed) for p, _, seed in expanded}) == len(expanded), "no rollout is drawn twice alike"
    assert controller.ask() == [], "the repetition is ours alone"


def test_case_18_results_of_an_engine_that_repeats_once_more_cannot_be_told():
    """CASE 18. For a host that gives the repeated rows ids of its own."""
    controller = simple(rollouts=4)
    controller.begin(["a"])
    (request,) = controller.ask()
    twice = range(4 * len(request.rollout_ids))
    with pytest.raises(ContractError, match="never requested"):
        controller.tell(outcome(i, "a", 1.0) for i in twice)
    controller.tell(outcome(i, "a", 1.0) for i in (*request.rollout_ids, *request.rollout_ids))
    assert len(controller.finish()) == 4, "told twice counts once"


@given(history=histories, extra=st.integers(0, 30))
def test_case_19_labels_of_equal_groups_on_rows_of_unequal_ones_are_refused(history, extra):
    """CASE 19. For every ragged plan joined to another plan with the same total: [12, 4] read as [8, 8]."""
    controller = vip(history, 2 * len(history) + extra)
    controller.begin(range(len(history)))
    rows = [(i, r.prompt_id) for r in controller.ask() for i in r.rollout_ids]
    even = np.repeat(range(len(history)), len(rows) // len(history) + 1)[: len(rows)].tolist()
    labels = [int(label) for label in even]
    told = [outcome(i, label, 1.0) for (i, _), label in zip(rows, labels, strict=True)]
    if labels == [p for _, p in rows]:
        controller.tell(told)
        return
    with pytest.raises(ContractError, match="rows are out of line"):
        controller.tell(told)
    assert controller.ledger.rollouts() == 0
    controller.tell(outcome(i, p, 1.0) for i, p in rows)
    assert list(controller.finish().prompt_ids) == [p for _, p in rows], "nothing was taken in before"


@given(history=histories, eighths=st.integers(1, 4))
def test_case_20_the_budget_divides_and_extras_go_where_they_are_worth_most(history, eighths):
    """CASE 20. For a divisor of 8 and every history: no other counts with a sum that divides have less variance."""
    controller = vip(history, 8 * eighths, divisor=8)
    batch, _ = run_step(controller, Host(), range(len(history)))
    assert len(batch) == 8 * eighths
    rates = np.array([(s + 1.0) / 11.0 for s in history])
    spread = rates * (1 - rates) * 11.0 / 12.0  # the posterior's E[p(1-p)]
    got = np.array([batch.prompt_ids.count(i) for i in range(len(history))])

    def total(counts):
        return float((spread * gradient_variance(0.5, counts)).sum())

    for give, take in itertools.permutations(range(len(history)), 2):
        if got[give] > 2:
            moved = got.copy()
            moved[give], moved[take] = moved[give] - 1, moved[take] + 1
            assert total(got) <= total(moved) * (1 + 1e-9)


@pytest.mark.parametrize("rollouts", [9, 41, 63])
def test_case_20_a_budget_that_does_not_divide_names_the_nearest(rollouts):
    """CASE 20. For budgets that equal ranks cannot share."""
    below = rollouts // 8 * 8
    with pytest.raises(ArgumentError, match=f"the nearest are {below} and {below + 8}"):
        Controller(preset("uniform"), budget=Budget(rollouts=rollouts), divisor=8)


@pytest.mark.parametrize("name", PRESETS)
@settings(max_examples=12)
@given(failing=st.sampled_from([0.0, 0.3]), divisor=st.sampled_from([2, 3, 8]), seed=st.integers(0, 50))
def test_case_20_what_does_not_divide_is_padded_without_weight_and_never_trimmed(
    name, failing, divisor, seed
):
    """CASE 20. For every strategy, a row count left open, odd groups and failures."""
    controller = Controller(PRESETS[name](), budget=Budget(rollouts=24), divisor=divisor, pool=range(60))
    batch, asked = run_step(controller, Host(failing=failing, seed=seed), range(3))
    assert len(batch) % divisor == 0
    owners = {i: r.prompt_id for r in asked for i in r.rollout_ids}
    assert_sound_batch(controller, batch, owners)
    trained = {
        g.prompt_id: g.trials - g.spare
        for g in controller.group_reports
        if g.outcome in ("trained", "uniform")
    }
    assert Counter(p for p, ok in zip(batch.prompt_ids, batch.counted, strict=True) if ok) == Counter(
        {p: n for p, n in trained.items() if n}
    )


@pytest.mark.parametrize("name", PRESETS)
@settings(max_examples=12)
@given(seed=st.integers(0, 50), shuffle=st.integers(0, 1000))
def test_case_21_ranks_that_hear_of_results_in_another_order_derive_the_same_plan(name, seed, shuffle):
    """CASE 21. For every strategy, ranks with other local results that gather them before they tell."""
    ranks = [Controller(PRESETS[name](), budget=Budget(rollouts=48), pool=range(60)) for _ in range(2)]
    host, rng = Host(seed=seed, failing=0.1), np.random.default_rng(shuffle)
    for controller in ranks:
        controller.begin(range(6))
    while not ranks[0].is_done:
        plans = [controller.ask() for controller in ranks]
        assert plans[0] == plans[1]
        gathered = host.answer(plans[0])
        ranks[0].tell(gathered)
        rng.shuffle(gathered)
        ranks[1].tell(gathered)
    assert ranks[1].is_done
    assert_same_batch(*(controller.finish() for controller in ranks))


@given(rate=st.sampled_from([0.1, 0.2, 0.5]), seed=st.integers(0, 99))
def test_case_22_a_batch_is_of_fixed_size_or_says_its_size_and_weight(rate, seed):
    """CASE 22. For one trace of results under both modes: refilled to fixed rows, or as many as are effective."""
    sizes = {}
    for rows in (32, None):
        controller = Controller(
            preset("dynamic-sampling", group_size=4),
            budget=Budget(rollouts=64),
            train_rows=rows,
            pool=range(900),
        )
        host = Host(rates=dict.fromkeys(range(900), rate), seed=seed)
        batches = [run_step(controller, host, range(8 * s, 8 * s + 8))[0] for s in range(4)]
        for batch in batches:
            real = int(batch.counted.sum())
            assert batch.report["rows"] == len(batch)
            assert batch.report["rows_filled"] == len(batch) - real
            assert batch.report["effective_groups"] == real / 4
            # The flat mean over the batch is the mean over its real rows, whatever fills it.
            assert batch.weights.sum() == pytest.approx(len(batch) if real else 0.0)
        sizes[rows] = [len(batch) for batch in batches]
    assert sizes[32] == [32] * 4
    assert all(n % 4 == 0 and n <= 64 for n in sizes[None])


@pytest.mark.parametrize("name", ["uniform", "vip", "sara", "dynamic-sampling"])
@given(prompts=st.integers(4, 20), seed=st.integers(0, 50))
def test_case_23_prompts_that_do_not_divide_are_all_drawn_before_any_is_drawn_twice(name, prompts, seed):
    """CASE 23. For every pool, 9 prompts in batches of 4 among them: an epoch's tail is taken up by the next step."""
    fixed_train = name in ("sara", "dynamic-sampling")
    options = {"group_size": 4} if fixed_train else {}
    controller = Controller(
        preset(name, **options), budget=Budget(rollouts=16), pool=range(prompts), seed=seed
    )
    host, drawn = Host(seed=seed), []
    while len(drawn) < 3 * prompts:
        run_step(controller, host, [])
        drawn += [g.prompt_id for g in controller.group_reports]
    for first in range(0, 3 * prompts, prompts):
        assert set(drawn[first : first + prompts]) == set(range(prompts))


def test_case_23_prompts_that_do_not_divide_the_budget_share_it_evenly():
    """CASE 23. For 9 prompts at a budget of 4 x 8."""
    controller = Controller(preset("uniform"), budget=Budget(rollouts=32))
    batch, _ = run_step(controller, Host(), range(9))
    assert sorted(Counter(batch.prompt_ids).values()) == [3] * 4 + [4] * 5
    controller = Controller(preset("uniform", group_size=8), budget=Budget(rollouts=32))
    with pytest.raises(ArgumentError, match=r"set the budget to 72, or bring 4 prompts"):
        controller.begin(range(9))


@given(
    pieces=st.lists(st.integers(1, 5), min_size=2, max_size=8),
    shuffle=st.integers(0, 999),
    later=st.integers(0, 2),
)
def test_case_25_a_trajectory_counts_once_however_many_pieces_it_comes_in(pieces, shuffle, later):
    """CASE 25. For every number of trajectories and pieces, told in any order; one piece has the reward."""
    rng = np.random.default_rng(shuffle)
    controller = simple(rollouts=len(pieces), retries=0.0)
    controller.begin(["a"])
    (request,) = controller.ask()
    told, rest, tokens = [], [], 0
    for n, (i, count) in enumerate(zip(request.rollout_ids, pieces, strict=True)):
        rewarded = int(rng.integers(count))
        for part in range(count):
            reward = float(n % 2) if part == rewarded else None
            told.append(outcome(i, "a", reward, n_tokens=int(rng.integers(9)), trajectory_id=f"t{i}"))
        rest += [outcome(i, "a", 1.0, n_tokens=3, trajectory_id=f"t{i}")] * later
    rng.shuffle(told)
    tokens = sum(piece.n_tokens for piece in told + rest)
    controller.tell(told)
    controller.tell(rest)  # pieces that come after the one with the reward add their tokens only
    batch = controller.finish()
    (report,) = controller.group_reports
    assert (report.trials, report.successes) == (len(pieces), len(pieces) // 2)
    assert batch.rewards.tolist() == [float(n % 2) for n in range(len(pieces))]
    assert controller.ledger.rollouts() == controller.ledger.requested == len(pieces)
    assert controller.ledger.tokens() == batch.report["tokens"] == tokens


@given(pieces=st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=4), min_size=1, max_size=5))
def test_case_25_pieces_of_a_trajectory_that_come_too_late_are_one_late_rollout_with_all_their_tokens(pieces):
    """CASE 25. For every number of trajectories and pieces that come after their step has closed."""
    controller = simple(rollouts=len(pieces))
    controller.begin(["a"])
    (request,) = controller.ask()
    controller.finish()
    controller.begin(["b"])
    controller.tell(
        outcome(i, "a", 1.0, n_tokens=n, trajectory_id=f"t{i}")
        for i, lengths in zip(request.rollout_ids, pieces, strict=True)
        for n in lengths
    )
    assert controller.ledger.rollouts(Fate.LATE) == len(pieces)
    assert controller.ledger.tokens(Fate.LATE) == sum(map(sum, pieces))
