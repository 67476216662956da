"""Which part of the past counts: schedules of cron windows, and where windows begin."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from pykai.config.usage import Window, WindowType, last_reset, parse_cron, window_seconds

TUMBLING = Window(WindowType.TUMBLING, 100.0, start=1000.0)


def instant(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("schedule", "now", "expected"),
    [
        ("0 0 * * *", "2026-03-10T15:00", "2026-03-10T00:00"),
        ("0 0 * * *", "2026-03-10T00:00", "2026-03-09T00:00"),
        ("@weekly", "2026-03-10T15:00", "2026-03-08T00:00"),
        ("30 6 * * mon-fri", "2026-03-08T15:00", "2026-03-06T06:30"),
        ("*/15 * * * *", "2026-03-10T15:14", "2026-03-10T15:00"),
        ("0 0 1 * *", "2026-03-10T15:00", "2026-03-01T00:00"),
        ("0 0 1,15 jan,jul *", "2026-03-10T15:00", "2026-01-15T00:00"),
        ("0 0 13 * 5", "2026-03-10T15:00", "2026-03-06T00:00"),
        ("0 0 29 2 *", "2026-03-10T15:00", "2024-02-29T00:00"),
        ("0 0 * * 7", "2026-03-10T15:00", "2026-03-08T00:00"),
        ("0 20/2 * * *", "2026-03-10T23:00", "2026-03-10T22:00"),
        ("0 0 * * 2/2", "2026-03-10T00:00", "2026-03-07T00:00"),
        ("0 0 */1 * 5", "2026-03-10T15:00", "2026-03-06T00:00"),
        ("0 0 * * 0-0", "2026-03-10T15:00", "2026-03-08T00:00"),
        ("0 0 * * 3-3/2,5", "2026-03-10T15:00", "2026-03-06T00:00"),
        ("0 0 1 * 0,*", "2026-03-10T15:00", "2026-03-01T00:00"),
    ],
)
def test_the_last_firing_of_a_schedule(schedule: str, now: str, expected: str) -> None:
    assert parse_cron(schedule).last_before(instant(now)) == instant(expected)


def test_a_day_that_never_comes_never_fires() -> None:
    assert parse_cron("0 0 31 2 *").last_before(instant("2026-03-10")) is None


@pytest.mark.parametrize(
    "wrong",
    [
        "",
        "* * * *",
        "60 * * * *",
        "* * 0 * *",
        "*/0 * * * *",
        "5-1 * * * *",
        "a * * * *",
        "* * * * * *",
        "0 0 L * *",
        "@reboot",
    ],
)
def test_what_is_no_schedule_is_refused(wrong: str) -> None:
    with pytest.raises(ValueError):
        parse_cron(wrong)


@pytest.mark.parametrize(
    ("window", "now", "reset"),
    [
        (TUMBLING, 1050.0, 1000.0),
        (TUMBLING, 1100.0, 1000.0),
        (TUMBLING, 1101.0, 1100.0),
        (TUMBLING, 1950.0, 1900.0),
        (TUMBLING, 900.0, 900.0),
        (Window(WindowType.CRON, cron=parse_cron("@daily")), 86400.0 * 3 + 5, 86400.0 * 3),
    ],
)
def test_when_a_window_last_began(window: Window, now: float, reset: float) -> None:
    assert last_reset(window, now) == reset
    assert window_seconds(window, now) == now - reset
