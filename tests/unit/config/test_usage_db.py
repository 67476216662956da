"""Settings of past use: what is read, what is refused."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
import yaml

from pykai.config.fields import FieldError
from pykai.config.usage_db import Window, WindowType, last_reset, parse_cron, read_usage_config, window_seconds


def document(**params: Any) -> dict[str, Any]:
    return {"clientType": "prometheus", "connectionString": "http://db:9090", "usageParams": params}


def instant(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def test_what_is_not_said_has_its_usual_value() -> None:
    config = read_usage_config({"clientType": "prometheus", "connectionString": "http://db:9090"}, 0.0)
    assert (config.window.type, config.window.size, config.half_life) == (WindowType.SLIDING, 604800.0, None)
    assert (config.fetch_interval, config.staleness, config.wait_timeout) == (60.0, 300.0, 60.0)
    assert config.queries.allocation["gpu"] == "kai_queue_allocated_gpus"


def test_what_is_said_is_read() -> None:
    config = read_usage_config(
        document(
            halfLifePeriod="24h",
            windowSize="1w2d",
            windowType="tumbling",
            tumblingWindowStartTime="2026-01-01T00:00:00Z",
            fetchInterval="10m",
            extraParams={"queryResolution": "30s", "gpuCapacityMetric": "sum(gpus)"},
        ),
        0.0,
    )
    assert (config.half_life, config.window.size) == (86400.0, 9 * 86400.0)
    assert config.window.start == instant("2026-01-01")
    assert config.staleness == 600.0, "never shorter than the pause between fetches"
    assert (config.queries.resolution, config.queries.capacity["gpu"]) == (30.0, "sum(gpus)")


def test_a_half_life_of_nothing_is_no_decay_and_tumbling_begins_now() -> None:
    config = read_usage_config(document(halfLifePeriod="0s", windowType="tumbling"), 1234.0)
    assert (config.half_life, config.window.start) == (None, 1234.0)


def test_an_instant_needs_no_quotes() -> None:
    given = document(windowType="tumbling", **yaml.safe_load("tumblingWindowStartTime: 2026-01-01T02:00:00+02:00"))
    assert read_usage_config(given, 0.0).window.start == instant("2026-01-01")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"connectionString": "x"}, "usageDBConfig.clientType: client type cannot be empty"),
        (
            {"clientType": "sql", "connectionString": "x"},
            "unknown client type: sql, supported types: [prometheus, fake, fake-with-history]",
        ),
        (
            {"clientType": "prometheus", "connectionString": "x", "connectionStringEnvVar": "Y"},
            "both connection string and connection string env var are set, only one is allowed",
        ),
        (
            {"clientType": "prometheus"},
            "connection string and connection string env var are not set, one is required",
        ),
        (document(windowType="round"), "usageDBConfig.usageParams.windowType: 'round' is not one of sliding"),
        (document(windowSize="soon"), "usageDBConfig.usageParams.windowSize: 'soon' is not a duration"),
        (document(windowSize="0s"), "usageDBConfig.usageParams.windowSize: must be longer than 0s"),
        (document(fetchInterval="-1m"), "usageDBConfig.usageParams.fetchInterval: must be longer than 0s"),
        (document(extraParams={"queryResolution": "0s"}), "extraParams.queryResolution: must be longer than 0s"),
        (document(extraParams={"usageQueryTimeout": "-1s"}), "extraParams.usageQueryTimeout: must be longer than 0s"),
        (document(windowType="cron"), "usageDBConfig.usageParams.cronString: '' is not a cron expression"),
        (document(windowType="cron", cronString="0 25 * * *"), "cronString: hour: '25' is not in 0-23"),
        (document(windowType="tumbling", tumblingWindowStartTime="2026-01-01"), "names no time zone"),
        (document(extraParams={"tpuCapacityMetric": "x"}), "extraParams.tpuCapacityMetric: there is no such"),
        (document(halfLife="1h"), "unknown field 'halfLife'"),
    ],
)
def test_what_is_wrong_is_refused_by_name(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(FieldError) as error:
        read_usage_config(wrong, 0.0)
    assert message in str(error.value)


TUMBLING = Window(WindowType.TUMBLING, 100.0, start=1000.0)


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
