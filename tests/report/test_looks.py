"""Colours and markers: each strategy and each colour stays apart from the others."""

from neyman.report._looks import all_colours, looks


def test_every_colour_has_one_variable():
    # Colours are replaced by their light value, so two of one value would become one.
    colours = all_colours()
    assert len({c.light for c in colours}) == len({c.name for c in colours}) == len(colours)


def test_many_strategies_stay_apart():
    names = ["uniform", *(f"s{i}" for i in range(20))]
    chosen = looks(names, "uniform")
    assert len({(look.colour.name, look.dash, look.marker) for look in chosen.values()}) == 21
