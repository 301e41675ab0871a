"""Numbers and intervals as text."""

import pytest

from neyman.report._format import difference, interval, number, percent, share_of, shorten
from neyman.report._stats import Interval

NAN = float("nan")


@pytest.mark.parametrize(
    ("expected", "got"),
    [
        ("1,234.5", number(1234.54, 1)),
        ("-", number(NAN)),
        ("-", number(None)),
        ("12.3 %", percent(0.1234)),
        ("-", percent(None)),
        ("25.0 %", share_of(1, 4)),
        ("-", share_of(0, 0)),
        ("abc", shorten("abc", 3)),
        ("ab…", shorten("abcd", 3)),
    ],
)
def test_what_is_unknown_is_a_dash_and_what_is_long_is_cut(expected, got):
    assert expected == got


def test_an_interval_is_written_where_it_is_known():
    assert interval(Interval(0.5, 0.4, 0.6, 3), 1, 100.0, " %") == ("50.0 %", "40.0 to 60.0")
    assert interval(Interval(0.5, 0.5, 0.5, 3)) == ("0.5", "")  # copies of one run
    assert interval(Interval(NAN, NAN, NAN, 0)) == "-"


def test_figures_read_from_json_are_written_as_they_are():
    # A replay keeps intervals without width: no seed changed the figure.
    assert interval({"mean": 0.5, "low": 0.5, "high": 0.5}, 2) == ("0.50", "0.50 to 0.50")
    assert interval({"mean": 0.5, "low": None, "high": 0.7}, 2) == ("0.50", "")
    assert interval({"mean": None, "low": None, "high": None}) == "-"


def test_differences_are_signed_points():
    assert difference(Interval(0.1, 0.05, 0.15, 3)) == ("+10.0", "+5.0 to +15.0")
    assert difference(Interval(-0.1, NAN, NAN, 1)) == ("-10.0", "no interval")
    assert difference({"mean": None, "low": None, "high": None}) == "-"
