"""Which prompts get rollouts."""

from __future__ import annotations

import numpy as np
import pytest

from neyman.beliefs import Counts
from neyman.errors import ArgumentError
from neyman.randomness import keyed_rng
from neyman.rules import ClosestTo, HighestVariance, InOrder, Revisit, StepView


def view(candidates, fresh=(), belief=None, seed=0, due=()):
    return StepView(
        step=0,
        candidates=tuple(candidates),
        fresh=lambda count: list(fresh)[: max(count, 0)],
        browse=lambda count: list(fresh)[: max(count, 0)],
        overdue=lambda passes, count=None: list(due)[:count],
        group_size=8,
        belief=belief or Counts(prior=(1.0, 1.0)),
        rng=lambda *keys: keyed_rng(seed, *keys),
    )


def seen(table):
    belief = Counts(prior=(0.5, 0.5), discount=1.0, fade=1.0)
    belief.update(list(table), [s for s, _ in table.values()], [n for _, n in table.values()])
    return belief


def test_in_order_takes_the_hosts_prompts_and_then_the_pools():
    assert InOrder().pick(view("ab", "cd"), 3) == ["a", "b", "c"]
    assert InOrder().pick(view("ab", "cd"), 1) == ["a"]
    assert InOrder().pick(view("ab"), 9) == ["a", "b"]
    assert InOrder().pick(view("ab", "cd"), 0) == []


def test_highest_variance_ranks_by_the_mean_with_ties_in_order():
    belief = seen({"easy": (40, 40), "hard": (0, 40), "half": (20, 40), "third": (13, 40), "twin": (20, 40)})
    best = HighestVariance(explore="mean").pick(view(["easy", "hard", "half", "third"], ["twin"], belief), 3)
    assert best == ["half", "twin", "third"]


def test_it_looks_at_some_of_the_pool_and_always_at_the_hosts_own():
    belief = seen(dict.fromkeys(range(10), (0, 40)) | {99: (20, 40)})
    rule = HighestVariance(among=2.0, explore="mean")
    assert rule.pick(view(range(3), [99, *range(3, 9)], belief), 2)[0] == 99
    assert 99 not in rule.pick(view(range(4), [99], belief), 2), "four candidates of two are enough"
    assert rule.pick(view([], []), 3) == []


def test_exploration_gives_the_uncertain_a_chance_and_is_keyed():
    belief = seen({"sure": (50, 100), "dead": (0, 200)})
    picks = [
        HighestVariance().pick(view(["dead", "sure", "new"], (), belief, seed), 1)[0] for seed in range(200)
    ]
    assert picks == [
        HighestVariance().pick(view(["dead", "sure", "new"], (), belief, seed), 1)[0] for seed in range(200)
    ]
    share = np.mean([p == "new" for p in picks])
    assert 0.02 < share < 0.5
    assert "dead" not in picks


@pytest.mark.parametrize(
    ("arguments", "name"), [({"among": 0.5}, "among"), ({"explore": "greedy"}, "explore")]
)
def test_illegal_arguments_name_themselves(arguments, name):
    with pytest.raises(ArgumentError, match=name):
        HighestVariance(**arguments)


def test_the_nearest_to_the_target_come_first():
    belief = seen({"easy": (36, 40), "hard": (0, 40), "half": (20, 40), "fair": (28, 40)})
    among = view(["easy", "hard", "half", "fair"], (), belief)
    assert ClosestTo(explore="mean").pick(among, 2) == ["half", "fair"]
    assert ClosestTo(0.9, explore="mean").pick(among, 2) == ["easy", "fair"]
    assert ClosestTo().pick(view([], []), 2) == []
    with pytest.raises(ArgumentError, match="target must be a finite number in"):
        ClosestTo(1.5)


def test_prompts_that_waited_too_long_come_before_what_a_rule_prefers_up_to_a_share():
    belief = seen({"dead": (0, 40), "lost": (0, 40), "half": (20, 40), "fair": (28, 40)})
    everything = view(["half", "fair", "dead", "lost"], (), belief, due=["lost", "dead"])
    rule = Revisit(HighestVariance(explore="mean"), passes=2.0)
    assert rule.pick(everything, 2) == ["lost", "half"]
    assert rule.pick(everything, 4) == ["lost", "dead", "half", "fair"]
    assert Revisit(HighestVariance(explore="mean"), share=0.0).pick(everything, 2) == ["half", "fair"]
    assert rule.pick(view(["half"], (), belief), 1) == ["half"]


def test_a_prompt_that_is_due_and_preferred_is_picked_once():
    belief = seen({"half": (20, 40), "fair": (28, 40)})
    rule = Revisit(HighestVariance(explore="mean"))
    assert rule.pick(view(["half", "fair"], (), belief, due=["half"]), 2) == ["half", "fair"]
