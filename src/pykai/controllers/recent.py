"""A memory that forgets: values that hold for a few seconds, such as what was just read or just written.

It bridges the time until a watch shows what this process already knows, so entries are few and short-lived; what has
expired is thrown away when something new is put in.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from pykai.kube.clock import steady

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Recent(Generic[K, V]):
    """Values by key, each for `seconds` unless it is put in for another time."""

    def __init__(self, seconds: float, clock: Callable[[], float] = steady) -> None:
        self._seconds = seconds
        self._clock = clock
        self._entries: dict[K, tuple[float, V]] = {}
        self._sweep_at = 64

    def __len__(self) -> int:
        return len(self._entries)

    def put(self, key: K, value: V, seconds: float | None = None) -> None:
        """Remember a value; `seconds` None means the usual time."""
        self._entries[key] = self._clock() + (self._seconds if seconds is None else seconds), value
        if len(self._entries) > self._sweep_at:
            self._sweep()

    def get(self, key: K) -> V | None:
        """The value, None where there is none or it has expired."""
        entry = self._entries.get(key)
        return entry[1] if entry is not None and entry[0] > self._clock() else None

    def drop(self, key: K) -> None:
        """Forget a value now."""
        self._entries.pop(key, None)

    def _sweep(self) -> None:
        now = self._clock()
        self._entries = {key: entry for key, entry in self._entries.items() if entry[0] > now}
        self._sweep_at = max(64, 2 * len(self._entries))
