"""What a strategy is made of, as plain data."""

from __future__ import annotations

import pytest

from neyman import Strategy, preset, rules
from neyman.beliefs import Counts
from neyman.hosts.identity import describe, differences
from neyman.presets import PRESETS
from strategies import through_json


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_made_again_is_the_same_also_through_json(name):
    described = describe(preset(name))
    assert differences(through_json(described), describe(preset(name))) == []


def test_what_a_belief_has_learnt_is_no_part_of_it():
    strategy = preset("vip", belief=Counts())
    before = describe(strategy)
    strategy.belief.update(["a"], [1], [2])
    strategy.belief.advance()
    assert before == describe(strategy)


def test_each_setting_that_differs_is_named_once():
    there = describe(preset("vip", lower=3, belief=Counts(discount=0.5)))
    here = describe(preset("vip", upper=16, belief=Counts(), estimator="grpo"))
    assert differences(there, here) == [
        "belief.config.discount: 0.5 there, 0.9 here",
        "allocate.lower: 3 there, 4 here",
        "allocate.upper: 32 there, 16 here",
        "allocate.estimator: 'rloo' there, 'grpo' here",
        "estimator: 'rloo' there, 'grpo' here",
    ]


def test_parts_inside_parts_are_compared():
    there = describe(Strategy(name="x", select=rules.Revisit(rules.LeastWaste(looks=(2, 4)))))
    here = describe(Strategy(name="x", select=rules.Revisit(rules.LeastWaste())))
    assert differences(through_json(there), through_json(here)) == [
        "select.inner.looks: [2, 4] there, [1, 2, 4] here"
    ]


class Plain(rules.Allocate):
    """An allocation of one's own, without fields."""

    probe = 0

    def group_size(self, average):
        return average

    def counts(self, evidence, budget):
        return evidence.issued


def test_of_an_object_without_settings_the_type_is_known():
    there, here = (describe(Strategy(name="x", allocate=rule)) for rule in (Plain(), rules.Each()))
    assert differences(there, describe(Strategy(name="x", allocate=Plain()))) == []
    assert differences(there, here) == ["allocate: Plain there, Each here"]
