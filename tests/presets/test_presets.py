"""Published methods by name, and free combinations of their parts."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, fields

import numpy as np
import pytest

from neyman import Budget, Controller, Strategy, preset, rules
from neyman.beliefs import Counts
from neyman.errors import ArgumentError
from neyman.presets import PRESETS
from strategies import Host, run_step


@pytest.mark.parametrize("name", list(PRESETS))
def test_every_preset_is_what_its_name_says_and_runs(name):
    strategy = preset(name)
    assert strategy.name == name
    controller = Controller(strategy, budget=Budget(rollouts=64), pool=range(40))
    for _ in range(2):
        batch, _ = run_step(controller, Host(), range(8))
        assert batch.report["rollouts"] <= 64 * 1.1


@pytest.mark.parametrize("name", list(PRESETS))
def test_every_part_of_a_strategy_may_be_replaced_in_every_preset(name):
    strategy = preset(
        name,
        select=rules.InOrder(),
        allocate=rules.Each(4),
        verdict=rules.EarlyVerdict(schedule=(2,)),
        close="fixed_train",
        belief=(belief := Counts()),
        estimator="dr_grpo",
        max_age=1,
    )
    assert strategy.verdict == rules.EarlyVerdict(schedule=(2,))
    assert strategy.allocate == rules.Each(4)
    assert strategy.belief is belief
    assert (strategy.close, strategy.estimator, strategy.max_age) == ("fixed_train", "dr_grpo", 1)


def test_every_option_is_an_argument_with_a_default():
    for entry in PRESETS.values():
        for parameter in inspect.signature(entry.build).parameters.values():
            assert parameter.kind is parameter.KEYWORD_ONLY
            assert parameter.default is not parameter.empty


def test_every_part_of_a_strategy_is_documented():
    text = inspect.getdoc(Strategy)
    assert text is not None
    for item in fields(Strategy):
        assert f"{item.name}: " in text, item.name


def test_an_unknown_preset_or_option_lists_the_legal_ones():
    with pytest.raises(ArgumentError, match=r"preset must be one of uniform, vip, sara.*, got 'best'$"):
        preset("best")
    with pytest.raises(ArgumentError, match="got 'sarah'; did you mean 'sara'"):
        preset("sarah")
    with pytest.raises(ArgumentError, match="has no option lowr; its own are belief, estimator, lower"):
        preset("vip", lowr=3)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("uniform", {"close": "fixed_train"}, "has no verdict"),
        ("neyman", {"verdict": rules.FullGroup()}, "both an allocation probe"),
        ("uniform", {"close": "later"}, "close"),
        ("uniform", {"over_provision": 0.0}, "over_provision"),
        ("uniform", {"prompts": 0}, "prompts"),
        ("uniform", {"max_age": -1}, "max_age"),
        ("uniform", {"max_age": 1}, "leaves none"),
        ("uniform", {"max_tries": 0}, "max_tries"),
        ("uniform", {"dead_groups": "bury"}, "dead_groups"),
        ("uniform", {"incomplete": "fill"}, "incomplete"),
        ("uniform", {"prompt_weight": "fair"}, "prompt_weight"),
        ("uniform", {"verdict_on": "time"}, "verdict_on"),
        ("uniform", {"estimator": "ppo"}, "estimator"),
    ],
)
def test_parts_that_contradict_each_other_are_refused(name, options, message):
    with pytest.raises(ArgumentError, match=message):
        preset(name, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"belief": "counts"}, r"belief must be a neyman\.beliefs\.Belief, with register, predict.*; got 'counts' "
                               r"\(str\); for example belief=neyman\.beliefs\.Counts\(\)"),
        ({"belief": ""}, r"belief must .*got '' \(str\)"),
        ({"belief": Counts}, r"belief must .*got the class Counts, not one that is made from it"),
        ({"select": "in order"}, r"select must be a neyman\.rules\.Select, with pick; got 'in order'.*InOrder\(\)"),
        ({"select": None}, r"select must .*got None \(NoneType\)"),
        ({"allocate": 8}, r"allocate must .*with counts; got 8 \(int\).*VarianceOptimal\("),
        ({"allocate": rules.FullGroup()}, r"allocate must .*got FullGroup\(.*"),
        ({"verdict": "early"}, r"verdict must .*with looks, decide; got 'early'.*EarlyVerdict\(\)"),
        ({"verdict": True}, r"verdict must .*got True \(bool\)"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("name", ["uniform", "vip"])
def test_a_part_of_a_wrong_type_is_named_with_what_is_expected(name, options, message):
    with pytest.raises(ArgumentError, match=message):
        preset(name, **options)


def test_a_part_that_is_half_there_is_told_what_it_lacks():
    class Halves:
        def looks(self, group_size):
            return (group_size,)

    with pytest.raises(ArgumentError, match=r"verdict must .*Halves.*, which lacks .*decide; for example"):
        preset("sara", verdict=Halves())


def test_an_optional_attribute_may_be_set_on_the_class_the_instance_or_as_a_field():
    class Judged(rules.Verdict):
        def looks(self, group_size):
            return (group_size,)

        def decide(self, successes, trials, group_size, prior):
            return "continue"

    class OnTheInstance(Judged):
        def __init__(self):
            self.after_commit = "stop"

    @dataclass(frozen=True)
    class AsAField(Judged):
        after_commit: str

    @dataclass(frozen=True, slots=True)
    class InASlot(Judged):
        after_commit: str = "stop"

    class OnTheClass(Judged):
        after_commit = "stop"

    for verdict in (
        OnTheInstance(),
        AsAField("stop"),
        AsAField(after_commit="stop"),
        InASlot(),
        OnTheClass(),
    ):
        assert preset("sara", verdict=verdict).verdict.after_commit == "stop"
    assert Judged().after_commit == "complete"

    class Blind(Counts):
        def __init__(self):
            super().__init__()
            self.uses_features = False

    assert preset("sara", belief=Blind()).belief.uses_features is False


def test_a_rule_that_lacks_only_what_has_a_default_is_told_to_inherit_it():
    class Bare:
        def looks(self, group_size):
            return (group_size,)

        def decide(self, successes, trials, group_size, prior):
            return "continue"

    class Inherits(Bare, rules.Verdict):
        pass

    with pytest.raises(ArgumentError, match=r"lacks after_commit, .*inherit from neyman\.rules\.Verdict"):
        preset("sara", verdict=Bare())
    verdict = preset("sara", verdict=Inherits()).verdict
    assert verdict.after_commit == "complete"
    assert not any([verdict.at_looks, verdict.speculate, verdict.holds_surplus])
    assert verdict.priced(None) is verdict
    with pytest.raises(ArgumentError, match="has no price"):
        verdict.priced(2.0)


@pytest.mark.parametrize("name", ["vip", "neyman"])
def test_a_belief_that_is_empty_is_still_the_user_s(name):
    class Sized(Counts):
        def __len__(self):
            return 0

    belief = Sized()
    assert preset(name, belief=belief).belief is belief


def test_vips_belief_serves_as_saras_prior():
    belief = Counts(prior=(1.0, 1.0), discount=1.0, fade=1.0)
    belief.update(["hopeless", "fair"], [0, 10], [20, 20])
    strategy = preset("sara", group_size=8, belief=belief, schedule=(2, 4))
    controller = Controller(strategy, budget=Budget(rollouts=16))
    controller.begin(["hopeless", "fair", "new"])
    priors = {g.prompt_id: g.prior for g in controller._engine.state.groups}
    np.testing.assert_allclose(priors["hopeless"], (1.0, 21.0))
    np.testing.assert_allclose(priors["fair"], (11.0, 11.0))
    decide = strategy.verdict.decide
    assert decide(0, 2, 8, priors["hopeless"]) == "abandon"
    assert decide(0, 2, 8, priors["fair"]) == "continue"


def test_the_controller_takes_its_own_copy_of_the_belief():
    strategy = preset("uniform", belief=Counts(fade=1.0))
    first = Controller(strategy, budget=Budget(rollouts=16))
    run_step(first, Host(rates={"a": 1.0}), ["a"])
    assert first.strategy.belief.predict(["a"])[0] > 0.9
    assert strategy.belief.evidence(["a"])[1].tolist() == [0.0]


def test_modulation_may_join_any_strategy():
    settings = object()
    assert preset("sara", modulation=settings).modulation is settings


def test_neyman_spends_on_the_uncertain_and_leaves_the_settled():
    belief = Counts(prior=(1.0, 1.0), discount=1.0, fade=1.0)
    belief.update(range(20), [60 if i < 10 else 30 for i in range(20)], [60] * 20)
    strategy = preset("neyman", belief=belief, prompts=1.0, among=5.0)
    controller = Controller(strategy, budget=Budget(rollouts=64), pool=range(20))
    batch, _ = run_step(controller, Host(rates={i: 1.0 if i < 10 else 0.5 for i in range(20)}), range(4))
    assert set(batch.prompt_ids) <= set(range(10, 20))
