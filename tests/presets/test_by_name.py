"""Strategies by name: one way for all hosts, bounds that fit the group size, and errors that name the setting."""

from __future__ import annotations

from typing import Any

import pytest

from neyman import Strategy, preset
from neyman.beliefs import Counts
from neyman.config import from_mapping
from neyman.errors import ArgumentError
from neyman.lab.strategies import build_strategy
from neyman.presets import PRESETS, known_strategy, strategy_by_name
from neyman.replay import settings_for, strategy_for
from replay.records import drifting


def mine(*, size: int = 4, wrong: bool = False) -> Any:
    """Return a strategy, as a user's own function does, or something else."""
    return "uniform" if wrong else preset("uniform", group_size=size)


@pytest.mark.parametrize("name", PRESETS)
def test_without_options_and_a_group_size_it_is_the_preset(name):
    made, plain = strategy_by_name(name), preset(name)
    assert (made.name, made.select, made.allocate, made.verdict) == (
        plain.name,
        plain.select,
        plain.allocate,
        plain.verdict,
    )


@pytest.mark.parametrize(
    ("group_size", "lower", "upper"),
    [(2, 2, 32), (3, 2, 32), (4, 2, 32), (5, 4, 32), (8, 4, 32), (16, 4, 64)],
)
def test_bounds_leave_something_to_allocate_at_every_group_size(group_size, lower, upper):
    allocate = strategy_by_name("vip", group_size=group_size).allocate
    assert (allocate.lower, allocate.upper) == (lower, upper)
    assert allocate.lower <= group_size < allocate.upper


@pytest.mark.parametrize(
    ("estimator", "lower"), [("rloo", 2), ("reinforce++", 2), ("dr_grpo", 3), ("grpo", 3)]
)
def test_a_lower_bound_is_never_below_what_the_estimator_needs(estimator, lower):
    assert strategy_by_name("vip", {"estimator": estimator}, group_size=4).allocate.lower == lower
    assert strategy_by_name("vip", group_size=4, defaults={"estimator": estimator}).allocate.lower == lower


def test_bounds_among_the_options_stay_and_others_have_none():
    allocate = strategy_by_name("vip", {"lower": 4, "upper": 6}, group_size=4).allocate
    assert (allocate.lower, allocate.upper) == (4, 6)
    assert strategy_by_name("sara", group_size=4).allocate == preset("sara").allocate


@pytest.mark.parametrize("group_size", [2, 4, 8, 16, 32])
@pytest.mark.parametrize("name", [name for name in PRESETS if "lower" in PRESETS[name].options])
def test_training_replay_and_lab_give_the_same_bounds(name, group_size):
    """Each had a rule of its own; replays left nothing to allocate in groups of 4, trainings none in groups of 32."""
    training = from_mapping({"strategy": {"name": name}, "trainer": {"group_size": group_size}})
    replayed = settings_for(drifting(prompts=5), group_size=group_size)
    known: Any = Counts()
    made = [
        training.build_strategy(name),
        strategy_for(name, replayed),
        build_strategy(name, {}, estimator="rloo", group_size=group_size, oracle=known),
    ]
    assert len({(one.allocate.lower, one.allocate.upper) for one in made}) == 1


def test_the_hosts_defaults_reach_presets_that_take_them_and_yield_to_options():
    defaults = {"group_size": 8, "estimator": "dr_grpo", "modulation": None}
    assert strategy_by_name("sara", defaults=defaults).allocate.size == 8
    assert strategy_by_name("sara", {"group_size": 4}, defaults=defaults).allocate.size == 4
    made = strategy_by_name("dynamo", defaults=defaults)
    assert (made.modulation, made.estimator) == (None, "dr_grpo")
    assert strategy_by_name(f"{__name__}:mine", defaults=defaults).allocate.size == 4


def test_options_are_read_as_configurations_hold_them():
    assert strategy_by_name("sara", {"schedule": [2, 4]}).verdict.schedule == (2, 4)
    assert strategy_by_name("dynamo", {"modulation": "none"}).modulation is None
    made = strategy_by_name("sara:schedule=[2,4]:threshold=0.3", words=True)
    assert (made.verdict.schedule, made.verdict.threshold) == ((2, 4), 0.3)
    belief = Counts()
    assert strategy_by_name("vip", {"belief": belief}).belief is belief


def test_a_function_of_the_users_own_makes_a_strategy():
    assert isinstance(strategy_by_name(f"{__name__}:mine", {"size": 6}), Strategy)
    with pytest.raises(
        ArgumentError, match=r"run\.name '.*:mine' must return a neyman\.Strategy, got 'uniform'"
    ):
        strategy_by_name(f"{__name__}:mine", {"wrong": True}, field="run.name")
    with pytest.raises(ArgumentError, match=r"does not take run\.options \['sizes'\]: .*unexpected keyword"):
        strategy_by_name(f"{__name__}:mine", {"sizes": 6}, options_field="run.options")
    with pytest.raises(ArgumentError, match=r"strategy must be one of uniform, .*, neyman, got"):
        strategy_by_name(f"{__name__}:mine", functions=False)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        (
            "vipp",
            {},
            r"^run\.name must be one of uniform, .*, or package\.module:function, got 'vipp'; did you mean 'vip'\?$",
        ),
        ("", {}, r"^run\.name must be one of .*got ''$"),
        ("sara:variant=published", {}, r"set it to 'sara', and 'variant=published' by run\.options"),
        ("no.such:thing", {}, r"^run\.name 'no\.such:thing' cannot be imported: No module"),
        ("math:pi", {}, r"^run\.name 'math:pi' must be a function or class, got 3\.14"),
        ("vip", {"lowr": 4}, r"^run\.options of vip: preset 'vip' has no option lowr; its own are belief, "),
        ("vip", {"lower": 1}, r"^run\.options of vip: lower must be >= 2, got 1"),
        ("vip", {"lower": "x"}, r"^run\.options of vip: lower must be .*'x'"),
    ],
)  # fmt: skip
def test_errors_name_the_setting_the_value_and_what_is_legal(name, options, message):
    with pytest.raises(ArgumentError, match=message):
        strategy_by_name(name, options, field="run.name", options_field="run.options")


def test_a_known_name_is_returned_and_nothing_is_imported():
    assert known_strategy("no.such:thing") == "no.such:thing"
    assert known_strategy("sara:variant=published", words=True) == "sara:variant=published"
