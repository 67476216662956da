"""Formats of numbers, times and durations: the filters of the templates."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

import msgspec

from pykai.explain.tables import age
from pykai.model.resources import UNLIMITED
from pykai.observe.wording import reason_line

_GROUP = re.compile(r"pg-(.+?)-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def figure(value: float | None) -> str:
    """Format a number with at most two decimals; ∞ for -1 (unlimited), a dash for None."""
    if value is None:
        return "–"
    if value == UNLIMITED:
        return "∞"
    text = f"{value:,.2f}".rstrip("0").rstrip(".") if value % 1 else f"{value:,.0f}"
    return text.replace(",", " ")


def size(value: float | None) -> str:
    """Format bytes with a unit."""
    if value is None or value == UNLIMITED:
        return figure(value)
    for unit in _UNITS:
        if abs(value) < 1024 or unit == _UNITS[-1]:
            return f"{figure(round(value, 1))} {unit}"
        value /= 1024
    raise AssertionError("unreachable")


def percent(value: float) -> str:
    """Format a fraction of one as a percentage."""
    return f"{100 * value:.0f} %"


def instant(value: float | None) -> str:
    """Format date and time in UTC."""
    return "–" if value is None else datetime.fromtimestamp(value, UTC).strftime("%Y-%m-%d %H:%M:%S")


def machine_instant(value: float) -> str:
    """Format a time for the `datetime` attribute."""
    return datetime.fromtimestamp(value, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def span(value: float | None) -> str:
    """Format a duration in seconds."""
    return "–" if value is None else age(value)


def segment(value: str) -> str:
    """Quote a path segment."""
    return quote(value, safe="")


def many(count: float, thing: str) -> str:
    """Format a count with its noun."""
    return f"{figure(count)} {thing}{'' if count == 1 else 's'}"


def words(value: str) -> str:
    """Split a token such as ReclaimQueueAtFairShare into words."""
    if any(not (letter.isalnum()) for letter in value):
        return value
    spaced = "".join(f" {letter.lower()}" if letter.isupper() and at else letter for at, letter in enumerate(value))
    return spaced.replace("g p u", "GPU").replace("c p u", "CPU")


def short(value: str) -> str:
    """Return the name of a PodGroup without the affixes of the pod grouper."""
    found = _GROUP.fullmatch(value)
    return found[1] if found else value


def compact(value: Any) -> str:
    """Encode JSON for a data block of a page; no `<` can end the block."""
    return msgspec.json.encode(value).decode().replace("<", "\\u003c")


FILTERS = {
    "figure": figure,
    "size": size,
    "percent": percent,
    "instant": instant,
    "machine_instant": machine_instant,
    "span": span,
    "segment": segment,
    "many": many,
    "words": words,
    "short": short,
    "compact": compact,
    "reason": reason_line,
}
