"""`usageDBConfig` of a scheduler's configuration: where past use is read from and which past counts.

A part that is missing takes the usual value; a part that is wrong is refused with its path.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Any, TypeVar

from msgspec import Struct

from pykai.config.cron import parse_cron
from pykai.config.fields import FieldError, converted
from pykai.config.windows import Window, WindowType
from pykai.objects import duration

ROOT = "usageDBConfig"
CLIENT_TYPES = ("prometheus", "fake", "fake-with-history")
T = TypeVar("T")

_LONG = re.compile(r"(?=.)(?:(\d+)y)?(?:(\d+)w)?(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?(?:(\d+)ms)?")
_SIZES = (365 * 86400.0, 7 * 86400.0, 86400.0, 3600.0, 60.0, 1.0, 0.001)


@dataclass(frozen=True)
class Queries:
    """What the database is asked: the three allocation metrics and capacities by resource, and times in seconds."""

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
    """The settings; times in seconds, `half_life` None: all use in the window counts the same."""

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
    """The settings in a parsed `usageDBConfig`; FieldError names what is wrong.

    `started` (seconds since 1970) is when tumbling windows begin that say nothing themselves.
    """
    file = converted(_as_written(document), _File, ROOT)
    params = file.usage_params or _Params()
    _check_client(file)
    path = f"{ROOT}.usageParams"
    half_life = _read(params.half_life_period, f"{path}.halfLifePeriod", duration.parse, 0.0)
    fetch = _positive(params.fetch_interval, f"{path}.fetchInterval", duration.parse, 60.0)
    return UsageConfig(
        file.client_type,
        file.connection_string,
        file.connection_string_env_var,
        _window(params, started),
        half_life if half_life > 0 else None,
        fetch,
        max(fetch, _positive(params.staleness_period, f"{path}.stalenessPeriod", duration.parse, 300.0)),
        _read(params.wait_timeout, f"{path}.waitTimeout", duration.parse, 60.0),
        _queries(params.extra_params),
    )


def _as_written(value: Any) -> Any:
    """The document with its instants as texts: YAML reads an instant without quotes as one."""
    if isinstance(value, Mapping):
        return {key: _as_written(part) for key, part in value.items()}
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
        return Window(kind, size, cron=_read(params.cron_string or "", f"{path}.cronString", parse_cron, None))
    start = _read(params.tumbling_window_start_time, f"{path}.tumblingWindowStartTime", _instant, started)
    return Window(kind, size, start if kind is WindowType.TUMBLING else None)


def _queries(extra: Mapping[str, str]) -> Queries:
    usual, path = Queries(), f"{ROOT}.usageParams.extraParams"
    keys = {f"{resource}{what}Metric" for resource in usual.allocation for what in ("Allocation", "Capacity")}
    unknown = sorted(set(extra) - keys - {"usageQueryTimeout", "queryResolution"})
    if unknown:
        raise FieldError(f"{path}.{unknown[0]}", "there is no such parameter")
    return Queries(
        {resource: extra.get(f"{resource}AllocationMetric", text) for resource, text in usual.allocation.items()},
        {resource: extra.get(f"{resource}CapacityMetric", text) for resource, text in usual.capacity.items()},
        _positive(extra.get("usageQueryTimeout"), f"{path}.usageQueryTimeout", duration.parse, usual.timeout),
        _positive(extra.get("queryResolution"), f"{path}.queryResolution", duration.parse, usual.resolution),
    )


def _positive(text: str | None, path: str, read: Callable[[str], float], usual: float) -> float:
    seconds = _read(text, path, read, usual)
    if seconds <= 0:
        raise FieldError(path, "must be longer than 0s")
    return seconds


def _read(text: str | None, path: str, read: Callable[[str], T], usual: T) -> T:
    if text is None:
        return usual
    try:
        return read(text)
    except ValueError as error:
        raise FieldError(path, str(error)) from error


def long_seconds(text: str) -> float:
    """Seconds of a duration as Prometheus writes it: 1w, 1d12h, 90s."""
    match = _LONG.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a duration (expected whole numbers with units, such as 1w or 24h)")
    return sum(float(number) * size for number, size in zip(match.groups(), _SIZES, strict=True) if number)


def _instant(text: str) -> float:
    moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
    if moment.tzinfo is None:
        raise ValueError(f"{text!r} names no time zone (expected RFC 3339, such as 2026-01-01T00:00:00Z)")
    return moment.timestamp()
