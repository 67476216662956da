"""Durations as Kubernetes objects write them: "1h30m", "1.5s", "250ms", "-2m".

The API server reads Go's syntax, units up to hours. Some settings are read more generously, with days and weeks;
they say so, and use `parse_long`. Both return seconds.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction
from functools import lru_cache

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
_PART = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)([^0-9.+-]+)", re.ASCII)
_NANOSECONDS_MAX = 2**63 - 1


class DurationError(ValueError):
    """The text is not a duration."""


@lru_cache(maxsize=4096)
def parse(text: str) -> float:
    """Seconds of a Go duration such as 1h30m, may be negative; raises DurationError (a ValueError)."""
    return _seconds(text, _SECONDS)


@lru_cache(maxsize=4096)
def parse_long(text: str) -> float:
    """Seconds of a duration that may also count days and weeks, such as 5w4d12h; raises DurationError."""
    return _seconds(text, _LONG_SECONDS)


def _seconds(text: str, units: Mapping[str, Fraction]) -> float:
    sign, unsigned = (-1 if text.startswith("-") else 1), text[1:] if text[:1] in {"-", "+"} else text
    if unsigned == "0":
        return 0.0
    parts = _PART.findall(unsigned)
    if not parts or "".join(number + unit for number, unit in parts) != unsigned:
        raise DurationError(f"{text!r} is not a duration (expected numbers with units, such as 1h30m or 10s)")
    unknown = [unit for _, unit in parts if unit not in units]
    if unknown:
        raise DurationError(f"{text!r} is not a duration: unknown unit {unknown[0]!r}, use one of {', '.join(units)}")
    total = sum((Fraction(number) * units[unit] for number, unit in parts), Fraction(0))
    if total * 10**9 > _NANOSECONDS_MAX:
        raise DurationError(f"{text!r} is not a duration: longer than 2^63 nanoseconds")
    return sign * float(total)


def render(seconds: float) -> str:
    """The duration as Go writes it: 1h30m0s, 45s, 500ms."""
    if seconds == 0:
        return "0s"
    sign, whole = ("-" if seconds < 0 else ""), abs(seconds)
    if whole < 1:
        return f"{sign}{whole * 1000:g}ms"
    hours, rest = divmod(whole, 3600)
    minutes, left = divmod(rest, 60)
    text = f"{left:g}s"
    if hours or minutes:
        text = f"{int(minutes)}m{text}"
    return f"{sign}{int(hours)}h{text}" if hours else sign + text
