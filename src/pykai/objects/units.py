"""Parses and renders quantities, resource lists, durations and timestamps as Kubernetes objects write them.

A quantity ("500m", "16Gi", "2e3") is an exact rational number; `amount` and `milli` return floats. All are cached,
because a cluster has thousands of objects but few distinct quantities. Sums of resource lists are exact to a nano unit,
the finest that a quantity can express. Their text depends only on the amount and on whether an addend has a binary
suffix, not on the order of the addends.

A duration ("1h30m", "250ms", "-2m") has Go's syntax with units up to hours, as in the API server; settings that accept
days and weeks use `parse_long_duration`. Durations and timestamps are in seconds.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from fractions import Fraction
from functools import lru_cache

_NUMBER = r"[+-]?(?:[0-9]{1,64}(?:\.[0-9]{0,64})?|\.[0-9]{1,64})"
_QUANTITY = re.compile(rf"({_NUMBER})(?:[eE]([+-]?[0-9]{{1,3}})|([numkMGTPE]|[KMGTPE]i)?)")
_SUFFIX_SCALE: dict[str | None, Fraction] = {
    None: Fraction(1),
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    "k": Fraction(10**3),
    **{s: Fraction(10 ** (6 + 3 * i)) for i, s in enumerate("MGTPE")},
    **{s + "i": Fraction(1024 ** (1 + i)) for i, s in enumerate("KMGTPE")},
}
_INTEGER_QUANTITY = re.compile(r"([0-9]{1,18})(m|[kMGTPE]|[KMGTPE]i)?")
_THOUSANDTHS = {suffix: int(scale * 1000) for suffix, scale in _SUFFIX_SCALE.items() if suffix not in ("n", "u")}


class QuantityError(ValueError):
    """The text is not a Kubernetes quantity."""


@lru_cache(maxsize=65536, typed=True)
def parse_quantity(text: str | int | float) -> Fraction:
    """Parse a quantity to base units (cores, bytes, devices), exactly; QuantityError if the API server rejects it."""
    match = _QUANTITY.fullmatch(str(text))
    if match is None:
        raise QuantityError(
            f"{text!r} is not a quantity (expected a number with an optional suffix, such as 500m or 16Gi)"
        )
    number, exponent, suffix = match.groups()
    scale = Fraction(10) ** int(exponent) if exponent else _SUFFIX_SCALE[suffix]
    return Fraction(number) * scale


def _thousandths(text: str | int | float) -> int | None:
    """Return the exact amount in thousandths, for the most common notations; None if it takes `parse_quantity`.

    Avoids rational numbers, which are slow for clusters in which every pod has different requests.
    """
    match = _INTEGER_QUANTITY.fullmatch(str(text))
    return None if match is None else int(match[1]) * _THOUSANDTHS[match[2]]


@lru_cache(maxsize=65536)
def amount(text: str | int | float) -> float:
    """Return the amount in base units as a float."""
    exact = _thousandths(text)
    return float(parse_quantity(text)) if exact is None else exact / 1000


@lru_cache(maxsize=65536)
def milli(text: str | int | float) -> float:
    """Return the amount in thousandths, rounded up as in the API server."""
    exact = _thousandths(text)
    return float(-((-parse_quantity(text) * 1000) // 1)) if exact is None else float(exact)


def render_quantity(value: float) -> str:
    """Render an amount: a whole number without suffix, any other in thousandths."""
    if value == int(value):
        return str(int(value))
    return f"{round(value * 1000)}m"


ResourceList = Mapping[str, str | int | float]

_DECIMAL_SUFFIXES = ("n", "u", "m", "", "k", "M", "G", "T", "P", "E")
_BINARY_SUFFIXES = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_NANOS = 10**9


def sum_resources(lists: Iterable[ResourceList | None]) -> dict[str, str]:
    """Return the sum by resource name, sorted; includes resources with amount 0."""
    sums: dict[str, int] = {}
    binary: set[str] = set()
    for resources in lists:
        for name, text in (resources or {}).items():
            amount, is_binary = _nanos(text)
            sums[name] = sums.get(name, 0) + amount
            if is_binary:
                binary.add(name)
    return {name: _render_nanos(sums[name], name in binary) for name in sorted(sums)}


def canonical(value: Fraction) -> str:
    """Return the shortest decimal quantity of an amount, rounded up to nano units."""
    return _render_nanos(math.ceil(value * _NANOS), False)


@lru_cache(maxsize=65536)
def _nanos(text: str | int | float) -> tuple[int, bool]:
    """Return the amount in nano units, rounded up, and whether the text has a binary suffix."""
    return math.ceil(parse_quantity(text) * _NANOS), str(text).endswith("i")


def _render_nanos(nanos: int, binary: bool) -> str:
    """Return the amount with the largest suffix that leaves a whole number; below 1Ki the suffix is always decimal."""
    if binary and nanos % _NANOS == 0 and abs(nanos) >= 1024 * _NANOS:
        return _render_scaled(nanos // _NANOS, 1024, _BINARY_SUFFIXES)
    return _render_scaled(nanos, 1000, _DECIMAL_SUFFIXES)


def _render_scaled(number: int, step: int, suffixes: tuple[str, ...]) -> str:
    if number == 0:
        return "0"
    power = 0
    while number % step == 0 and power < len(suffixes) - 1:
        number, power = number // step, power + 1
    return f"{number}{suffixes[power]}"


_SECONDS: dict[str, Fraction] = {
    "ns": Fraction(1, 10**9),
    "us": Fraction(1, 10**6),
    "µs": Fraction(1, 10**6),  # micro sign
    "μs": Fraction(1, 10**6),  # Greek mu
    "ms": Fraction(1, 1000),
    "s": Fraction(1),
    "m": Fraction(60),
    "h": Fraction(3600),
}
_LONG_SECONDS = {**_SECONDS, "d": Fraction(86400), "w": Fraction(7 * 86400)}
_DURATION_PART = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)([^0-9.+-]+)", re.ASCII)
_NANOSECONDS_MAX = 2**63 - 1


class DurationError(ValueError):
    """The text is not a duration."""


@lru_cache(maxsize=4096)
def parse_duration(text: str) -> float:
    """Parse a Go duration such as 1h30m, which may be negative, to seconds; raises DurationError."""
    return _seconds(text, _SECONDS)


@lru_cache(maxsize=4096)
def parse_long_duration(text: str) -> float:
    """Parse a duration that may also have days and weeks, such as 5w4d12h, to seconds; raises DurationError."""
    return _seconds(text, _LONG_SECONDS)


def _seconds(text: str, units: Mapping[str, Fraction]) -> float:
    sign, unsigned = (-1 if text.startswith("-") else 1), text[1:] if text[:1] in {"-", "+"} else text
    if unsigned == "0":
        return 0.0
    parts = _DURATION_PART.findall(unsigned)
    if not parts or "".join(number + unit for number, unit in parts) != unsigned:
        raise DurationError(f"{text!r} is not a duration such as 90s or 1h30m")
    unknown = [unit for _, unit in parts if unit not in units]
    if unknown:
        spelled = ", ".join(unit for unit in units if unit.isascii())
        raise DurationError(
            f"{text!r} is not a duration such as 90s or 1h30m: "
            f"unknown unit {unknown[0].strip()!r}, use one of {spelled}"
        )
    total = sum((Fraction(number) * units[unit] for number, unit in parts), Fraction(0))
    if total * 10**9 > _NANOSECONDS_MAX:
        raise DurationError(f"{text!r} is not a duration: longer than 2^63 nanoseconds")
    return sign * float(total)


def render_duration(seconds: float) -> str:
    """Render a duration as Go does: 1h30m0s, 45s, 250ms."""
    nanoseconds = round(abs(seconds) * 10**9)
    sign = "-" if seconds < 0 and nanoseconds else ""
    if nanoseconds < 10**9:
        sizes = ((10**6, "ms"), (10**3, "µs"), (1, "ns"), (0, "s"))
        size, unit = next((size, unit) for size, unit in sizes if nanoseconds >= size)
        return sign + _render_decimal(nanoseconds, size or 1) + unit
    minutes, rest = divmod(nanoseconds, 60 * 10**9)
    hours, minutes = divmod(minutes, 60)
    head = (f"{hours}h" if hours else "") + (f"{minutes}m" if hours or minutes else "")
    return f"{sign}{head}{_render_decimal(rest, 10**9)}s"


def _render_decimal(amount: int, unit: int) -> str:
    whole, rest = divmod(amount, unit)
    digits = f"{rest:0{len(str(unit)) - 1}d}".rstrip("0") if rest else ""
    return f"{whole}.{digits}" if digits else str(whole)


def parse_timestamp(text: str | None) -> float | None:
    """Parse a timestamp to seconds since the epoch; None if it is absent or invalid."""
    if not text:
        return None
    try:
        return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()
    except ValueError:
        return None


def rfc3339(instant: float) -> str:
    """Render a timestamp in UTC with whole seconds, as Kubernetes does."""
    return datetime.fromtimestamp(int(instant), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
