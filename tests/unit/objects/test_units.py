"""Quantities, resource lists and durations: what they mean, and how they are written."""

from __future__ import annotations

from fractions import Fraction
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykai.objects import units
from pykai.objects.units import canonical, parse_duration, render_duration, sum_resources


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        (["500m", "500m"], "1"),
        (["400m"], "400m"),
        (["1G", "500M"], "1500M"),
        (["2Gi", "2Gi"], "4Gi"),
        (["512Mi", "512Mi"], "1Gi"),
        (["1Gi", "1"], "1073741825"),
        (["1000"], "1k"),
        (["1000Ki"], "1000Ki"),
        (["0.5Ki"], "512"),
        (["0.5Ki", "488"], "1k"),
        (["0"], "0"),
        (["0.1n"], "1n"),
        ([3, "2"], "5"),
        (["1e3"], "1k"),
        (["16E", "16E"], "32E"),
    ],
)
def test_sums_are_written_as_the_api_server_writes_them(parts: list[str | int], text: str) -> None:
    assert sum_resources({"x": part} for part in parts) == {"x": text}


def test_the_order_of_the_parts_does_not_matter() -> None:
    parts = [{"memory": "1Gi", "cpu": "1"}, {"memory": "1G"}, {"memory": "0"}, None]
    assert {tuple(sum_resources(order).items()) for order in permutations(parts)} == {
        (("cpu", "1"), ("memory", "2073741824"))
    }


def test_an_amount_without_end_is_rounded_up_to_a_billionth() -> None:
    assert canonical(Fraction(1, 3)) == "333333334n"


def test_what_is_no_quantity_is_refused() -> None:
    with pytest.raises(ValueError, match="'lots' is not a quantity"):
        sum_resources([{"cpu": "lots"}])


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0),
        ("0s", 0),
        ("10s", 10),
        ("1h30m", 5400),
        ("1.5h", 5400),
        (".5s", 0.5),
        ("1.s", 1),
        ("1m1m", 120),
        ("-2m30s", -150),
        ("+5s", 5),
        ("250ms", 0.25),
        ("3us", 3e-6),
        ("3µs", 3e-6),
        ("3μs", 3e-6),
        ("7ns", 7e-9),
        ("2562047h", 2562047 * 3600),
    ],
)
def test_go_durations(text: str, seconds: float) -> None:
    assert units.parse_duration(text) == pytest.approx(seconds, rel=1e-15)
    assert units.parse_long_duration(text) == pytest.approx(seconds, rel=1e-15)


@pytest.mark.parametrize(
    "text", ["", "5", "s", ".s", "-", "1h30", "1h-30m", " 5s", "5 s", "5s ", "2x", "1,5s", "٣s", "2562048h"]
)
def test_what_is_no_duration_is_refused(text: str) -> None:
    for parse in (units.parse_duration, units.parse_long_duration):
        with pytest.raises(ValueError, match="is not a duration"):
            parse(text)


def test_days_and_weeks_are_long_durations_only() -> None:
    assert units.parse_long_duration("5w4d12h") == 39 * 86400 + 12 * 3600
    with pytest.raises(ValueError, match="unknown unit 'd'"):
        units.parse_duration("1d")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (1, "1s"),
        (90, "1m30s"),
        (3600, "1h0m0s"),
        (3661.5, "1h1m1.5s"),
        (0.25, "250ms"),
        (1.5e-6, "1.5µs"),
        (1e-9, "1ns"),
        (-120, "-2m0s"),
    ],
)
def test_durations_as_go_writes_them(seconds: float, text: str) -> None:
    assert render_duration(seconds) == text


@given(st.integers(-(10**14), 10**14))
def test_written_durations_read_back(microseconds: int) -> None:
    assert parse_duration(render_duration(microseconds / 10**6)) == pytest.approx(microseconds / 10**6, abs=1e-9)
