"""Figures, times and spans as people read them: the filters of the templates."""

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
    """A figure with at most two decimals; ∞ where there is no bound, a dash where there is none."""
    if value is None:
        return "–"
    if value == UNLIMITED:
        return "∞"
    text = f"{value:,.2f}".rstrip("0").rstrip(".") if value % 1 else f"{value:,.0f}"
    return text.replace(",", " ")


def size(value: float | None) -> str:
    """Bytes with a unit."""
    if value is None or value == UNLIMITED:
        return figure(value)
    for unit in _UNITS:
        if abs(value) < 1024 or unit == _UNITS[-1]:
            return f"{figure(round(value, 1))} {unit}"
        value /= 1024
    raise AssertionError("unreachable")


def percent(value: float) -> str:
    """A part of one."""
    return f"{100 * value:.0f} %"


def instant(value: float | None) -> str:
    """Date and time in UTC."""
    return "–" if value is None else datetime.fromtimestamp(value, UTC).strftime("%Y-%m-%d %H:%M:%S")


def machine_instant(value: float) -> str:
    """For the `datetime` attribute."""
    return datetime.fromtimestamp(value, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def span(value: float | None) -> str:
    """Seconds as a span of time."""
    return "–" if value is None else age(value)


def segment(value: str) -> str:
    """A part of a path."""
    return quote(value, safe="")


def many(count: float, thing: str) -> str:
    """How many there are of a thing."""
    return f"{figure(count)} {thing}{'' if count == 1 else 's'}"


def words(value: str) -> str:
    """A token such as ReclaimQueueAtFairShare in words."""
    if any(not (letter.isalnum()) for letter in value):
        return value
    spaced = "".join(f" {letter.lower()}" if letter.isupper() and at else letter for at, letter in enumerate(value))
    return spaced.replace("g p u", "GPU").replace("c p u", "CPU")


def short(value: str) -> str:
    """The name of a PodGroup without what the pod grouper adds to that of the workload."""
    found = _GROUP.fullmatch(value)
    return found[1] if found else value


def compact(value: Any) -> str:
    """JSON for a data block of a page; `<` cannot end it."""
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
