"""`usageDBConfig` of a scheduler's configuration: the usage database and the window of past use that counts.

A missing field takes its default; an invalid field is an error with its path.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from typing import Any, TypeVar

from msgspec import Struct

from pykai.config.fields import FieldError, converted
from pykai.objects import units

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_FIELDS = (
    ("minute", 0, 59, ()),
    ("hour", 0, 23, ()),
    ("day of month", 1, 31, ()),
    ("month", 1, 12, _MONTHS),
    ("day of week", 0, 7, _DAYS),
)
_SHORTHANDS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_SEARCH_LIMIT = timedelta(days=8 * 366)


@dataclass(frozen=True)
class Cron:
    """A cron schedule; `any_day` and `any_weekday`: the field matches every day."""

    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    any_day: bool
    any_weekday: bool

    def last_before(self, instant: float) -> float | None:
        """Return the last time before `instant` at which the schedule fires; None without one in eight years."""
        now = datetime.fromtimestamp(instant, UTC)
        day = now.replace(hour=0, minute=0, second=0, microsecond=0)
        while now - day < _SEARCH_LIMIT:
            if self._fires_on(day):
                times = [day.replace(hour=h, minute=m) for h in sorted(self.hours) for m in sorted(self.minutes)]
                if passed := [moment for moment in times if moment < now]:
                    return passed[-1].timestamp()
            day -= timedelta(days=1)
        return None

    def _fires_on(self, day: datetime) -> bool:
        by_day, by_weekday = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        either = (by_day or by_weekday) if not (self.any_day or self.any_weekday) else (by_day and by_weekday)
        return day.month in self.months and either


def parse_cron(text: str) -> Cron:
    """Parse a cron expression of 5 fields or a shorthand such as @weekly; ValueError names the invalid field."""
    parts = _SHORTHANDS.get(text.strip(), text).split()
    if len(parts) != len(_FIELDS):
        raise ValueError(f"{text!r} is not a cron expression (expected 5 fields, such as `0 0 * * 1`, or @weekly)")
    minutes, hours, days, months, weekdays = (_field(part, *field) for part, field in zip(parts, _FIELDS, strict=True))
    sundays = weekdays | ({0} if 7 in weekdays else set())
    return Cron(minutes, hours, days, months, sundays, _matches_any(parts[2]), _matches_any(parts[4]))


def _matches_any(field: str) -> bool:
    return any(part in ("*", "?", "*/1", "?/1") for part in field.split(","))


def _field(text: str, name: str, lowest: int, highest: int, names: tuple[str, ...]) -> frozenset[int]:
    numbers: set[int] = set()
    for part in text.lower().split(","):
        value, slash, step = part.partition("/")
        if slash and not (step.isdigit() and int(step) > 0):
            raise ValueError(f"{name}: {part!r} has no step of at least 1")
        first, last = _field_range(value, bool(slash), (name, lowest, highest, names))
        numbers |= set(range(first, last + 1, int(step) if slash else 1))
    return frozenset(numbers)


def _field_range(text: str, stepped: bool, field: tuple[str, int, int, tuple[str, ...]]) -> tuple[int, int]:
    name, lowest, highest, names = field
    last_of_all = lowest + len(names) - 1 if names else highest
    if text in ("*", "?"):
        return lowest, last_of_all
    first, dash, last = text.partition("-")
    begin = _field_number(first, lowest, names)
    end = _field_number(last, lowest, names) if dash else (last_of_all if stepped else begin)
    if begin is None or end is None or not lowest <= begin <= end <= highest:
        raise ValueError(f"{name}: {text!r} is not in {lowest}-{highest}")
    return begin, end


def _field_number(text: str, lowest: int, names: tuple[str, ...]) -> int | None:
    if text in names:
        return names.index(text) + lowest
    return int(text) if text.isdigit() else None


class WindowType(StrEnum):
    """How the window of past use advances."""

    SLIDING = "sliding"
    TUMBLING = "tumbling"
    CRON = "cron"


@dataclass(frozen=True)
class Window:
    """The window of past use that counts. `start`: for tumbling windows; `cron`: for cron windows."""

    type: WindowType = WindowType.SLIDING
    size: float = 7 * 86400.0
    start: float | None = None
    cron: Cron | None = None


def window_seconds(window: Window, now: float) -> float:
    """Return the length of the window at `now`; 0 if it has just begun."""
    if window.type is WindowType.SLIDING:
        return window.size
    return max(0.0, now - last_reset(window, now))


def last_reset(window: Window, now: float) -> float:
    """Return the start of the current tumbling or cron window, strictly before `now`; `now` if none has begun yet."""
    if window.type is WindowType.CRON:
        fired = window.cron.last_before(now) if window.cron else None
        return now if fired is None else fired
    start = now if window.start is None else window.start
    if start >= now:
        return now
    return start + (math.ceil((now - start) / window.size) - 1) * window.size


ROOT = "usageDBConfig"
CLIENT_TYPES = ("prometheus", "fake", "fake-with-history")
T = TypeVar("T")

_DURATION = re.compile(r"(?=.)(?:(\d+)y)?(?:(\d+)w)?(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?(?:(\d+)ms)?")
_UNIT_SECONDS = (365 * 86400.0, 7 * 86400.0, 86400.0, 3600.0, 60.0, 1.0, 0.001)


@dataclass(frozen=True)
class Queries:
    """Queries to the database: allocation metrics and capacity expressions by resource; times in seconds."""

    allocation: Mapping[str, str] = field(
        default_factory=lambda: {
            "cpu": "kai_queue_allocated_cpu_cores",
            "memory": "kai_queue_allocated_memory_bytes",
            "gpu": "kai_queue_allocated_gpus",
        }
    )
    capacity: Mapping[str, str] = field(
        default_factory=lambda: {
            "cpu": 'sum(kube_node_status_capacity{resource="cpu"})',
            "memory": 'sum(kube_node_status_capacity{resource="memory"})',
            "gpu": 'sum(kube_node_status_capacity{resource="nvidia_com_gpu"})',
        }
    )
    timeout: float = 10.0
    resolution: float = 60.0


@dataclass(frozen=True)
class UsageConfig:
    """The settings; times in seconds. `half_life`: None weights all use in the window equally."""

    client_type: str
    connection: str = ""
    connection_variable: str = ""
    window: Window = Window()
    half_life: float | None = None
    fetch_interval: float = 60.0
    staleness: float = 300.0
    wait_timeout: float = 60.0
    queries: Queries = field(default_factory=Queries)


class _Params(Struct, rename="camel", forbid_unknown_fields=True):
    half_life_period: str | None = None
    window_size: str | None = None
    window_type: str | None = None
    tumbling_window_start_time: str | None = None
    cron_string: str = ""
    fetch_interval: str | None = None
    staleness_period: str | None = None
    wait_timeout: str | None = None
    extra_params: dict[str, str] = {}


class _File(Struct, rename="camel", forbid_unknown_fields=True):
    client_type: str = ""
    connection_string: str = ""
    connection_string_env_var: str = ""
    usage_params: _Params | None = None


def read_usage_config(document: Mapping[str, Any], started: float) -> UsageConfig:
    """Read a parsed `usageDBConfig`; FieldError names the invalid field.

    `started`: the default start of tumbling windows, in seconds since the epoch.
    """
    file = converted(_with_timestamps_as_text(document), _File, ROOT)
    params = file.usage_params or _Params()
    _check_client(file)
    path = f"{ROOT}.usageParams"
    half_life = _parsed(params.half_life_period, f"{path}.halfLifePeriod", units.parse_duration, 0.0)
    fetch = _positive(params.fetch_interval, f"{path}.fetchInterval", units.parse_duration, 60.0)
    return UsageConfig(
        file.client_type,
        file.connection_string,
        file.connection_string_env_var,
        _window(params, started),
        half_life if half_life > 0 else None,
        fetch,
        max(fetch, _positive(params.staleness_period, f"{path}.stalenessPeriod", units.parse_duration, 300.0)),
        _parsed(params.wait_timeout, f"{path}.waitTimeout", units.parse_duration, 60.0),
        _queries(params.extra_params),
    )


def _with_timestamps_as_text(value: Any) -> Any:
    """Return the document with timestamps as strings: YAML readers may have converted unquoted ones."""
    if isinstance(value, Mapping):
        return {key: _with_timestamps_as_text(part) for key, part in value.items()}
    return value.isoformat() if isinstance(value, date) else value


def _check_client(file: _File) -> None:
    if not file.client_type:
        raise FieldError(f"{ROOT}.clientType", "client type cannot be empty")
    if file.client_type not in CLIENT_TYPES:
        known = ", ".join(CLIENT_TYPES)
        raise FieldError(f"{ROOT}.clientType", f"unknown client type: {file.client_type}, supported types: [{known}]")
    if file.connection_string and file.connection_string_env_var:
        raise FieldError(ROOT, "both connection string and connection string env var are set, only one is allowed")
    if not file.connection_string and not file.connection_string_env_var and file.client_type == "prometheus":
        raise FieldError(ROOT, "connection string and connection string env var are not set, one is required")


def _window(params: _Params, started: float) -> Window:
    path = f"{ROOT}.usageParams"
    if params.window_type not in (None, *WindowType):
        raise FieldError(f"{path}.windowType", f"{params.window_type!r} is not one of {', '.join(WindowType)}")
    kind = WindowType(params.window_type or WindowType.SLIDING)
    size = _positive(params.window_size, f"{path}.windowSize", long_seconds, Window().size)
    if kind is WindowType.CRON:
        return Window(kind, size, cron=_parsed(params.cron_string or "", f"{path}.cronString", parse_cron, None))
    start = _parsed(params.tumbling_window_start_time, f"{path}.tumblingWindowStartTime", _parse_timestamp, started)
    return Window(kind, size, start if kind is WindowType.TUMBLING else None)


def _queries(extra: Mapping[str, str]) -> Queries:
    default, path = Queries(), f"{ROOT}.usageParams.extraParams"
    keys = {f"{resource}{what}Metric" for resource in default.allocation for what in ("Allocation", "Capacity")}
    unknown = sorted(set(extra) - keys - {"usageQueryTimeout", "queryResolution"})
    if unknown:
        raise FieldError(f"{path}.{unknown[0]}", "there is no such parameter")
    return Queries(
        {resource: extra.get(f"{resource}AllocationMetric", text) for resource, text in default.allocation.items()},
        {resource: extra.get(f"{resource}CapacityMetric", text) for resource, text in default.capacity.items()},
        _positive(extra.get("usageQueryTimeout"), f"{path}.usageQueryTimeout", units.parse_duration, default.timeout),
        _positive(extra.get("queryResolution"), f"{path}.queryResolution", units.parse_duration, default.resolution),
    )


def _positive(text: str | None, path: str, read: Callable[[str], float], default: float) -> float:
    seconds = _parsed(text, path, read, default)
    if seconds <= 0:
        raise FieldError(path, "must be longer than 0s")
    return seconds


def _parsed(text: str | None, path: str, read: Callable[[str], T], default: T) -> T:
    if text is None:
        return default
    try:
        return read(text)
    except ValueError as error:
        raise FieldError(path, str(error)) from error


def long_seconds(text: str) -> float:
    """Parse a Prometheus duration such as 1w, 1d12h or 90s to seconds."""
    match = _DURATION.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a duration (expected whole numbers with units, such as 1w or 24h)")
    return sum(float(number) * size for number, size in zip(match.groups(), _UNIT_SECONDS, strict=True) if number)


def _parse_timestamp(text: str) -> float:
    time = datetime.fromisoformat(text.replace("Z", "+00:00"))
    if time.tzinfo is None:
        raise ValueError(f"{text!r} names no time zone (expected RFC 3339, such as 2026-01-01T00:00:00Z)")
    return time.timestamp()
