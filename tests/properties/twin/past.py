"""§18 and the usage database (spec/controllers.md §6): which past counts and how much each queue had of it."""

from __future__ import annotations

import calendar
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

Sample = tuple[float, float, Mapping[str, float]]
"""Instant, capacity, what each queue held; of one resource."""
DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")


def tumbled(start: float, size: float, now: float) -> float:
    """The largest start + k * size strictly before now; start in the future: now."""
    if start >= now:
        return now
    while start + size < now:
        start += size
    return start


def fired(expression: str, now: float) -> float:
    """The last firing before now: into the past day by day, and minute by minute where the day is right."""
    fields, day = expression.split(), datetime.fromtimestamp(now, UTC).replace(hour=0, minute=0, second=0)
    day = day.replace(microsecond=0)
    while True:
        minutes = [day + timedelta(minutes=minute) for minute in range(24 * 60)] if _fires_on(fields, day) else []
        for minute in reversed(minutes):
            if minute.timestamp() < now and _fires_at(fields, minute):
                return minute.timestamp()
        day -= timedelta(days=1)


def _fires_on(fields: Sequence[str], day: datetime) -> bool:
    by_day = _matches(fields[2], day.day, (1, 31))
    by_weekday = _matches(fields[4], (calendar.weekday(day.year, day.month, day.day) + 1) % 7, (0, 6))
    either = by_day and by_weekday if _free(fields[2]) or _free(fields[4]) else by_day or by_weekday
    return either and _matches(fields[3], day.month, (1, 12))


def _fires_at(fields: Sequence[str], minute: datetime) -> bool:
    return _matches(fields[0], minute.minute, (0, 59)) and _matches(fields[1], minute.hour, (0, 23))


def _free(field: str) -> bool:
    """A field that restricts nothing: only then the other day decides alone."""
    return any(part in ("*", "*/1") for part in field.split(","))


def _matches(field: str, value: int, limits: tuple[int, int]) -> bool:
    for part in field.split(","):
        span, _, step = part.partition("/")
        first, dash, last = span.partition("-")
        low, high = limits if span == "*" else (_number(first), _number(last) if dash else _number(first))
        if step and not dash and span != "*":
            high = limits[1]
        if low <= value <= high and (value - low) % int(step or 1) == 0:
            return True
    return False


def _number(text: str) -> int:
    return DAYS.index(text) if text in DAYS else int(text)


def use(samples: Sequence[Sample], since: float, now: float, half_life: float | None) -> dict[str, float]:
    """Sum of allocation * decay over sum of capacity * decay; one sample for every unit of time in the window."""
    kept = [(at, capacity, held) for at, capacity, held in samples if since <= at < now]
    weights = [1.0 if half_life is None else 0.5 ** ((now - at) / half_life) for at, _, _ in kept]
    total = sum(weight * capacity for weight, (_, capacity, _) in zip(weights, kept, strict=True))
    queues = {queue for _, _, held in kept for queue in held}
    if not total:
        return {}
    return {
        queue: sum(w * held.get(queue, 0.0) for w, (_, _, held) in zip(weights, kept, strict=True)) / total
        for queue in queues
    }
