"""Every preset keeps the contract of a strategy: as it comes, in every way of closing, and with its options."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import partial
from typing import Any

import pytest

from neyman import Strategy, preset
from neyman.presets import PRESETS
from neyman.strategy import CLOSES
from neyman.testing import StrategySuite
from strategies import PRESETS as OPTIONS


def _variants() -> dict[str, Callable[[], Strategy]]:
    """Return every preset by name, in every other way of closing that fits it, and with options."""
    variants: dict[str, Callable[[], Strategy]] = {}
    for name in PRESETS:
        build = partial(preset, name)
        variants[name] = build
        plain = build()
        for close in CLOSES:
            fits = close != "fixed_train" or plain.verdict is not None
            fits &= close != "fixed_spend" or plain.keep is None
            if close != plain.close and fits:
                variants[f"{name}, close={close}"] = partial(build, close=close, max_age=0)
    for name, make in OPTIONS.items():
        base, _, options = name.partition(", ")
        if options and make().close == variants[base]().close:  # other ways of closing are there already
            variants[f"{base}, {options}"] = make
    return variants


VARIANTS = _variants()

#: Exceptions of forms with options, beside those that the presets' files state; a reason that does not hold fails.
BY_MEAN = "it ranks by what it expects, and never looks again at what it expects to be uniform"
STATED: dict[str, dict[str, object]] = {
    "dps, no floor": {"absorbing": BY_MEAN},
    "curriculum, no floor": {"absorbing": BY_MEAN},
}


class TestEveryPreset(StrategySuite):
    @pytest.fixture(autouse=True, params=VARIANTS)
    def variant(self, request):
        self.build = VARIANTS[request.param]
        self.worlds = 2 if request.param in PRESETS else 1
        self.bounds = _bounds(self.build(), self.budget // self.prompts)
        stated = PRESETS[request.param.partition(", ")[0]].exceptions
        ours = [stated.get("any", {}), stated.get(self.build().close, {}), STATED.get(request.param, {})]
        for name, value in (item for some in ours for item in some.items()):
            setattr(self, name, value)

    def make(self) -> Strategy:
        return self.build()


def _bounds(strategy: Strategy, average: int) -> tuple[int, int | None]:
    """Return the bounds that an allocation states; under a verdict a group may end at any look, or be extended."""
    rule = strategy.allocate
    if strategy.verdict is not None:
        return 1, None
    if not hasattr(rule, "lower"):
        return average, average
    return min(rule.lower, rule.probe or rule.lower), rule.upper


def test_exceptions_are_stated_of_presets_that_exist():
    assert set(VARIANTS) >= set(STATED)


#: Where the tests' own form of a preset may differ: in sizes, and in a belief that is slow.
SIZES = {
    "lower",
    "upper",
    "size",
    "step",
    "most",
    "rows",
    "first",
    "then",
    "stage",
    "stages",
    "commit",
    "schedule",
}
OTHERWISE = {"vip": {"belief"}, "neyman": {"belief"}}


def _differences(left: Any, right: Any, where: str = "") -> list[str]:
    """Return where two parts of a strategy differ in more than sizes; parts that are no dataclasses, in their class."""
    if type(left) is not type(right):
        return [where]
    if not is_dataclass(left):
        is_plain = left is None or isinstance(left, str | int | float | tuple)
        return [where] if is_plain and left != right else []
    names = [item.name for item in fields(left) if item.name not in SIZES]
    pairs = [(getattr(left, name), getattr(right, name), f"{where}.{name}".lstrip(".")) for name in names]
    return [found for pair in pairs for found in _differences(*pair)]


@pytest.mark.parametrize("name", PRESETS)
def test_the_cases_and_the_state_machine_run_every_preset_in_its_default_form(name):
    assert name in OPTIONS
    assert set(_differences(preset(name), OPTIONS[name]())) == OTHERWISE.get(name, set())


def test_forms_with_options_are_no_default_forms():
    assert _differences(preset("mopps"), OPTIONS["mopps, band"]()) == ["select.band"]
    assert "close" in _differences(preset("sara"), OPTIONS["sara, fixed spend"]())
    assert _differences(preset("ridge"), preset("moving-average"))[:2] == ["name", "belief"]
