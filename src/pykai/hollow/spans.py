"""Times a story is told in: fixed ones (`30s`), or ranges from which the seed draws one (`30s-5m`)."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from pykai.objects import units


@dataclass(frozen=True)
class Span:
    """From `low` to `high` seconds, both included."""

    low: float
    high: float

    def draw(self, seed: str) -> float:
        """The time itself, or one in the range that depends on nothing but the seed; whole milliseconds."""
        if self.low == self.high:
            return self.low
        return round(random.Random(seed).uniform(self.low, self.high), 3)


FOREVER = "forever"
NEVER = float("inf")


def durations(text: str) -> Span:
    """A duration such as 90s, or a range of them; ValueError tells what is wrong."""
    return _span(text, units.parse_duration)


def seconds(text: str) -> Span:
    """A number of seconds, or a range of them, or FOREVER; ValueError tells what is wrong."""
    return Span(NEVER, NEVER) if text == FOREVER else _span(text, _number)


def written(number: float) -> str:
    """A number of seconds as annotations have it."""
    return FOREVER if number == NEVER else str(number)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        expected = f"expected 60, a range such as 60-300, or {FOREVER}"
        raise ValueError(f"{text!r} is not a number of seconds ({expected})") from None


def _span(text: str, one: Callable[[str], float]) -> Span:
    low_text, dash, high_text = text.strip().partition("-") if not text.startswith("-") else (text, "", "")
    low = one(low_text.strip())
    high = one(high_text.strip()) if dash else low
    if not 0 <= low <= high < NEVER:
        raise ValueError(f"{text!r} must not be negative, and a range must not end before it begins")
    return Span(low, high)
