from __future__ import annotations

import pytest

from pykai.objects import units


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
