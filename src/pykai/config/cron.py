"""Cron expressions of five fields (minute, hour, day of month, month, day of week), as far back as one needs: in UTC.

A field is `*`, a number, a range, a list of those, each with an optional `/step`; months and days may be named. Where
both days are restricted, either is enough, as in every cron.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_FIELDS = (
    ("minute", 0, 59, ()),
    ("hour", 0, 23, ()),
    ("day of month", 1, 31, ()),
    ("month", 1, 12, _MONTHS),
    ("day of week", 0, 7, _DAYS),
)
_SHORT = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_FARTHEST = timedelta(days=8 * 366)


@dataclass(frozen=True)
class Cron:
    """A schedule; `any_day` and `any_weekday`: the field says every day."""

    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    any_day: bool
    any_weekday: bool

    def last_before(self, instant: float) -> float | None:
        """The last firing strictly before an instant (seconds since 1970); None where there was none for years."""
        now = datetime.fromtimestamp(instant, UTC)
        day = now.replace(hour=0, minute=0, second=0, microsecond=0)
        while now - day < _FARTHEST:
            found = [moment for moment in self._firings(day) if moment < now] if self._fires_on(day) else []
            if found:
                return found[-1].timestamp()
            day -= timedelta(days=1)
        return None

    def _fires_on(self, day: datetime) -> bool:
        by_day, by_weekday = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        either = (by_day or by_weekday) if not (self.any_day or self.any_weekday) else (by_day and by_weekday)
        return day.month in self.months and either

    def _firings(self, day: datetime) -> list[datetime]:
        return [day.replace(hour=hour, minute=minute) for hour in sorted(self.hours) for minute in sorted(self.minutes)]


def parse_cron(text: str) -> Cron:
    """The schedule a text describes; ValueError names the field that is wrong."""
    parts = _SHORT.get(text.strip(), text).split()
    if len(parts) != len(_FIELDS):
        raise ValueError(f"{text!r} is not a cron expression (expected 5 fields, such as `0 0 * * 1`, or @weekly)")
    minutes, hours, days, months, weekdays = (_field(part, *field) for part, field in zip(parts, _FIELDS, strict=True))
    sundays = weekdays | ({0} if 7 in weekdays else set())
    return Cron(minutes, hours, days, months, sundays, _restricts_nothing(parts[2]), _restricts_nothing(parts[4]))


def _restricts_nothing(field: str) -> bool:
    return any(part in ("*", "?", "*/1", "?/1") for part in field.split(","))


def _field(text: str, name: str, lowest: int, highest: int, words: tuple[str, ...]) -> frozenset[int]:
    found: set[int] = set()
    for part in text.lower().split(","):
        span, slash, step = part.partition("/")
        if slash and not (step.isdigit() and int(step) > 0):
            raise ValueError(f"{name}: {part!r} has no step of at least 1")
        first, last = _span(span, bool(slash), (name, lowest, highest, words))
        found |= set(range(first, last + 1, int(step) if slash else 1))
    return frozenset(found)


def _span(text: str, stepped: bool, field: tuple[str, int, int, tuple[str, ...]]) -> tuple[int, int]:
    name, lowest, highest, words = field
    last_of_all = lowest + len(words) - 1 if words else highest
    if text in ("*", "?"):
        return lowest, last_of_all
    first, dash, last = text.partition("-")
    begin = _number(first, lowest, words)
    end = _number(last, lowest, words) if dash else (last_of_all if stepped else begin)
    if begin is None or end is None or not lowest <= begin <= end <= highest:
        raise ValueError(f"{name}: {text!r} is not in {lowest}-{highest}")
    return begin, end


def _number(text: str, lowest: int, words: tuple[str, ...]) -> int | None:
    if text in words:
        return words.index(text) + lowest
    return int(text) if text.isdigit() else None
