"""Patience after failures: a pod whose bind failed is tried again ever later, however many cycles pass meanwhile."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass


@dataclass(frozen=True)
class Patience:
    """Seconds to wait after the first failure in a row, doubling up to the longest."""

    first: float = 1.0
    longest: float = 60.0

    def after(self, failures: int) -> float:
        """Seconds to wait after so many failures in a row."""
        return float(min(self.longest, self.first * 2.0 ** min(failures - 1, 60)))


class Setbacks:
    """Counts failures in a row; who had none for twice the longest wait starts anew."""

    def __init__(self, patience: Patience | None = None) -> None:
        self._patience = patience or Patience()
        self._failures: dict[Hashable, tuple[int, float]] = {}

    def note(self, key: Hashable, now: float) -> float:
        """Count a failure; returns the instant before which there should be no other attempt."""
        forgotten = now - 2 * self._patience.longest
        self._failures = {known: entry for known, entry in self._failures.items() if entry[1] > forgotten}
        count = self._failures.get(key, (0, 0.0))[0] + 1
        until = now + self._patience.after(count)
        self._failures[key] = (count, until)
        return until
